"""``mr-qwen3tts chat`` as a real process: at a terminal, and in pipes."""

from __future__ import annotations

import asyncio
import os
import pty
import sys
import wave
from pathlib import Path

import av
import pytest

from qwen3tts_cli.chat import ReplySpeaker
from qwen3tts_cli.main import run
from qwen3tts_cli.options.speech import SpeechOptions
from qwen3tts_server.run import running_server
from tests.agent.endpoint import Answer, ChatEndpoint, Waits, says
from tests.engine.fake_engine import FakeEngine

pytestmark = pytest.mark.network

WITHIN_S = 90
ENVIRONMENT = {**os.environ, "PYTHONPATH": ":".join(sys.path), "NO_COLOR": "1"}


def command(url: str, *options: str) -> list[str]:
    said = (*("chat", "--llm", url, "--model", "m", "--check-seconds", "0"), *options)
    return [sys.executable, "-m", "qwen3tts_cli.main", *said]


class Terminal:
    """A program at a terminal of its own."""

    def __init__(self) -> None:
        self._ours, self._theirs = pty.openpty()
        self.text = ""

    async def start(self, arguments: list[str]) -> asyncio.subprocess.Process:
        def at_this_terminal() -> None:
            import fcntl
            import termios

            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        process = await asyncio.create_subprocess_exec(
            *arguments,
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            env=ENVIRONMENT,
            preexec_fn=at_this_terminal,
        )
        os.close(self._theirs)
        return process

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    async def shows(self, text: str) -> None:
        """Wait until this stands there, behind what was waited for before."""
        while text not in self.text:
            try:
                self.text += (await asyncio.to_thread(os.read, self._ours, 4096)).decode()
            except OSError:  # the program has ended
                raise AssertionError(f"{text!r} is not in {self.text!r}") from None
        self.text = self.text.partition(text)[2]


async def test_at_a_terminal_ctrl_c_interrupts_a_reply_and_ctrl_d_ends_the_chat() -> None:
    never = asyncio.Event()
    answers = (Answer(["We open at six", Waits(never), " and close at one."]), says("Yes."))
    terminal = Terminal()
    async with asyncio.timeout(WITHIN_S), ChatEndpoint(*answers) as endpoint:
        process = await terminal.start(command(endpoint.url, "--greeting", "Bakery Miller!"))
        await terminal.shows("Bakery Miller!")
        await terminal.shows("> ")
        terminal.type("When do you open?\n")
        await terminal.shows("We open at six")
        terminal.type("\x03")
        await terminal.shows("Interrupted.")
        terminal.type("On Sunday, too?\n")
        await terminal.shows("Yes.")
        terminal.type("\x04")
        await terminal.shows("The chat has ended: the caller has left.")
        assert await process.wait() == 0
    assert endpoint.requests[1].said[-4:] == [
        *(("assistant", "Bakery Miller!"), ("user", "When do you open?")),
        *(("assistant", "We open at six"), ("user", "On Sunday, too?")),
    ]


async def test_lines_of_a_pipe_are_turns_and_the_replies_are_spoken_into_a_file(
    tmp_path: Path,
) -> None:
    out = tmp_path / "replies.wav"
    answers = (says("At ", "six."), says("Until one."))
    async with asyncio.timeout(WITHIN_S), ChatEndpoint(*answers) as endpoint:
        process = await asyncio.create_subprocess_exec(
            *command(endpoint.url, "--speak", str(out)),
            env=ENVIRONMENT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        told, notes = await process.communicate(b"When do you open?\n\nHow long?\n")
    assert (process.returncode, told.decode()) == (0, "At six.\nUntil one.\n"), notes
    assert endpoint.requests[1].said[:2] == [
        ("user", "When do you open?"),
        ("assistant", "At six."),
    ]
    with wave.open(str(out)) as wav:
        assert wav.getnframes() / wav.getframerate() > 0.5


def test_a_model_that_is_not_there_is_told_before_anything_is_typed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["chat", "--llm", "http://127.0.0.1:1/v1"]) == 3
    error = capsys.readouterr().err
    assert error.count("Error:") == 1
    assert "Type what" not in error


@pytest.mark.parametrize(
    ("name", "told"), [("missing/replies.wav", "mkdir -p"), ("replies.txt", ".flac")]
)
def test_a_file_that_cannot_be_written_is_told_at_once(
    name: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    assert run(["chat", "--llm", "http://127.0.0.1:1/v1", "--speak", str(path)]) == 2
    error = capsys.readouterr().err
    assert "--speak" in error
    assert told in error


async def test_what_is_said_is_written_in_the_form_of_the_ending(tmp_path: Path) -> None:
    path = tmp_path / "replies.mp3"
    async with running_server(FakeEngine()) as server:
        replies = ReplySpeaker(path, SpeechOptions(), server.url)
        replies.put("At six.")
        replies.end()
        await replies.run()
    with av.open(str(path)) as container:
        assert container.format.name == "mp3"
