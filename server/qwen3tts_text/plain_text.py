"""Text for people, without its markup."""

from __future__ import annotations

import re

from qwen3tts_text import markup
from qwen3tts_text.characters import UNSPACED
from qwen3tts_text.markdown import MarkdownReader
from qwen3tts_text.markup import HOLD

HEAD = 64
"""Characters of a word in which ``://`` is looked for."""
OPENS_AFTER = frozenset("/\\.-:@=#$&%+~^")
"""An underscore after one of these belongs to a name or an address."""
_UNSPACED = re.compile(f"[{UNSPACED}]")


class PlainText(MarkdownReader):
    """Text in pieces in, the same without markup out.

    Emphasis, headings, lists, quotes, rules, code, links, images and tags of HTML go; their words
    stay. What only looks like markup stays: ``3 * 4``, ``snake_case``, ``<3``, ``a < b``, ``[1]``,
    an address's underscores. At most `HOLD` characters are held back, of a link twice as many.

    >>> plain = PlainText()
    >>> plain.push("It is **ve"), plain.push("ry** warm. [He"), plain.push("re](http://a.b) too.
    ")
    ('It is ve', 'ry warm. ', 'Here too. ')
    """

    def __init__(self) -> None:
        super().__init__()
        self._said: list[str] = []
        self._begun = False
        """True if anything but white space has been written."""
        self._word = ""
        """The beginning of the word that was written last."""
        self._open = {"*": 0, "_": 0}
        """Marks of emphasis that are open."""

    def push(self, piece: str) -> str:
        self._push(piece)
        return self._take()

    def finish(self) -> str:
        self._end()
        return self._take()

    def _take(self) -> str:
        said = "".join(self._said)
        self._said.clear()
        return said

    # --- writing

    def _write(self, words: str, count: int) -> bool:
        word = self._word
        self._drop(count)
        if not self._begun:
            words = words.lstrip()
            self._begun = bool(words)
        if words:
            self._said.append(words)
            end = "" if words[-1].isspace() else words.rsplit(None, 1)[-1]
            self._word = (end if len(end) < len(words) else word + end)[:HEAD]
        return True

    def _write_code(self, count: int) -> bool:
        return self._write(self._text[self._at : self._at + count].replace("`", ""), count)

    def _write_line_end(self, count: int, *, firm: bool) -> bool:
        if self._before == "\n" and not firm:
            self._open = {"*": 0, "_": 0}  # no emphasis goes on in the next paragraph
        return self._write("\n", count)

    def _drop(self, count: int) -> bool:
        self._word = ""
        return super()._drop(count)

    def _drop_rule(self, count: int) -> bool:
        return self._drop(min(count + 1, len(self._text) - self._at))

    def _drop_indent(self, count: int) -> bool:
        return self._drop(count)

    # --- reading

    def _read_inline(self) -> bool:
        text, at = self._text, self._at
        in_address = "://" in self._word or self._word.startswith("www.")
        if in_address and (found := markup.ADDRESS.match(text, at)):
            return self._write(found[0], len(found[0]))
        if found := self.plain.match(text, at):
            return self._write(found[0], len(found[0]))
        match text[at]:
            case "\n":
                return self._read_line_end()
            case "*" | "_" as mark:
                return self._read_emphasis(mark)
            case "`":
                return self._begin_code("`")
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

    def _read_emphasis(self, mark: str) -> bool:
        end = self._end_of(mark, self._at)
        if not self._sees(end):
            return False
        count = end - self._at
        if self._is_emphasis(mark, count, self._before, self._char(end)):
            return self._drop(count)
        return self._write(mark * count, count)

    def _is_emphasis(self, mark: str, count: int, before: str, after: str) -> bool:
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

    def _read_link(self) -> bool:
        text = self._text
        start = self._at + (text[self._at] == "!")
        if not self._sees(start):
            return False
        if self._char(start) != "[":
            return self._write("!", 1)
        label = markup.LABEL.match(text, start, start + HOLD)
        if label is None:
            awaits = self._awaits(start + HOLD, markup.OPEN_LABEL, start)
            return not awaits and self._write_opening(start)
        end = label.end()
        if not self._sees(end):
            return False
        if target := markup.TARGET.match(text, end, end + HOLD):
            return self._write(_words_of(label[1]), target.end() - self._at)
        if target := markup.LONG_TARGET.match(text, end):
            self._write(_words_of(label[1]), target.end() - self._at)
            self._target = True
            return True
        if self._awaits(end + HOLD, markup.OPEN_TARGET, end):
            return False
        if label[1].startswith("^") and label[1][1:].isalnum():
            return self._drop(end - self._at)  # a footnote's number
        return self._write_opening(start)

    def _write_opening(self, start: int) -> bool:
        opening = self._text[self._at : start + 1]
        return self._write(opening, len(opening))


def _words_of(label: str) -> str:
    inner = PlainText()
    inner._begun, inner._line_start = True, False
    return inner.push(label) + inner.finish()
