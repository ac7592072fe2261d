"""Texts whose token ids must be the official ones."""

# ruff: noqa: RUF001
from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.parity.cases import CHINESE, GERMAN, JAPANESE, LONG, SAID, SHORT

TEXTS = (
    SHORT,
    LONG,
    GERMAN,
    CHINESE,
    JAPANESE,
    SAID,
    "a",
    "A",
    " a",
    "a ",
    "  two  blanks  ",
    "1",
    "12345",
    "3.14159 and 1,000,000.00",
    "٣٤ ५६ Ⅷ ½",
    "it's I'll we'VE they'd I'M you're 'tis 'S",
    "don\u2019t",
    "tab\tand\tmore",
    "line\nline",
    "line\r\nline\r\n\r\nend",
    "ends with newline\n",
    "a \n b",
    "a\n\n\n  b",
    "trailing blanks   ",
    "e\u0301 \u00e9 A\u030a \u212b \u1e9b\u0323",
    "\ufb01ne \uff21\uff22",
    "한국어 한국",
    "किताब ไทยแลนด์ العربية עברית",
    "emoji 😀👍🏽👩‍👩‍👧‍👦🇩🇪 end",
    "\u200b\u200dzero\ufeffwidth",
    "a\u00a0b\u3000c\u2028d",
    "💡" * 9,
    "!?!?...---___***",
    "<b>bold</b> & <|not|> a [token]",
    "x" * 300,
    "https://example.org/a?b=c&d=%20",
    "C:\\path\\file",
    "\U0001d54f\U00020000",
    "\x01\x7f\x85",
    "ﷺ",
    "ÅÄÖ åäö ß ẞ İ ı",
    "Привет, мир!",
    "assistant",
    "user",
    "assistant\nuser",
    "Ġ Ċ ĉ",
    "###  Title ###",
    "\u0301leading mark",
)
"""Special-token spellings are left out (they are plain text to us), and so are leading line breaks,
which the official slice of the chat template cuts wrongly."""


def random_texts(count: int) -> Iterator[str]:
    """Strings of letters, marks, digits, blanks and emoji from all over Unicode."""
    rng = np.random.default_rng(9)
    blocks = [
        (0x20, 0x7E),
        (0xA0, 0x24F),
        (0x300, 0x36F),
        (0x400, 0x4FF),
        (0x600, 0x6FF),
        (0x900, 0x97F),
        (0xE00, 0xE7F),
        (0x1100, 0x11FF),
        (0x2000, 0x206F),
        (0x3040, 0x30FF),
        (0x4E00, 0x9FFF),
        (0xAC00, 0xD7A3),
        (0x1F300, 0x1FAFF),
        (0x30, 0x39),
        (0x09, 0x0D),
    ]
    for _ in range(count):
        letters = [
            chr(int(rng.integers(low, high + 1)))
            for low, high in rng.choice(blocks, size=int(rng.integers(1, 25)))
            for _ in range(int(rng.integers(1, 4)))
        ]
        yield "." + "".join(letters)
