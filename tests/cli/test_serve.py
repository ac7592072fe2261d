from __future__ import annotations

import asyncio
import io
import json
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import typer
from rich.console import Console
from rich.status import Status

from qwen3tts_cli.main import app, run
from qwen3tts_cli.progress import Stages
from qwen3tts_cli.serve import is_loopback
from qwen3tts_cli.voices import speaks
from qwen3tts_wire.client import SpeechClient
from qwen3tts_wire.messages import VoiceInfo

pytestmark = pytest.mark.network


async def command(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "qwen3tts_cli.main",
        *arguments,
        env={"PYTHONPATH": ":".join(sys.path)},
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
    for name in [name for name in sys.modules if name.startswith("qwen3tts_engine.qwen3")]:
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
    for wrong in ("some", "0"):
        code, said = await refused(
            *("--engine", "qwen3", "--model", str(tmp_path)),
            *("--initial-codec-chunk-frames", wrong),
        )
        assert code == 2
        assert "must be load, or 1 or more" in said
        assert "PyTorch" not in said
