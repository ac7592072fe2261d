"""Written text to text that can be spoken: Markdown, HTML, emoji and controls removed.

===================================  ==============================================================
``# Title``, ``> quote``, ``- item``  the mark is dropped, the line stands alone
``**bold**``, ``_it_``, ``~~x~~``     the marks are dropped; ``3 * 4`` becomes ``3 × 4``
``[text](url)``, ``![alt](url)``      the text
``[^1]``, ``word[12]``                dropped (notes and citations)
```` ``` ```` blocks                  dropped, or spoken with ``speak_code``; ```code``` is spoken
``| a | b |``                         ``a, b``; the row of dashes is dropped
``<b>``, ``<br>``, ``&amp;``          dropped, a line break, ``&``; ``<https://…>`` is spoken
emoji, ``:-)``, symbols, controls     dropped; they part words as a space does
half a surrogate pair                 dropped; two halves that meet are the character they encode
===================================  ==============================================================
"""

# Look-alike characters are meant.
# ruff: noqa: RUF001, RUF002

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from qwen3tts_text import markup
from qwen3tts_text.characters import WHITE_SPACE, Voiced, is_cjk, voiced
from qwen3tts_text.markdown import MarkdownReader

Sink = Callable[[str, int, int], None]
"""Takes one spoken character and the span of the original that it stands for."""

REPEATS_MAX = 3
"""Marks of one kind in a row that are kept; ``!!!!!!`` says no more than ``!!!``."""
WRAPPED_MIN = 50
"""Letters after which a line was broken because it was full, not because it was over."""
LINK_MAX = 2048
"""Characters after which ``](`` was no link."""
_CLOSING = frozenset(".,;:!?…)")


