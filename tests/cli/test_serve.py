from __future__ import annotations

import asyncio
import io
import json
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import typer
import yaml
from rich.console import Console
from rich.status import Status

from qwen3tts_cli.main import app, run
from qwen3tts_cli.output.console import Stages
from qwen3tts_cli.serving import is_loopback
from qwen3tts_cli.voices import MORE_LANGUAGES, speaks
from qwen3tts_wire.client import SpeechClient
from qwen3tts_wire.messages import VoiceInfo
from tests.engine.piper.tiny_vits import write_voice

pytestmark = pytest.mark.network


async def command(*arguments: str, env: dict[str, str] | None = None) -> asyncio.subprocess.Process:
    own = {"PYTHONPATH": ":".join(sys.path), "QWEN3TTS__ENGINE__NAME": "embedded"}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "qwen3tts_cli.main",
        *arguments,
        env={**own, **(env or {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A server process and its URL."""
    process = await command("serve", "--port", "0", "--workers", "1")
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            yield process, (await process.stdout.readline()).decode().strip()
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_a_server_tells_its_url_speaks_and_ends_in_order() -> None:
    async with serving() as (process, url):
        assert url.startswith("ws://127.0.0.1:")
        asked = await command("voices", "--server", url, "--language", "de", "--json")
        out, err = await asked.communicate()
        assert (asked.returncode, err) == (0, b"")
        voices = json.loads(out)
        assert voices
        assert all(voice["language"].startswith("de") for voice in voices)

        said = await command("say", "Good morning.", "--out", "-", "--server", url)
        out, err = await said.communicate()
        assert (said.returncode, err) == (0, b"")
        assert out[:4] == b"RIFF"
        assert len(out) > 24_000

        port = url.split(":")[2].split("/")[0]
        second = await command("serve", "--port", port)
        _, err = await second.communicate()
        assert second.returncode == 3
        assert f"Port {port} of 127.0.0.1 is in use." in err.decode()

        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0


@pytest.mark.parametrize(("engine", "notes"), [("piper", 1), ("embedded", 0)])
async def test_beside_the_natural_voices_espeaks_are_named(
    engine: str, notes: int, tmp_path: Path
) -> None:
    write_voice(tmp_path)
    asked = await command(
        "voices",
        env={
            "QWEN3TTS__ENGINE__NAME": engine,
            "QWEN3TTS__ENGINE__PIPER__VOICES": str(tmp_path),
            "QWEN3TTS__ENGINE__PIPER__WORKERS": "1",
        },
    )
    out, err = await asked.communicate()
    assert asked.returncode == 0, err
    assert (b"en_US-tiny-low" in out) is (engine == "piper")
    assert err.decode().count(MORE_LANGUAGES) == notes


async def test_a_server_that_is_stopped_tells_that_it_lets_what_is_said_finish() -> None:
    async with serving() as (process, url):
        assert process.stderr is not None
        client = await SpeechClient.connect(url)
        context = await client.open()
        process.send_signal(signal.SIGINT)
        told = b""
        while b"Ctrl-C again" not in told:
            told = await process.stderr.readline()
            assert told
        context.cancel(0)
        assert await process.wait() == 0
        await client.close()


@pytest.mark.parametrize(
    ("host", "alone"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("box", False)],
)
def test_an_address_that_others_can_reach_is_known(host: str, alone: bool) -> None:
    assert is_loopback(host) is alone


@pytest.mark.parametrize(
    ("wanted", "found"),
    [(None, True), ("en", True), ("en-gb", True), ("en-GB", True), ("en-US", False), ("e", False)],
)
def test_a_language_finds_its_kinds(wanted: str | None, found: bool) -> None:
    assert speaks(VoiceInfo("a", "A", "en-GB"), wanted) is found


async def refused(*arguments: str) -> tuple[int | None, str]:
    process = await command("serve", "--port", "0", *arguments)
    async with asyncio.timeout(60):
        _, err = await process.communicate()
    return process.returncode, " ".join(err.decode().split())


async def test_without_a_checkpoint_the_model_engine_says_what_it_needs() -> None:
    code, said = await refused("--engine", "qwen3")
    assert code == 2
    assert "--model" in said


async def test_a_setting_that_cannot_be_is_named(tmp_path: Path) -> None:
    code, said = await refused("--engine", "qwen3", "--model", str(tmp_path), "--slots", "0")
    assert code == 2
    assert "slots=0 must be from 1 to 1024" in said


async def test_a_checkpoint_that_is_none_is_named(tmp_path: Path) -> None:
    code, said = await refused("--engine", "qwen3", "--model", str(tmp_path))
    assert code == 3
    assert "config.json" in said
    assert "Remedy" in said


def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Its settings need no torch, and are known to the server by now.
    for name in [name for name in sys.modules if name.startswith("qwen3tts_engine.qwen3.")]:
        if name.endswith(".settings"):
            continue
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert run(["serve", "--engine", "qwen3", "--model", "anything"]) == 3
    assert "pip install 'mr_qwen3tts[server,qwen3]'" in capsys.readouterr().err


@pytest.mark.parametrize(("of", "shown"), [(1, "Loading …"), (3, "Loading … 2 of 3")])
def test_at_a_terminal_progress_is_shown_in_place(of: int, shown: str) -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    status = Status("", console=console)
    stages = Stages(status, in_place=True)
    stages("loading", 2, of)
    assert status.status == shown
    stages.stop()


def test_every_setting_of_the_engines_page_is_an_option() -> None:
    page = (Path(__file__).parents[2] / "docs" / "engine.md").read_text("utf-8")
    table = page.partition("| setting | default | meaning |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in table.split("\n")[2:])))
    assert {"model", "slots", "unread_s", "compile"} <= named
    command = cast(Any, typer.main.get_command(app)).commands["serve"]
    options = {option for each in command.params for option in each.opts}
    assert {f"--{name.replace('_', '-')}" for name in named} <= options


async def test_a_chunk_that_is_no_number_is_named(tmp_path: Path) -> None:
    for wrong, told in (("some", "or load"), ("0", "must be load, or 1 or more")):
        code, said = await refused(
            *("--engine", "qwen3", "--model", str(tmp_path)),
            *("--initial-codec-chunk-frames", wrong),
        )
        assert code == 2
        assert told in said
        assert "PyTorch" not in said


async def told(*arguments: str, env: dict[str, str] | None = None) -> tuple[int | None, str, str]:
    """Exit code, results and remarks of a command that ends by itself."""
    process = await command("serve", *arguments, env=env)
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    return process.returncode, out.decode(), " ".join(err.decode().split())


async def test_settings_are_printed_with_their_hash_and_without_secrets(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text("server: {port: 1, idle_s: 5}\nstarters: {phrases: [Hello.]}\n")
    code, out, _ = await told(
        *("--config", str(file), "--print-config", "--port", "2", "--set", "server.frame_ms=20"),
        *("--starter", "One moment, please.", "--starter", "[Yes]"),
        env={"QWEN3TTS_API_KEYS": "very-secret", "QWEN3TTS__LOGGING__FORM": "json"},
    )
    assert code == 0
    assert re.match(r"# [0-9a-f]{12}\n", out)
    found = yaml.safe_load(out)
    server = found["server"]
    assert (server["port"], server["idle_s"], server["frame_ms"]) == (2, 5, 20)
    assert found["starters"]["phrases"] == ["One moment, please.", "[Yes]"]
    assert found["logging"]["form"] == "json"
    assert server["access"]["api_keys"] == "(1 set)"
    assert "very-secret" not in out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--set", "server.prot=1"), "Did you mean port"),
        (("--set", "server.port"), "sets nothing"),
        (("--set", "server.access.api_keys=k"), "is a secret"),
        (("--tls-key", "k"), "tls_key needs tls_cert"),
        (("--tls-cert", "missing.pem"), "cannot be used"),
        (("--api-key-file", "missing"), "cannot be read"),
        (("--engine", "upstream"), "--upstream"),
    ],
    ids=str,
)
async def test_a_setting_that_is_wrong_ends_the_start(arguments: tuple[str, ...], why: str) -> None:
    code, _, err = await told("--port", "0", *arguments)
    assert code == 2
    assert why in err
    assert "Remedy" in err


async def test_a_file_of_settings_that_is_not_there_is_named(tmp_path: Path) -> None:
    code, _, err = await told("--config", str(tmp_path / "missing.yaml"))
    assert code == 2
    assert "missing.yaml: No such file" in err
    assert "configs/server.yaml" in err


async def test_an_address_of_another_server_chooses_the_engine() -> None:
    code, out, _ = await told("--print-config", "--upstream", "http://127.0.0.1:1")
    assert code == 0
    engine = yaml.safe_load(out)["engine"]
    assert (engine["name"], engine["upstream"]["url"]) == ("upstream", "http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("options", "engine"),
    [
        (("--engine", "piper"), "piper"),
        (("--engine", "embedded"), "embedded"),
        (("--set", "engine.name=piper"), "piper"),
        (("--upstream", "http://127.0.0.1:1"), "upstream"),
        (("--engine", "qwen3", "--model", "folder"), "qwen3"),
    ],
    ids=str,
)
async def test_the_default_voice_is_the_one_of_the_engine_that_speaks(
    options: tuple[str, ...], engine: str
) -> None:
    code, out, err = await told("--print-config", "--voice", "en_US-joe-medium", *options)
    assert code == 0, err
    engines = yaml.safe_load(out)["engine"]
    named = [name for name, each in engines.items() if "voice" in (each or ())]
    assert [name for name in named if engines[name]["voice"] == "en_US-joe-medium"] == [engine]


async def test_a_server_writes_json_takes_new_keys_and_tells_its_manager(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("first-key")
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        process = await command(
            *("serve", "--port", "0", "--workers", "1", "--api-key-file", str(keys)),
            *("--set", "logging.form=json", "--show-settings"),
            env={"NOTIFY_SOCKET": str(tmp_path / "notify")},
        )
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async with asyncio.timeout(60):
                url = (await process.stdout.readline()).decode().strip()
                assert await loop.sock_recv(manager, 100) == b"READY=1"
                base = url.replace("ws://", "http://").removesuffix("/v1/speech")
                async with httpx.AsyncClient(base_url=base, trust_env=False) as client:
                    headers = {"Authorization": "Bearer second-key"}
                    assert (await client.get("/v1/models", headers=headers)).status_code == 401
                    keys.write_text("second-key")
                    process.send_signal(signal.SIGHUP)
                    logged = [json.loads(await process.stderr.readline())]
                    while "read again" not in logged[-1]["message"]:
                        line = await process.stderr.readline()
                        assert line
                        if line.startswith(b"{"):
                            logged.append(json.loads(line))
                    assert (await client.get("/v1/models", headers=headers)).status_code == 200
                process.send_signal(signal.SIGTERM)
                assert await loop.sock_recv(manager, 100) == b"STOPPING=1"
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()
    settings = logged[0]
    assert settings["message"] == "settings"
    assert len(settings["hash"]) == 12
    assert settings["settings"]["server"]["access"]["api_key_file"] == str(keys)
    assert "first-key" not in json.dumps(logged)
    assert any(line["message"] == "refused: invalid_api_key" for line in logged)
