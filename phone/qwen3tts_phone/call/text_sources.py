"""Sources of text to speak: iterators of deltas without half characters."""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from qwen3tts_text.surrogates import clean
from qwen3tts_wire.errors import BadText, LimitExceeded

if TYPE_CHECKING:
    from qwen3tts_pacer.clock import Clock

MAX_CHARS = 1_000_000
"""A file longer than this is refused: it would be spoken for about 18 hours."""
READ_BYTES = 4096
STDIN = "standard input"
END_OF_TRANSMISSION = b"\x04"
"""Ctrl-D of a terminal in single-key mode."""


_TOKEN = re.compile(r"\s*\w{1,6}|\s*[^\w\s]|\s+")
"""Pieces about as long as a model's tokens: a word or part of it with the space before it."""


class Utf8Reader:
    """Incremental UTF-8 decoder; errors name the byte (pure)."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._offset = 0
        self._first = True

    def push(self, data: bytes, *, final: bool = False) -> str:
        """Return the characters that are complete. Raises BadText."""
        pending = len(self._decoder.getstate()[0])
        try:
            text = self._decoder.decode(data, final)
        except UnicodeDecodeError as error:
            raise self._refusal(self._offset - pending + error.start, data) from None
        nul = data.find(0)
        if nul >= 0:
            raise self._refusal(self._offset + nul, data)
        self._offset += len(data)
        if self._first and text:
            self._first = False
            text = text.removeprefix("\ufeff")
        return text

    def _refusal(self, offset: int, data: bytes) -> BadText:
        start = data[:2] if self._offset == 0 else b""
        if start in (b"\xff\xfe", b"\xfe\xff"):
            return BadText(f"{self._name} is UTF-16 text.", remedy="Save it as UTF-8.")
        return BadText(
            f"{self._name} is not UTF-8 text: see byte {offset}.",
            remedy="Give a text file in UTF-8; for another encoding: iconv -f ENCODING -t UTF-8.",
        )


async def from_text(text: str) -> AsyncIterator[str]:
    """Yield a text as one delta. Raises BadText if empty."""
    if not text.strip():
        raise BadText("The text is empty.", remedy="Give some words to say.")
    yield clean(text)


async def from_file(
    path: str | os.PathLike[str], *, max_chars: int = MAX_CHARS
) -> AsyncIterator[str]:
    """Yield the text of a file in pieces. Raises as `file_texts`."""
    for text in file_texts(path, max_chars=max_chars):
        yield text


def file_texts(path: str | os.PathLike[str], *, max_chars: int = MAX_CHARS) -> Iterator[str]:
    """Yield the text of a file in pieces.

    Raises:
        BadText: it is empty, unreadable or not UTF-8.
        LimitExceeded: it is longer than ``max_chars``; the file's size is checked first.
    """
    name = str(path)
    with _open_text(Path(path), max_chars) as file:
        reader = Utf8Reader(name)
        chars = 0
        while data := _read(name, file.fileno()):
            text = reader.push(data)
            chars += len(text)
            if chars > max_chars:
                raise _too_long(name, max_chars)
            if text:
                yield text
        if text := reader.push(b"", final=True):
            yield text
        if not chars:
            raise BadText(f"{name} is empty.", remedy="Give a file with some words in it.")


def _open_text(path: Path, max_chars: int) -> FileIO:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            # Opening a pipe or a device may wait for ever.
            raise BadText(f"{path} is not a regular file.", remedy="Pipe it in as standard input.")
        # One character is at most four bytes.
        if status.st_size > 4 * max_chars:
            raise _too_long(str(path), max_chars)
        return FileIO(path)
    except OSError as error:
        raise _unreadable(str(path), error) from None


def _read(name: str, fd: int) -> bytes:
    try:
        return os.read(fd, READ_BYTES)
    except OSError as error:
        raise _unreadable(name, error) from None


def _unreadable(name: str, error: OSError) -> BadText:
    return BadText(
        f"{name} cannot be read: {error.strerror or error}.",
        remedy="Check name and rights.",
    )


def _too_long(name: str, max_chars: int) -> LimitExceeded:
    return LimitExceeded(
        f"{name} is longer than {max_chars} characters.", remedy="Split it and say it in parts."
    )


async def from_stdin(
    fd: int | None = None,
    *,
    by_key: bool = False,
    on_ready: Callable[[], None] = lambda: None,
) -> AsyncIterator[str]:
    """Yield typed or piped text until the end of file (Ctrl-D).

    ``by_key``: a terminal hands over each key instead of lines. Nothing is read ahead of speech
    (backpressure on a pipe's writer). ``on_ready`` is called when input is accepted.

    Raises BadText for text that is not UTF-8; what came before is already spoken.
    """
    if fd is None:
        fd = sys.stdin.fileno()
    with ExitStack() as stack:
        keys = by_key and os.isatty(fd)
        if keys:
            stack.enter_context(_key_by_key(fd))
        on_ready()
        reader = Utf8Reader(STDIN)
        while data := await _read_when_ready(fd):
            ended = keys and END_OF_TRANSMISSION in data
            if ended:
                data = data[: data.index(END_OF_TRANSMISSION)]
            if text := reader.push(data):
                yield text
            if ended:
                break
        if text := reader.push(b"", final=True):
            yield text


def _key_by_key(fd: int) -> ExitStack:
    import termios

    before = termios.tcgetattr(fd)
    mode = [*before[:3], before[3] & ~termios.ICANON, *before[4:]]  # still echoed
    mode[6] = [*before[6]]
    mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
    termios.tcsetattr(fd, termios.TCSADRAIN, mode)  # what was typed ahead is kept
    stack = ExitStack()
    stack.callback(termios.tcsetattr, fd, termios.TCSADRAIN, before)
    return stack


# The shell and a terminal's output share the descriptor's mode, so it stays blocking; a reading
# thread would keep the program from ending.
async def _read_when_ready(fd: int) -> bytes:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(fd, ready.set)
    except PermissionError:
        return _read(STDIN, fd)  # a regular file or /dev/null: it never waits
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)
    return _read(STDIN, fd)


def tokens(text: str) -> list[str]:
    return _TOKEN.findall(text)


async def scripted(text: str, clock: Clock, *, ms_per_token: float = 20.0) -> AsyncIterator[str]:
    """Yield tokens, one every ``ms_per_token``, without accumulating lateness."""
    if not text.strip():
        raise BadText("The text is empty.", remedy="Give some words to say.")
    origin = clock.now()
    for number, token in enumerate(tokens(clean(text)), start=1):
        await clock.sleep_until(origin + number * ms_per_token / 1000)
        yield token
