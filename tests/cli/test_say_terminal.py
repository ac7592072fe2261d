"""``say`` and ``call --stdin`` at a real terminal."""

from __future__ import annotations

import wave
from pathlib import Path

import pytest

from qwen3tts_cli.output.keyboard import BY_KEY, BY_LINE
from qwen3tts_phone.phone import Phone
from qwen3tts_server.run import running_server
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
