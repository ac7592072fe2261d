"""What a long start is doing, for the person who waits for it."""

from __future__ import annotations

from rich.status import Status

from qwen3tts_cli.output import note, notes


class Stages:
    """Shows each stage: in place at a terminal, else a line for each. Any thread may call it."""

    def __init__(self, status: Status, *, in_place: bool | None = None) -> None:
        """``in_place`` None: as standard error is a terminal."""
        self._status = status
        self._in_place = notes().is_terminal if in_place is None else in_place
        self._last = ""

    def __call__(self, what: str, done: int, of: int) -> None:
        """``done`` of ``of`` parts of ``what`` are done."""
        what = what[:1].upper() + what[1:]
        if self._in_place:
            self._status.update(f"{what} … {done} of {of}" if of > 1 else f"{what} …")
        elif what != self._last:
            note(f"{what} …")
        self._last = what

    def stop(self) -> None:
        """It has started."""
        self._status.stop()
