"""Check of the words of a call: readable, in UTF-8, with something that can be spoken."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from qwen3tts_wire.errors import BadText

if TYPE_CHECKING:
    from qwen3tts_cli.listen_options import ListenOptions
    from qwen3tts_cli.words import Words

READ_BYTES = 64 * 1024


def check_words(words: Words, listening: ListenOptions | None = None) -> None:
    """Refuse words that cannot be spoken; a file is read to its end.

    Standard input is read ahead where it is a file; the text of a pipe or terminal comes later.

    Raises:
        BadText: a text is no UTF-8, a file cannot be read, or there is nothing to speak.
        LimitExceeded: a file is too long.
    """
    if words.text is not None:
        _check_text("--say", words.text)
    if words.file is not None:
        check_file(words.file)
    if words.stdin:
        _check_stdin()
    if words.chat is not None:
        # Instructions are not spoken.
        _check_encoding("--system", words.system)
        _check_encoding("--prompt", words.prompt)
    if listening is not None:
        for option, text in (("--greeting", listening.greeting), ("--filler", listening.filler)):
            if text is not None:
                _check_text(option, text)


def check_file(path: Path) -> None:
    """Read a file of words; raises BadText, LimitExceeded."""
    from qwen3tts_phone.call.text_sources import file_texts

    if not speakable(file_texts(path)):
        raise _nothing_to_speak(str(path))


def speakable(texts: Iterable[str]) -> bool:
    """Return whether a text, given in parts, holds a letter or digit that the server would speak.

    The parts are read to their end. What counts is what the server's reading of Markdown and
    symbols leaves.
    """
    from qwen3tts_text.speakable import Speakable

    found = False

    def take(char: str, _start: int, _end: int) -> None:
        nonlocal found
        found = found or char.isalnum()

    reader = Speakable(take)
    for text in texts:
        for char in text:
            if found:
                break
            reader.feed(char)
    reader.flush()
    return found


def _check_text(option: str, text: str) -> None:
    _check_encoding(option, text)
    if not speakable((text,)):
        raise _nothing_to_speak(option)


def _check_encoding(option: str, text: str) -> None:
    """Refuse bytes of the command line that are no text (PEP 383 keeps them as half surrogates)."""
    for position, char in enumerate(text, start=1):
        if "\udc80" <= char <= "\udcff":
            raise BadText(
                f"{option} is not UTF-8 text: see character {position}.",
                remedy="Use a terminal in UTF-8, or give a file in UTF-8 with --file.",
            )


def _check_stdin() -> None:
    from qwen3tts_phone.call.text_sources import STDIN, Utf8Reader

    try:
        status = os.fstat(0)
        at = os.lseek(0, 0, os.SEEK_CUR) if stat.S_ISREG(status.st_mode) else 0
    except OSError as error:
        raise BadText(
            f"{STDIN} cannot be read: {error.strerror or error}.", remedy="Give --say or --file."
        ) from None
    if stat.S_ISCHR(status.st_mode) and not os.isatty(0) and _is_null(status):
        raise _nothing_to_speak(STDIN)
    if not stat.S_ISREG(status.st_mode):
        return
    reader = Utf8Reader(STDIN)

    def texts() -> Iterable[str]:
        place = at
        while data := os.pread(0, READ_BYTES, place):
            place += len(data)
            yield reader.push(data)
        yield reader.push(b"", final=True)

    if not speakable(texts()):
        raise _nothing_to_speak(STDIN)


def _is_null(status: os.stat_result) -> bool:
    return status.st_rdev == os.stat(os.devnull).st_rdev


def _nothing_to_speak(name: str) -> BadText:
    return BadText(
        f"{name} holds nothing that can be spoken.",
        remedy="Give words: letters or digits, beside marks, symbols and emoji.",
    )