class SpokenWriter:
    """Writer to ``sink``, with one space where words part.

    A line's end is a newline where the line stands alone, and a space where the sentence goes on in
    the next line (which begins with a small letter, or the line was full).
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.fresh = True
        """True if nothing was spoken on this line yet."""
        self.last = ""
        """The last character, white space apart."""
        self._repeats = 0
        self._previous = ""
        # What is pending before the next character: where it began, or -1.
        self._space = -1
        self._gap = -1
        self._cell = -1
        self._newlines = 0
        self._firm = False
        self._alone = False
        self._length = 0
        self._wrapped = False

    @property
    def spaced(self) -> bool:
        return self._space >= 0

    def say(self, char: str, at: int, end: int) -> None:
        if "\U0001d400" <= char <= "\U0001d7ff":
            char = unicodedata.normalize("NFKC", char)  # letters dressed up as mathematics
        self._previous = char
        if char == self.last and not char.isalnum() and self._space < 0:
            self._repeats += 1
            if self._repeats > REPEATS_MAX:
                return
        else:
            self._repeats = 1
        if self.last:
            if self._newlines and (self._firm or not (self._wrapped or char.islower())):
                self._sink("\n", self._space, self._space + 1)
            elif self._cell >= 0:
                self._sink(",", self._cell, self._cell + 1)
                self._sink(" ", self._cell + 1, self._cell + 1)
            elif self._space >= 0 and not (self._gap >= 0 and char in _CLOSING):
                self._sink(" ", self._space, self._space + 1)
            elif self._gap >= 0 and self.last.isalnum() and _begins_word(char):
                self._sink(" ", self._gap, self._gap + 1)
        self.pause()
        self.fresh = False
        self._length += 1
        self.last = char
        self._sink(char, at, end)

    def take(self, char: str, at: int, end: int) -> None:
        if char in WHITE_SPACE:
            if char == "\n":
                self.newline(at)
            elif self._space < 0:
                self._space = at
            return
        what = voiced(char)
        if char in "\u200c\u200d":
            # Joiners shape letters; elsewhere they join emoji.
            shapes = self._previous == self.last and self.last > "\x7f"
            what = Voiced.KEPT if shapes else Voiced.DROPPED
        if what is Voiced.KEPT:
            self.say(char, at, end)
            return
        self._previous = char
        if what is Voiced.GAP:
            self.gap(at)

    def gap(self, at: int) -> None:
        if self._gap < 0:
            self._gap = at

    def cell(self, at: int) -> None:
        self._cell = at

    def newline(self, at: int, *, firm: bool = False) -> None:
        """End the line; an empty line, or ``firm``, parts the text."""
        self._newlines += 1
        self._firm = self._firm or firm or self._newlines > 1 or self._alone
        self._alone = False
        self._wrapped = self._length >= WRAPPED_MIN
        self._length = 0
        self.fresh = True
        self._cell = -1
        if self._space < 0:
            self._space = at

    def stand_alone(self) -> None:
        self._firm = True
        self._alone = True

    def pause(self) -> None:
        self._space = self._gap = self._cell = -1
        self._newlines = 0
        self._firm = False


class Speakable(MarkdownReader):
    """Feeds ``sink`` with spoken text; a newline is a firm break."""

    plain = re.compile(r"[^\\`*_~<\[\]!&\n|:;]+")
    rule = re.compile(r"(?!~~~)(?:([-*_=~])\1*[ \t]*|\|[-|: \t]*)")
    quote = re.compile(r">{1,3}(?=\s|\Z)")
    bullet = re.compile(r"[-*+](?=\s|\Z)|[•◦▪‣⁃∙●○]")
    tag = markup.BROAD_TAG
    autolink = markup.BROAD_AUTOLINK
    open_tag = markup.BROAD_OPEN_TAG
    line_ends = "\r\n"

    def __init__(self, sink: Sink, *, speak_code: bool = False) -> None:
        super().__init__()
        self._spoken = SpokenWriter(sink)
        self._speak_code = speak_code
        # Of the line:
        self._table = False
        self._star_open = False
        self._brackets = 0
        self._label_ended = False
        """True if the ``]`` of a text that may be a link's was read last."""

    @property
    def _info(self) -> re.Pattern[str]:
        return markup.BROAD_INFO if self._spoken.fresh else markup.INFO

    @property
    def _tildes_fence(self) -> bool:
        return self._spoken.fresh

    @property
    def _opens_at_end(self) -> bool:
        return self._spoken.fresh

    def feed(self, text: str) -> None:
        self._push(text)

    def flush(self) -> None:
        self._end()
        self._spoken.pause()

    # --- writing

    def _write(self, words: str, count: int) -> bool:
        edges, at, spoken = self._edges, self._at, self._spoken
        if len(words) == count:
            for index, char in enumerate(words, at):
                if char.isalnum():
                    spoken.say(char, edges[index], edges[index + 1])
                else:
                    spoken.take(char, edges[index], edges[index + 1])
        else:  # an entity
            for char in words:
                spoken.take(char, edges[at], edges[at + count])
        return self._drop(count)

    def _drop(self, count: int) -> bool:
        # Marks of a line may follow on others as long as nothing was spoken on it.
        if count and not self._fence:
            self._line_start = self._spoken.fresh
        return super()._drop(count)

    def _write_code(self, count: int) -> bool:
        if self._speak_code:
            for index in range(self._at, self._at + count):
                self._spoken.take(self._text[index], self._edges[index], self._edges[index + 1])
        return self._drop(count)

    def _write_line_end(self, count: int, *, firm: bool) -> bool:
        self._spoken.newline(self._edges[self._at], firm=firm)
        if self._text[self._at] == "\n":
            self._table = self._star_open = self._label_ended = False
            self._brackets = 0
        return self._drop(count)

    def _is_rule(self, marks: str) -> bool:
        return marks[0] == "|" or len(marks.rstrip()) > 1

    def _drop_rule(self, count: int) -> bool:
        if "|" in self._text[self._at : self._at + count]:
            self._spoken.stand_alone()
            self._table = True
        return self._drop(count)

    def _drop_indent(self, count: int) -> bool:
        return self._write(self._text[self._at : self._at + count], count)

    def _stand_alone(self) -> None:
        self._spoken.stand_alone()

    def _part(self, count: int) -> bool:
        self._spoken.gap(self._edges[self._at])
        return self._drop(count)

    # --- reading

    def _read_inline(self) -> bool:
        text, at = self._text, self._at
        if self._label_ended:
            self._label_ended = False
            return self._read_target()
        if found := self.plain.match(text, at):
            # One by one until a character is spoken: marks of the line may follow.
            words = text[at] if self._spoken.fresh else found[0]
            return self._write(words, len(words))
        match text[at]:
            case "\n":
                return self._read_line_end()
            case "*" | "_" as mark:
                return self._read_marks(mark)
            case "`":
                return self._begin_code("`")
            case "<":
                return self._read_tag()
            case "!":
                return self._read_image()
            case "[":
                return self._read_opening()
            case "]":
                return self._read_closing()
            case "&":
                return self._read_entity()
            case "~":
                return self._read_strike()
            case "|":
                return self._read_cell()
            case ":" | ";":
                return self._read_face()
            case _:
                return self._read_escape()

    def _read_marks(self, mark: str) -> bool:
        end = self._end_of(mark, self._at)
        if not self._sees(end):
            return False
        count = end - self._at
        after = self._text[end] if end < len(self._text) else ""
        spoken = self._spoken
        apart, spaced = spoken.spaced, not after or after in WHITE_SPACE
        if mark == "_":
            kept = spoken.last.isalnum() and not apart and after.isalnum()
            return self._write(mark * count, count) if kept else self._drop(count)
        number = spoken.last.isdigit()
        if (
            count == 1
            and not self._star_open
            and number
            and (after.isdigit() or (apart and spaced))
        ):
            spoken.say("×", self._edges[self._at], self._edges[end])
        elif count == 1 and apart and spaced and after:
            return self._write("*", 1)
        else:
            self._star_open = not spaced and (apart or not spoken.last.isalnum())
            if number and after.isdigit():
                return self._part(count)
        return self._drop(count)

    def _read_image(self) -> bool:
        if not self._sees(self._at + 1):
            return False
        image = self._text[self._at + 1 : self._at + 2] == "["
        return self._drop(1) if image else self._write("!", 1)

    def _read_opening(self) -> bool:
        text, at, spoken = self._text, self._at, self._spoken
        if not self._sees(at + 1):
            return False
        first = text[at + 1 : at + 2]
        attached = not spoken.spaced and spoken.last != "" and not spoken.fresh
        box = spoken.fresh and first in (" ", "x", "X")
        if first == "^" or (first.isdigit() and attached) or box:
            if note := markup.NOTE.match(text, at):
                if not self._sees(note.end()):
                    return False
                defines = spoken.fresh and text[note.end() : note.end() + 1] == ":"
                return self._drop(len(note[0]) + defines)
            if self._awaits(at + markup.NOTE_MAX + 2, markup.OPEN_NOTE, at):
                return False
        self._brackets += 1
        return self._part(1)

    def _read_closing(self) -> bool:
        if not self._brackets:
            return self._write("]", 1)
        self._brackets -= 1
        self._label_ended = True
        self._closing_at = self._edges[self._at]
        return self._drop(1)

    def _read_target(self) -> bool:
        text, at = self._text, self._at
        if text[at] == "(":
            if target := markup.TARGET.match(text, at, at + LINK_MAX):
                return self._drop(target.end() - at)
            if self._last and markup.OPEN_TARGET.fullmatch(text, at):
                self._target = True
                return self._drop(len(text) - at)
            if self._awaits(at + LINK_MAX, markup.OPEN_TARGET, at):
                self._label_ended = True
                return False
            self._spoken.gap(self._edges[at])
            return self._write("(", 1)
        self._spoken.gap(self._closing_at)
        return True

    def _read_cell(self) -> bool:
        if self._spoken.fresh and not self._table:
            self._spoken.stand_alone()
            self._table = True
        elif self._table:
            self._spoken.cell(self._edges[self._at])
        else:
            return self._write("|", 1)
        return self._drop(1)

    def _read_face(self) -> bool:
        text, at = self._text, self._at
        if self._spoken.spaced or self._before in " \t":  # the space of a bullet is dropped
            if face := markup.FACE.match(text, at):
                if not self._sees(face.end()):
                    return False
                if markup.FACE.match(text, at):
                    return self._part(len(face[0]))
            if not self._last and markup.OPEN_FACE.fullmatch(text, at):
                return False
        return self._write(text[at], 1)

    def _read_escape(self) -> bool:
        at_end = self._last and self._at + 1 == len(self._text)
        return self._write("\\", 1) if at_end else super()._read_escape()


def _begins_word(char: str) -> bool:
    return (char.isalnum() and not is_cjk(char)) or char == "("
