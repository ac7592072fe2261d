"""Incremental Markdown and HTML stripper: one reader, two writers.

`MarkdownReader` recognises markup in a growing text, however it is cut. `plain_text.PlainText`
writes the rest as it stands, `speakable.Speakable` as it is spoken. Their patterns differ: plain
text must keep what only looks like markup, speech drops what cannot be spoken.
"""

from __future__ import annotations

import html
import re
from html.entities import html5

from qwen3tts_text import markup
from qwen3tts_text.markup import FENCE, HOLD
from qwen3tts_text.surrogates import WholeCharacters

SLICE = 4096
"""Characters that are read in one go, so that what is cut off the front is short."""


class MarkdownReader:
    """Reader of markup; subclasses write the rest.

    A possible beginning of markup is held back, within bounds. Each ``_read`` method moves on, or
    returns False where it must see more.
    """

    plain = re.compile(r"(?:[^\\`*_~<\[!&\n]|!(?!\[|\Z))+")
    """Text with which markup does not begin."""
    rule = re.compile(r"[-*_=|:][-*_=|: \t]*")
    """A line of these separates parts, or the head of a table from its rows."""
    quote = re.compile(r">")
    bullet = re.compile(r"[-+*•‣◦▪](?=\s|\Z)")
    tag = markup.TAG
    autolink = markup.AUTOLINK
    open_tag = markup.OPEN_TAG
    line_ends = "\n"

    def __init__(self) -> None:
        self._whole = WholeCharacters()
        self._text = ""
        """Characters held back."""
        self._edges = [0]
        """Position of each of them in the original text, and of their end."""
        self._at = 0
        """Up to where they are read."""
        self._last = False
        """True if nothing follows."""
        self._before = "\n"
        """The last character that was read."""
        self._line_start = True
        self._code = 0
        """Backticks that began the code being read."""
        self._fence = ""
        """Marks that fenced the block of code being read."""
        self._target = False
        """True if the rest of a link's address is being left out."""

    @property
    def position(self) -> int:
        return self._whole.position

    @property
    def held(self) -> int:
        return len(self._text)

    @property
    def _info(self) -> re.Pattern[str]:
        return markup.INFO

    @property
    def _tildes_fence(self) -> bool:
        return False

    @property
    def _opens_at_end(self) -> bool:
        return False

    # --- what the writers decide

    def _is_rule(self, marks: str) -> bool:
        return sum(map(marks.count, "-*_=")) >= FENCE

    def _write(self, words: str, count: int) -> bool:
        raise NotImplementedError

    def _write_code(self, count: int) -> bool:
        raise NotImplementedError

    def _write_line_end(self, count: int, *, firm: bool) -> bool:
        raise NotImplementedError

    def _drop_rule(self, count: int) -> bool:
        raise NotImplementedError

    def _drop_indent(self, count: int) -> bool:
        raise NotImplementedError

    def _stand_alone(self) -> None:
        """Part this line: a heading, an item, a block of code."""

    def _read_inline(self) -> bool:
        raise NotImplementedError

    # --- reading

    def _push(self, piece: str) -> None:
        for start in range(0, len(piece), SLICE):
            self._hold(*self._whole.push(piece[start : start + SLICE]))
            self._read()

    def _end(self) -> None:
        self._hold(*self._whole.flush())
        self._last = True
        self._read()
        self._last = False

    def _hold(self, chars: str, edges: list[int]) -> None:
        self._text += chars
        self._edges[-1:] = edges

    def _read(self) -> None:
        while self._at < len(self._text) and self._step():
            pass
        self._text = self._text[self._at :]
        del self._edges[: self._at]
        self._at = 0

    def _step(self) -> bool:
        if self._target:
            return self._leave_target()
        if self._fence:
            return self._read_fence()
        if self._code:
            return self._read_code()
        if self._line_start:
            return self._read_line_start()
        return self._read_inline()

    def _drop(self, count: int) -> bool:
        if count:
            self._at += count
            self._before = self._text[self._at - 1]
        return True

    def _awaits(self, end: int, open_markup: re.Pattern[str], start: int) -> bool:
        text = self._text
        return not self._last and len(text) < end and bool(open_markup.fullmatch(text, start))

    def _sees(self, end: int) -> bool:
        return self._last or end < len(self._text)

    def _char(self, at: int) -> str:
        return self._text[at] if at < len(self._text) else "\n"

    def _end_of(self, chars: str, start: int) -> int:
        text, end = self._text, start
        most = min(len(text), start + HOLD)
        while end < most and text[end] in chars:
            end += 1
        return end

    # --- lines

    def _read_line_start(self) -> bool:
        text = self._text
        indent = self._end_of(" \t", self._at)
        if not self._sees(indent):
            return False
        if rule := self.rule.match(text, indent, indent + HOLD):
            if not self._sees(rule.end()):
                return False
            if self._is_rule(rule[0]) and self._char(rule.end()) in self.line_ends:
                return self._drop_rule(rule.end() - self._at)
        if heading := markup.HEADING.match(text, indent):
            if not self._sees(heading.end()):
                return False
            if len(heading[0]) < 7 and self._char(heading.end()).isspace():
                self._stand_alone()
                return self._drop(heading.end() - self._at)
        elif self.bullet.match(text, indent):
            if not self._sees(indent + 1):
                return False
            if bullet := self.bullet.match(text, indent):
                return self._read_bullet(bullet.end())
        elif quote := self.quote.match(text, indent):
            if not self._sees(quote.end()):
                return False
            if quote := self.quote.match(text, indent):
                return self._drop(quote.end() - self._at)
        self._line_start = False
        return self._drop_indent(indent - self._at)

    def _read_bullet(self, bullet: int) -> bool:
        end = self._end_of(" \t", bullet)
        if not self._sees(end) or self._awaits(end + 4, markup.OPEN_BOX, end):
            return False
        if markup.BOX.match(self._text, end):
            end += 3
        self._stand_alone()
        return self._drop(end - self._at)

    def _read_line_end(self) -> bool:
        self._line_start = True
        return self._write_line_end(1, firm=False)

    # --- code

    def _begin_code(self, mark: str) -> bool:
        end = self._end_of(mark, self._at)
        if not self._sees(end):
            return False
        count = end - self._at
        if count >= FENCE:
            info = self._info.match(self._text, end)
            assert info is not None, "it may be empty"
            if not self._sees(info.end()):
                return False
            at_end = info.end() == len(self._text)
            if self._char(info.end()) == "\n" and (self._opens_at_end or not at_end):
                self._fence = mark * count
                self._stand_alone()
                return self._drop(info.end() - self._at)
        if mark == "`":
            self._code = count
        return self._drop(count)

    def _read_fence(self) -> bool:
        text, at = self._text, self._at
        if text[at] == "\n":
            self._line_start = True
            return self._write_line_end(1, firm=True)
        if self._line_start:
            close = re.compile(rf"[ \t]*{self._fence[0]}*[ \t]*").match(text, at, at + HOLD)
            assert close is not None, "it may be empty"
            if not self._sees(close.end()) and close[0].count(self._fence[0]) < HOLD // 2:
                return False
            closes = close[0].count(self._fence[0]) >= len(self._fence)
            if closes and self._char(close.end()) in self.line_ends:
                self._fence = ""
                self._line_start = False
                return self._drop(close.end() - at)
            self._line_start = False
        end = text.find("\n", at)
        return self._write_code((len(text) if end < 0 else end) - at)

    def _read_code(self) -> bool:
        text, at = self._text, self._at
        if text[at] == "\n":
            if self._code < FENCE:
                self._code = 0
                return self._read_line_end()
            return self._write_line_end(1, firm=False)
        if text[at] != "`":
            end = at
            while end < len(text) and text[end] not in "`\n":
                end += 1
            return self._write(text[at:end], end - at)
        end = self._end_of("`", at)
        if not self._sees(end):
            return False
        if end - at >= self._code:
            self._code = 0
        return self._drop(end - at)

    # --- within a line

    def _read_tag(self) -> bool:
        text, at = self._text, self._at
        if tag := self.tag.match(text, at, at + HOLD):
            if markup.BREAK.match(tag[0]):
                return self._write_line_end(len(tag[0]), firm=True)
            return self._drop(len(tag[0]))
        if link := self.autolink.match(text, at, at + HOLD):
            self._drop(link.start(1) - at)
            self._write(link[1], len(link[1]))
            return self._drop(link.end() - link.end(1))
        return not self._awaits(at + HOLD, self.open_tag, at) and self._write("<", 1)

    def _read_entity(self) -> bool:
        text, at = self._text, self._at
        if found := markup.ENTITY.match(text, at):
            entity = found[0]
            words = html.unescape(entity) if entity[1] == "#" else html5.get(entity[1:])
            if words is not None:
                return self._write(words.replace("\xa0", " "), len(entity))
        awaits = not self._last and markup.OPEN_ENTITY.fullmatch(text, at)
        return not awaits and self._write("&", 1)

    def _read_strike(self) -> bool:
        end = self._end_of("~", self._at)
        if not self._sees(end):
            return False
        count = end - self._at
        if count >= FENCE and self._tildes_fence:
            return self._begin_code("~")
        return self._drop(count) if count > 1 else self._write("~", 1)

    def _read_escape(self) -> bool:
        if not self._sees(self._at + 1):
            return False
        after = self._char(self._at + 1)
        if markup.ESCAPED.match(after):
            self._drop(1)
            return self._write(after, 1)
        return self._drop(1) if after == "\n" else self._write("\\", 1)

    def _leave_target(self) -> bool:
        if found := markup.TARGET_REST.match(self._text, self._at):
            return self._drop(len(found[0]))
        self._target = False
        return self._drop(1) if self._text[self._at] == ")" else True
