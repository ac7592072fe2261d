"""A speech server as a person starts and stops it."""

from __future__ import annotations

from pathlib import Path

import pytest

from qwen3tts_cli.main import run
from qwen3tts_cli.serving import voice_line
from qwen3tts_engine.base import Voice
from qwen3tts_wire.client import SpeechClient
from tests.cli.terminal import at_terminal

pytestmark = pytest.mark.network
SERVE = ("serve", "--port", "0", "--engine", "embedded", "--workers", "1")


async def test_a_start_is_three_lines_and_ctrl_c_ends_it_with_0() -> None:
    async with at_terminal(*SERVE) as terminal:
        await terminal.until("Ctrl-C stops it")
        lines = [line for line in terminal.shown.splitlines() if line.strip()]
        # The line that showed progress has been wiped.
        url, voice, stop = [line for line in lines if "Starting the voice" not in line]
        assert url.startswith("ws://127.0.0.1:")
        assert voice.startswith("Engine: eSpeak NG")
        assert "voice: en-us+f3" in voice
        assert stop == "Ctrl-C stops it after finishing active speech."
        terminal.type("\x03")
        assert await terminal.ended() == 0
        assert "Traceback" not in terminal.shown


async def test_a_checkpoints_start_is_three_lines_too(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tests.tiny_models.checkpoint import make_tiny

    model = str(make_tiny(tmp_path)["custom_voice"])
    async with at_terminal("serve", "--port", "0", "--engine", "qwen3", "--model", model) as one:
        await one.until("Ctrl-C stops it")
        told = one.shown[one.shown.index("ws://") :].splitlines()
        assert len([line for line in told if line.strip()]) == 3, told
        one.type("\x03")
        assert await one.ended() == 0


async def test_a_second_ctrl_c_ends_what_is_being_said_with_130() -> None:
    async with at_terminal(*SERVE) as terminal:
        await terminal.until("Ctrl-C stops it")
        (url,) = [line for line in terminal.shown.splitlines() if line.startswith("ws://")]
        client = await SpeechClient.connect(url)
        context = await client.open()
        await context.append("Good morning to all of you. ")
        await anext(aiter(context))
        terminal.type("\x03")
        await terminal.until("Ctrl-C again ends it immediately.")
        terminal.type("\x03")
        assert await terminal.ended() == 130
        assert "Traceback" not in terminal.shown
        await client.close()


async def test_whom_it_waits_for_is_said_before_it_waits() -> None:
    async with at_terminal("serve", "--port", "0", "--upstream", "http://127.0.0.1:9/v1") as one:
        await one.until("Waiting up to 30 s for the speech server at http://127.0.0.1:9/v1 …")
        one.type("\x03")
        assert await one.ended() == 130


@pytest.mark.parametrize(
    "arguments",
    [
        (*SERVE, "--show-settings"),
        (*SERVE, "--log-level", "debug"),
        ("--log-level", "debug", *SERVE),
    ],
    ids=" ".join,
)
async def test_the_settings_are_shown_where_they_are_asked_for(arguments: tuple[str, ...]) -> None:
    async with at_terminal(*arguments) as terminal:
        await terminal.until("Ctrl-C stops it")
        assert '"drain_timeout_s"' in terminal.shown
        terminal.type("\x03")
        assert await terminal.ended() == 0


def test_the_voice_that_speaks_is_named() -> None:
    voices = (Voice("joe", "Joe", "en-US"), Voice("de", "German", "de"))
    assert voice_line("Piper", voices) == "Engine: Piper; voice: joe (Joe), one of 2."
    alone = voice_line("Piper", voices[:1])
    assert alone == "Engine: Piper; voice: joe (Joe)."
    assert "no voice yet" in voice_line("Base", ())


def test_a_wrong_setting_prints_no_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--show-settings", "--set", "server.prot=1"]) == 2
    assert "drain_timeout_s" not in capsys.readouterr().err
