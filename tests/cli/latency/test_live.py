from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from qwen3tts_speech.latency import LatencyLog
from tests.cli.latency.synthetic import Made, made_log, made_records

WITHIN_S = 60.0
"""A machine under load starts slowly; nobody waits so long where all is well."""
LATER = Made(utterances=1, seed=5, calls=1)


class Shown:
    """What a process says, as it says it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.text = ""

    def until(self, part: str) -> None:
        """Read until this was said; fails where it ends before, or takes too long."""
        end = time.monotonic() + WITHIN_S
        while part not in self.text:
            left = end - time.monotonic()
            assert left > 0, f"{part!r} was never said: {self.text!r}"
            if select.select([self._descriptor], [], [], left)[0]:
                assert self.more(), f"{part!r} was never said: {self.text!r}"

    def more(self) -> bool:
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:  # the terminal's other end was closed
            return False
        self.text += data.decode("utf-8", "replace")
        return bool(data)


class Terminal:
    """A process at a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self.descriptor, inner = pty.openpty()
        termios.tcsetwinsize(inner, (40, 120))
        self.modes = termios.tcgetattr(self.descriptor)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "qwen3tts_cli.main", "latency", *arguments],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env={"PYTHONPATH": ":".join(sys.path), "TERM": "xterm-256color"},
            start_new_session=True,
        )
        os.close(inner)
        self.shown = Shown(self.descriptor)

    def press(self, key: bytes) -> None:
        os.write(self.descriptor, key)

    def code(self) -> int:
        while self.shown.more():
            pass
        return self.process.wait(WITHIN_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.descriptor)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return made_log(tmp_path / "calls.jsonl", Made(utterances=12, calls=2))


@pytest.fixture
def terminal(log: Path) -> Iterator[Terminal]:
    made = Terminal(str(log), "--follow")
    yield made
    made.close()


def add(log: Path, context: str) -> None:
    with LatencyLog(log) as writer:
        for record in made_records(LATER):
            record.context = context
            writer.append(record)


def test_the_screen_shows_what_is_added_until_q(terminal: Terminal, log: Path) -> None:
    terminal.shown.until("12 utterances")
    terminal.shown.until("call-0001/11")
    add(log, "the-new-one")
    terminal.shown.until("13 utterances")
    terminal.shown.until("the-new-one")
    terminal.press(b"q")
    assert terminal.code() == 0
    assert termios.tcgetattr(terminal.descriptor) == terminal.modes
    # The screen is left, and the figures stay behind.
    assert "13 utterances" in terminal.shown.text.rpartition("\x1b[?1049l")[2]


def test_other_keys_and_arrows_do_not_end_it(terminal: Terminal, log: Path) -> None:
    terminal.shown.until("12 utterances")
    terminal.press(b"x\x1b[A")
    add(log, "still-here")
    terminal.shown.until("still-here")
    terminal.press(b"q")
    assert terminal.code() == 0


def test_a_signal_ends_it_and_the_terminal_is_as_before(terminal: Terminal) -> None:
    terminal.shown.until("12 utterances")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.code() == 130
    assert termios.tcgetattr(terminal.descriptor) == terminal.modes


def test_a_pipe_gets_the_last_ones_and_then_each_as_it_comes(log: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "qwen3tts_cli.main", "latency", str(log), "-f"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PYTHONPATH": ":".join(sys.path)},
    ) as process:
        assert process.stdout is not None
        shown = Shown(process.stdout.fileno())
        shown.until("call-0001/11")
        assert len(shown.text.splitlines()) == 10
        add(log, "the-new-one")
        shown.until("the-new-one")
        process.send_signal(signal.SIGINT)
        assert process.wait(WITHIN_S) == 130


def test_what_is_piped_in_is_told_until_it_ends(log: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "qwen3tts_cli.main", "latency", "-", "--follow"],
        input=log.read_bytes(),
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        check=True,
        timeout=WITHIN_S,
    )
    assert len(done.stdout.splitlines()) == 10
    assert not done.stderr
