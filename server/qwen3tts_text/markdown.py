"""Markup out of a text that grows: what is left is what a person would read aloud.

Markdown (emphasis, headings, lists, quotes, rules, code, links, images) and tags of HTML and XML
go; their words stay. What only looks like markup stays: ``3 * 4``, ``snake_case``, ``<3``,
``a < b``, ``[1]``, the underscores of an address.
"""

from __future__ import annotations

import html
import re
from html.entities import html5

from qwen3tts_text import markup
from qwen3tts_text.characters import UNSPACED
from qwen3tts_text.markup import FENCE, HOLD

SLICE = 4096
"""Characters that are read in one go, so that what is cut off the front is short."""
HEAD = 64
"""Characters of a word in which ``://`` is looked for."""
OPENS_AFTER = frozenset("/\\.-:@=#$&%+~^")
"""An underscore after one of these belongs to a name or an address."""
_UNSPACED = re.compile(f"[{UNSPACED}]")


class PlainText:
    """Takes a text in pieces and gives it without markup; how it is cut makes no difference.

    What may be the beginning of markup is held back until it is known: at most `HOLD` characters,
    of a link twice as many.

    >>> plain = PlainText()
    >>> plain.push("It is **ve"), plain.push("ry** warm. [He"), plain.push("re](http://a.b) too. ")
    ('It is ve', 'ry warm. ', 'Here too. ')
    """

    def __init__(self) -> None:
        self._text = ""
        """What is held back."""
        self._at = 0
        """Up to where it is read."""
        self._last = False
        """Whether nothing follows."""
        self._said: list[str] = []
        self._begun = False
        """Whether anything but white space has been given."""
        self._before = "\n"
        """The last character that was read."""
        self._word = ""
        """The beginning of the word that was given last."""
        self._line_start = True
        self._code = 0
        """How many backticks began the code that is being read."""
        self._target = False
        """Whether the rest of a link's address is being left out."""
        self._open = {"*": 0, "_": 0}
        """Marks of emphasis that are open."""

    def push(self, piece: str) -> str:
        """Take some more text; returns what can be said of it."""
        for start in range(0, len(piece), SLICE):
            self._text += piece[start : start + SLICE]
            self._read()
        return self._take()

    def finish(self) -> str:
        self._last = True
        self._read()
        return self._take()

    # --- inside: each reader moves on, or returns False where it must see more

    def _take(self) -> str:
        said = "".join(self._said)
        self._said.clear()
        return said

    def _read(self) -> None:
        while self._at < len(self._text) and self._step():
            pass
        self._text = self._text[self._at :]
        self._at = 0

    def _step(self) -> bool:
        text, at = self._text, self._at
        if self._target:
            return self._leave_target()
        if self._code:
            return self._read_code()
        if self._line_start:
            return self._read_line_start()
        if self._in_address and (found := markup.ADDRESS.match(text, at)):
            return self._say(found[0])
        if found := markup.PLAIN.match(text, at):
            return self._say(found[0])
        match text[at]:
            case "\n":
                return self._read_line_end()
            case "*" | "_" as mark:
                return self._read_emphasis(mark)
            case "`":
                return self._begin_code()
            case "<":
                return self._read_tag()
            case "[" | "!":
                return self._read_link()
            case "&":
                return self._read_entity()
            case "~":
                return self._read_strike()
            case _:
                return self._read_escape()

    def _say(self, words: str, count: int | None = None) -> bool:
        """Give words for the next ``count`` characters, which are themselves if it is None."""
        word = self._word
        self._drop(len(words) if count is None else count)
        if not self._begun:
            words = words.lstrip()
            self._begun = bool(words)
        if words:
            self._said.append(words)
            end = "" if words[-1].isspace() else words.rsplit(None, 1)[-1]
            self._word = (end if len(end) < len(words) else word + end)[:HEAD]
        return True

    def _drop(self, count: int) -> bool:
        if count:
            self._at += count
            self._before = self._text[self._at - 1]
        self._word = ""
        return True

    def _awaits(self, end: int, open_markup: re.Pattern[str], start: int) -> bool:
        """Whether what begins at ``start`` may still become markup that ends before ``end``."""
        text = self._text
        return not self._last and len(text) < end and bool(open_markup.fullmatch(text, start))

    def _sees(self, end: int) -> bool:
        """Whether it is known what stands there."""
        return self._last or end < len(self._text)

    def _char(self, at: int) -> str:
        """What stands there; a line end where the text ends."""
        return self._text[at] if at < len(self._text) else "\n"

    def _end_of(self, chars: str, start: int) -> int:
        """Where a run of these ends, at most `HOLD` characters on."""
        text, end = self._text, start
        most = min(len(text), start + HOLD)
        while end < most and text[end] in chars:
            end += 1
        return end

    @property
    def _in_address(self) -> bool:
        return "://" in self._word or self._word.startswith("www.")

    # --- lines

    def _read_line_end(self) -> bool:
        if self._before == "\n":
            self._open = {"*": 0, "_": 0}  # no emphasis goes on in the next paragraph
        self._line_start = True
        return self._say("\n")

    def _read_line_start(self) -> bool:
        text = self._text
        indent = self._end_of(" \t", self._at)
        if not self._sees(indent):
            return False
        if rule := markup.RULE.match(text, indent, indent + HOLD):
            if not self._sees(rule.end()):
                return False
            marks = sum(rule[0].count(mark) for mark in markup.RULE_MARKS)
            if marks >= FENCE and self._char(rule.end()) == "\n":
                return self._drop(min(rule.end() + 1, len(text)) - self._at)
        if heading := markup.HEADING.match(text, indent):
            if not self._sees(heading.end()):
                return False
            if len(heading[0]) < 7 and self._char(heading.end()).isspace():
                return self._drop(heading.end() - self._at)
        elif self._char(indent) == ">":
            return self._drop(indent + 1 - self._at)
        elif markup.BULLET.match(text, indent):
            if not self._sees(indent + 1):
                return False
            if self._char(indent + 1).isspace():
                return self._read_bullet(indent)
        self._line_start = False
        return self._drop(indent - self._at)

    def _read_bullet(self, bullet: int) -> bool:
        """An item of a list, with its box if it has one; another item may begin in it."""
        end = self._end_of(" \t", bullet + 1)
        if not self._sees(end) or self._awaits(end + 4, markup.OPEN_BOX, end):
            return False
        if markup.BOX.match(self._text, end):
            end += 3
        return self._drop(end - self._at)

    # --- within a line

    def _read_emphasis(self, mark: str) -> bool:
        end = self._end_of(mark, self._at)
        if not self._sees(end):
            return False
        count = end - self._at
        if self._is_emphasis(mark, count, self._before, self._char(end)):
            return self._drop(count)
        return self._say(mark * count)

    def _is_emphasis(self, mark: str, count: int, before: str, after: str) -> bool:
        """Whether a run of marks is markup; keeps account of what is open."""
        is_open = self._open[mark] > 0
        if before.isspace() and after.isspace():
            if mark == "*" and count == 1:
                return False  # a multiplication
            self._open[mark] = max(0, self._open[mark] - count)
            return True
        if before.isalnum() and after.isalnum():
            if mark == "_":
                return False  # snake_case
            joined = _UNSPACED.match(before) or _UNSPACED.match(after)
            if not joined and not is_open:
                return False  # 3*4
            closes = is_open
        else:
            closes = is_open and not before.isspace() and not after.isalnum()
            if not closes:
                if after.isspace() or before.isalnum():
                    return False  # the grade A*, a footnote's mark
                if mark == "_" and (before in OPENS_AFTER or after == "^"):
                    return False
                if mark == "*" and count == 1 and (after.isdigit() or after == "#"):
                    return False  # keys of a telephone
        self._open[mark] = max(0, self._open[mark] + (-count if closes else count))
        return True

    def _begin_code(self) -> bool:
        end = self._end_of("`", self._at)
        if not self._sees(end):
            return False
        count = end - self._at
        if count >= FENCE:
            info = markup.INFO.match(self._text, end)
            assert info is not None, "it may be empty"
            if not self._sees(info.end()):
                return False
            if self._text[info.end() : info.end() + 1] == "\n":
                end = info.end()
        self._code = count
        return self._drop(end - self._at)

    def _read_code(self) -> bool:
        text, at = self._text, self._at
        if found := markup.CODE.match(text, at):
            return self._say(found[0])
        if text[at] == "\n":
            if self._code >= FENCE:
                return self._say("\n")
            self._code = 0
            return self._read_line_end()
        end = self._end_of("`", at)
        if not self._sees(end):
            return False
        if end - at >= self._code:
            self._code = 0
        return self._drop(end - at)

    def _read_tag(self) -> bool:
        text, at = self._text, self._at
        if tag := markup.TAG.match(text, at, at + HOLD):
            if markup.BREAK.match(tag[0]):
                return self._say("\n", len(tag[0]))
            return self._drop(len(tag[0]))
        if link := markup.AUTOLINK.match(text, at, at + HOLD):
            return self._say(link[1], len(link[0]))
        return not self._awaits(at + HOLD, markup.OPEN_TAG, at) and self._say("<")

    def _read_link(self) -> bool:
        """A link or an image: its words stay, and are read as the rest of the text is."""
        text = self._text
        is_image = text[self._at] == "!"
        start = self._at + is_image
        if not self._sees(start):
            return False
        if self._char(start) != "[":
            return self._say("!")
        label = markup.LABEL.match(text, start, start + HOLD)
        if label is None:
            awaits = self._awaits(start + HOLD, markup.OPEN_LABEL, start)
            return not awaits and self._say(text[self._at : start + 1])
        end = label.end()
        if not self._sees(end):
            return False
        if target := markup.TARGET.match(text, end, end + HOLD):
            return self._say(_words_of(label[1]), target.end() - self._at)
        if target := markup.LONG_TARGET.match(text, end):
            self._say(_words_of(label[1]), target.end() - self._at)
            self._target = True
            return True
        if self._awaits(end + HOLD, markup.OPEN_TARGET, end):
            return False
        if label[1].startswith("^") and label[1][1:].isalnum():
            return self._drop(end - self._at)  # a footnote's number
        return self._say(text[self._at : start + 1])

    def _leave_target(self) -> bool:
        if found := markup.TARGET_REST.match(self._text, self._at):
            return self._drop(len(found[0]))
        self._target = False
        return self._drop(1) if self._text[self._at] == ")" else True

    def _read_entity(self) -> bool:
        text, at = self._text, self._at
        if found := markup.ENTITY.match(text, at):
            entity = found[0]
            words = html.unescape(entity) if entity[1] == "#" else html5.get(entity[1:])
            if words is not None:
                return self._say(words.replace("\xa0", " "), len(entity))
        awaits = not self._last and markup.OPEN_ENTITY.fullmatch(text, at)
        return not awaits and self._say("&")

    def _read_strike(self) -> bool:
        end = self._end_of("~", self._at)
        if not self._sees(end):
            return False
        count = end - self._at
        return self._drop(count) if count > 1 else self._say("~")

    def _read_escape(self) -> bool:
        if not self._sees(self._at + 1):
            return False
        after = self._char(self._at + 1)
        if markup.ESCAPED.match(after):
            return self._say(after, 2)
        return self._drop(1) if after == "\n" else self._say("\\")


def _words_of(label: str) -> str:
    """A link's words without the markup in them."""
    inner = PlainText()
    inner._begun, inner._line_start = True, False
    return inner.push(label) + inner.finish()
