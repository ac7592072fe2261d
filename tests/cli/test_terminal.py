"""``say`` and ``serve`` at a terminal."""

from __future__ import annotations

import wave
from pathlib import Path

import pytest

from qwen3tts_cli.main import run
from qwen3tts_cli.output.keyboard import BY_KEY, BY_LINE
from qwen3tts_cli.serving import voice_line
from qwen3tts_engine.base import Voice
from qwen3tts_phone.phone import Phone
from qwen3tts_server.run import running_server
from qwen3tts_wire.client import SpeechClient
from tests.cli.terminal import Terminal, at_terminal
from tests.engine.fake_engine import FakeEngine

pytestmark = pytest.mark.network


def bar_was_drawn(terminal: Terminal) -> bool:
    """Whether something was drawn in place: a bar, or a line that was wiped."""
    return "━" in terminal.raw or "of speech" in terminal.raw


async def test_a_person_who_types_sees_how_to_end_and_no_bar(tmp_path: Path) -> None:
    out = tmp_path / "typed.wav"
    async with (
        running_server(FakeEngine()) as server,
        at_terminal("say", "-", "--out", str(out), "--server", server.url) as terminal,
    ):
        await terminal.until(f"{BY_LINE}\n> ")
        terminal.type("Good morning.\n")
        await terminal.until("> Good morning.\n> ")
        terminal.type("How are you?\n")
        await terminal.until("> How are you?\n> ")
        terminal.type("\x04")
        assert await terminal.ended() == 0
        assert not bar_was_drawn(terminal)
        assert terminal.shown.splitlines()[-1].endswith("at 24000 Hz.")
    with wave.open(str(out)) as wav:
        assert wav.getnframes() > 24_000 // 4


async def test_text_on_the_command_line_has_its_bar(tmp_path: Path) -> None:
    async with (
        running_server(FakeEngine()) as server,
        at_terminal(
            *("say", "Good morning.", "--out", str(tmp_path / "f.wav")), *("--server", server.url)
        ) as terminal,
    ):
        assert await terminal.ended() == 0
        assert bar_was_drawn(terminal)
        assert BY_LINE not in terminal.shown


@pytest.mark.parametrize(("option", "told"), [((), f"{BY_LINE}\n> "), (("--by-key",), BY_KEY)])
async def test_a_caller_who_types_sees_how_to_end(option: tuple[str, ...], told: str) -> None:
    async with (
        running_server(FakeEngine()) as server,
        at_terminal(
            *("answer", "--port", "0", "--stdin", "--server", server.url), width=160
        ) as far_end,
    ):
        await far_end.until("Waiting for calls at sip:")
        (line,) = [each for each in far_end.shown.splitlines() if "Waiting for calls at" in each]
        uri = line.rpartition(" ")[2].rstrip(".")
        async with at_terminal(
            *("call", uri, "--stdin", "--server", server.url, *option), width=160
        ) as terminal:
            await terminal.until(told)
            assert "\nCalling …\n" in f"\n{terminal.shown}", "it is drawn over what is typed"
            terminal.type("Good morning.\n")
            await terminal.until("Good morning.")
            terminal.type("\x04")
            assert await terminal.ended() == 0
            assert not bar_was_drawn(terminal)


async def test_what_is_told_meanwhile_has_its_own_line_and_the_prompt_comes_again() -> None:
    async with (
        running_server(FakeEngine()) as server,
        Phone(server_url=server.url, announce=None) as far,
        at_terminal("call", far.uri, "--stdin", "--server", server.url, width=160) as terminal,
    ):
        call = await anext(far.incoming())
        await call.answer()
        await terminal.until(f"{BY_LINE}\n> ")
        await call.send_dtmf("7", duration_ms=80)
        await terminal.until("> \nkey 7\n> ")
        terminal.type("\x04")
        assert await terminal.ended() != 0, "nothing was said"


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
        await terminal.until("Ctrl-C again stops immediately.")
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
