"""`softphone`: its options, and what it tells of itself."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import typer

from qwen3tts_cli.calls.call_run import CallPlan
from qwen3tts_cli.main import run
from qwen3tts_cli.options.listening import ListenOptions
from qwen3tts_cli.options.page import Consent, PageOptions, parsed_servers
from qwen3tts_cli.options.speech import SpeechOptions
from qwen3tts_cli.output.exits import ExitCode
from qwen3tts_cli.softphone import (
    LogOptions,
    SoftphoneRequest,
    print_softphone,
    qr_code,
    settings_of,
    telephone_of,
)
from qwen3tts_phone.softphone.certificate import Certificate
from qwen3tts_phone.softphone.server import Softphone
from qwen3tts_phone.softphone.settings import EngineSettings, SoftphoneSettings
from tests.conftest import require_package

URL = "ws://127.0.0.1:8765/v1/speech"


def asked(**page: Any) -> SoftphoneRequest:
    plan = CallPlan(listening=ListenOptions())
    return SoftphoneRequest(
        PageOptions(**page),
        SpeechOptions(voice="alba"),
        plan,
        words=None,
        logs=LogOptions(),
        config=None,
        sip=True,
    )


def test_servers_have_names_or_are_counted() -> None:
    assert parsed_servers(None) == {}
    assert parsed_servers([URL]) == {"": URL}
    assert parsed_servers(["Qwen=ws://a:1/x", "wss://b/?a=b"]) == {
        "Qwen": "ws://a:1/x",
        "": "wss://b/?a=b",
    }
    assert list(parsed_servers(["ws://a/", "ws://b/", "ws://c/"])) == ["", "Engine 2", "Engine 3"]


@pytest.mark.parametrize("given", [["http://a/"], ["Qwen="], ["A=ws://a/", "A=ws://b/"], [""]])
def test_what_is_no_server_is_refused(given: list[str]) -> None:
    with pytest.raises(typer.BadParameter, match="--server"):
        parsed_servers(given)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--host", "0.0.0.0", "--http"], "insecure"),
        (["--certificate-key", __file__], "certificate"),
        (["--http", "--certificate", __file__], "certificate"),
        (["--no-recording", "--recordings", "."], "recordings"),
        (["--llm", "http://127.0.0.1:1/v1"], "stt"),
        (["--stt", "whisper"], "llm"),
        (["--greeting", "Hello"], "stt"),
        (["--server", "nowhere"], "server"),
        (["--latency-log", "/nowhere/log"], "latency-log"),
        (["--port", "70000"], "port"),
    ],
)
def test_what_cannot_work_is_told_before_anything_is_served(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["softphone", *arguments]) == ExitCode.USAGE
    assert named in capsys.readouterr().err


def test_a_token_that_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MR_QWEN3TTS_PAGE_TOKEN", "too bad")
    assert run(["softphone", "--server", URL]) == ExitCode.USAGE


def test_the_options_reach_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TOKEN", "given-token")
    found = settings_of(
        asked(
            host="0.0.0.0",
            port=1,
            token_env="TOKEN",
            max_calls=3,
            name=["box.local"],
            recordings=tmp_path,
            consent=Consent.TONE,
        ),
        {"Qwen": URL},
        SpeechOptions(voice="alba"),
    )
    assert (found.host, found.port, found.token, found.max_calls) == (
        "0.0.0.0",
        1,
        "given-token",
        3,
    )
    assert found.engines == (EngineSettings(URL, "Qwen"),)
    assert (found.voice, found.names, found.recordings) == ("alba", ("box.local",), tmp_path)
    assert found.tls
    assert found.records is not None
    assert found.records.consent == "tone"


def test_without_a_file_the_page_dials_from_an_address_that_others_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qwen3tts_cli.softphone.local_address", lambda: "192.0.2.7")
    settings = telephone_of(asked()).settings(URL)
    assert settings.sip is not None
    assert (settings.sip.hosts, settings.sip.port) == (("192.0.2.7",), 0)


def test_an_address_for_others_comes_with_a_picture_and_a_fingerprint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    require_package("segno", "pip install 'mr_qwen3tts[webrtc]'")
    page = Softphone(SoftphoneSettings(host="192.0.2.7", token="given-token"))
    page.port = 8780
    page.certificate = Certificate(Path("x.pem"), None, "AB:CD")
    print_softphone(page)
    told = capsys.readouterr()
    assert told.out == "https://192.0.2.7:8780/#token=given-token\n"
    assert "█" in told.err
    assert "AB:CD" in told.err
    assert "given-token" not in told.err


def test_on_this_machine_alone_there_is_no_picture_and_a_browser_where_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def browse(url: str) -> bool:
        opened.append(url)
        return False

    monkeypatch.setattr("webbrowser.open", browse)
    page = Softphone(SoftphoneSettings(token="given-token"))
    page.port = 8780
    print_softphone(page, open_it=True)
    for thread in threading.enumerate():
        if thread.name == "browser":
            thread.join(10)
    told = capsys.readouterr()
    assert told.out.strip() == opened[0] == "http://127.0.0.1:8780/#token=given-token"
    assert "█" not in told.err
    assert "--host" in told.err
    assert "No browser" in told.err


def test_the_picture_holds_the_whole_address() -> None:
    segno = require_package("segno", "pip install 'mr_qwen3tts[webrtc]'")
    text = "https://192.0.2.7:8780/#token=given-token"
    size = segno.make(text, error="l").symbol_size(border=4)[0]
    lines = [line for line in qr_code(text).splitlines() if line.strip()]
    assert {len(line) for line in lines} == {size}


@pytest.mark.network
async def test_ctrl_c_ends_it_without_a_word_of_trouble(tmp_path: Path) -> None:
    require_package("aiortc", "pip install 'mr_qwen3tts[webrtc]'")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "qwen3tts_cli.main", "softphone", "--port", "0"),
        env={**os.environ, "PYTHONPATH": ":".join(sys.path), "TMPDIR": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            url = (await process.stdout.readline()).decode()
            assert url.startswith("http://127.0.0.1:")
            process.send_signal(signal.SIGINT)
            _, err = await process.communicate()
            assert process.returncode == ExitCode.INTERRUPTED
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert b"Error" not in err
    assert b"Traceback" not in err
    assert list(tmp_path.iterdir()) == []  # its folder of recordings is gone
