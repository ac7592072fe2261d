"""Written text to text that can be said: Markdown, HTML, emoji and controls removed, one by one.

Every character goes through :meth:`Speakable.feed` alone, so the result cannot depend on how the
text was split. Each state looks back a bounded way; constructs that need more characters are held
until they are decided, and the work per character is constant.

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

import html
from collections.abc import Callable
from enum import Enum, auto

from qwen3tts_text.characters import WHITE_SPACE
from qwen3tts_text.html_tag import Tag, TagSoFar, tag_of
from qwen3tts_text.spoken import REPEATS_MAX, Sink, Spoken
from qwen3tts_text.surrogates import WholeCharacters

LINK_MAX = 2048
"""Characters after which ``](`` was no link."""
ENTITY_MAX = 12
NOTE_MAX = 64

_RUNS = frozenset("`*_~")
_LINE_RUNS = frozenset("`*_~-+#=>")
_LINE_MARKS = {">": REPEATS_MAX, "#": 6, "-": 1, "*": 1, "+": 1}
"""Marks that begin a line, and how often they may stand."""
_MOUTHS = frozenset(")(DPp|/")
_BULLETS = frozenset("•◦▪‣⁃∙●○")
_ESCAPABLE = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")

Held = tuple[str, int, int]


class _Mode(Enum):
    TEXT = auto()
    RUN = auto()
    """Within a run of one markup character."""
    BANG = auto()
    """After ``!``, which may begin an image."""
    FACE = auto()
    """After a space and ``:`` or ``;``, which may look at you: ``:-)``."""
    BRACKET = auto()
    """After ``[``."""
    NOTE = auto()
    """Within ``[^…]``, ``word[1]`` or ``[ ]``: held, dropped at ``]``."""
    NOTE_END = auto()
    """After such a note; a colon that defines it is dropped."""
    BRACKET_END = auto()
    """After the ``]`` of a text that may be a link's."""
    LINK = auto()
    """Within ``](…)``."""
    ADDRESS = auto()
    """The rest of a link's address after a flush: dropped."""
    TAG = auto()
    ENTITY = auto()
    ESCAPE = auto()
    FENCE_OPEN = auto()
    """On the line that opens a code block."""
    FENCE = auto()
    """In a code block."""
    TABLE = auto()
    """At the beginning of a table's row, which may be its rule."""

    __hash__ = object.__hash__
    """Looked up for each character; ``Enum`` hashes their names in Python."""


_HELD_FROM = {
    "!": _Mode.BANG,
    "[": _Mode.BRACKET,
    "<": _Mode.TAG,
    "&": _Mode.ENTITY,
    "\\": _Mode.ESCAPE,
}


class Speakable:
    """Feeds ``sink`` with what is to be said; white space is collapsed, ``\\n`` is a firm break."""

    def __init__(self, sink: Sink, *, speak_code: bool = False) -> None:
        self._spoken = Spoken(sink)
        self._speak_code = speak_code
        self._whole = WholeCharacters(self._step)
        self._mode = _Mode.TEXT
        self._held: list[Held] = []
        # The line.
        self._table = False
        self._star_open = False
        self._code = False
        self._brackets = 0
        # The run, or the fence.
        self._run = ""
        self._run_at = 0
        self._count = 0
        self._run_fresh = False
        self._fence_count = 0
        self._link_depth = 0
        self._link_spaced = False
        self._link_titled = False
        self._tag = TagSoFar()
        self._handlers: dict[_Mode, Callable[[str, int, int], bool]] = {
            _Mode.TEXT: self._in_text,
            _Mode.RUN: self._in_run,
            _Mode.BANG: self._in_bang,
            _Mode.FACE: self._in_face,
            _Mode.BRACKET: self._in_bracket,
            _Mode.NOTE: self._in_note,
            _Mode.NOTE_END: self._in_note_end,
            _Mode.BRACKET_END: self._in_bracket_end,
            _Mode.LINK: self._in_link,
            _Mode.ADDRESS: self._in_address,
            _Mode.TAG: self._in_tag,
            _Mode.ENTITY: self._in_entity,
            _Mode.ESCAPE: self._in_escape,
            _Mode.FENCE_OPEN: self._in_fence_open,
            _Mode.FENCE: self._in_fence,
            _Mode.TABLE: self._in_table,
        }

    @property
    def position(self) -> int:
        return self._whole.position

    def feed(self, char: str) -> None:
        """Read one code point of the original text."""
        self._whole.feed(char)

    def flush(self) -> None:
        """Decide what is held as if the line went on later; the state of the text goes on."""
        self._whole.flush()
        mode = self._mode
        if mode is _Mode.RUN:
            self._end_run("")
        elif mode is _Mode.FACE:
            self._in_face(" ", self.position, self.position)
        elif mode in (_Mode.BANG, _Mode.ENTITY, _Mode.TAG, _Mode.ESCAPE):
            self._release()
        elif mode in (_Mode.BRACKET, _Mode.NOTE):
            self._release_bracket()
        elif mode in (_Mode.NOTE_END, _Mode.TABLE):
            self._drop()
        elif mode is _Mode.LINK:
            # An address stays one, unspoken, if the pause falls within it.
            self._held = []
            self._mode = _Mode.ADDRESS
        elif mode in (_Mode.BRACKET_END, _Mode.FENCE_OPEN):
            self._held = []
        self._spoken.pause()

    # Reading

    def _step(self, char: str, at: int, end: int) -> None:
        while not self._handlers[self._mode](char, at, end):
            pass
        if char == "\n":
            self._table = self._star_open = self._code = False
            self._brackets = 0

    def _in_text(self, char: str, at: int, end: int) -> bool:
        if char.isalnum():
            self._spoken.say(char, at, end)
        elif self._code and char != "`":
            self._spoken.take(char, at, end)
        elif char in _RUNS or (self._spoken.fresh and char in _LINE_RUNS):
            self._mode = _Mode.RUN
            self._run, self._run_at, self._count, self._run_fresh = char, at, 1, self._spoken.fresh
        elif self._spoken.fresh and char == "|":
            self._mode = _Mode.TABLE
            self._spoken.stand_alone()
            self._table = True
        elif self._spoken.fresh and char in _BULLETS:
            self._spoken.stand_alone()
        elif char in ":;" and self._spoken.spaced:
            self._mode = _Mode.FACE
            self._held.append((char, at, end))
        elif char == "]" and self._brackets:
            self._brackets -= 1
            self._mode = _Mode.BRACKET_END
            self._held.append((char, at, end))
        elif char in _HELD_FROM:
            self._mode = _HELD_FROM[char]
            self._held.append((char, at, end))
        elif char == "|" and self._table:
            self._spoken.cell(at)
        else:
            self._spoken.take(char, at, end)
        return True

    def _release(self) -> None:
        """What was held is no markup: say it as it stands."""
        held, self._held = self._held, []
        self._mode = _Mode.TEXT
        for char, at, end in held:
            self._spoken.take(char, at, end)

    def _drop(self) -> None:
        self._held = []
        self._mode = _Mode.TEXT

    # Runs: emphasis, code, headings, items, rules

    def _in_run(self, char: str, _at: int, _end: int) -> bool:
        if char == self._run:
            self._count += 1
            return True
        return self._end_run(char)

    def _end_run(self, after: str) -> bool:
        run, count, fresh = self._run, self._count, self._run_fresh
        self._mode = _Mode.TEXT
        spaced = not after or after in WHITE_SPACE
        if fresh and count >= 3 and run in "`~":
            self._mode = _Mode.FENCE_OPEN
            self._fence_count = count
            self._spoken.stand_alone()
        elif fresh and count >= 2 and run in "-*_=~" and (not after or after in "\r\n"):
            pass  # a rule, or the line under a heading
        elif fresh and spaced and count <= _LINE_MARKS.get(run, 0):
            if run != ">":
                self._spoken.stand_alone()
        elif run == "*":
            self._stars(count, after, spaced)
        elif run == "_":
            if self._spoken.last.isalnum() and not self._spoken.spaced and after.isalnum():
                self._say_run(run, min(count, REPEATS_MAX))
        elif run == "`":
            self._code = not self._code and count < 3
        elif run != "~" or count == 1:
            self._say_run(run, min(count, REPEATS_MAX))
        return False

    def _stars(self, count: int, after: str, spaced: bool) -> None:
        after_digit = self._spoken.last.isdigit()
        apart = self._spoken.spaced
        if (
            count == 1
            and not self._star_open
            and after_digit
            and (after.isdigit() or (apart and spaced))
        ):
            self._spoken.say("×", self._run_at, self._run_at + 1)
        elif count == 1 and apart and spaced and after:
            self._say_run("*", 1)
        else:
            self._star_open = not spaced and (apart or not self._spoken.last.isalnum())
            if after_digit and after.isdigit():
                self._spoken.gap(self._run_at)

    def _say_run(self, char: str, count: int) -> None:
        for index in range(count):
            self._spoken.say(char, self._run_at + index, self._run_at + index + 1)

    # Faces; brackets: images, links, notes, tasks

    def _in_bang(self, char: str, _at: int, _end: int) -> bool:
        if char == "[":
            self._drop()
        else:
            self._release()
        return False

    def _in_face(self, char: str, at: int, end: int) -> bool:
        last = self._held[-1][0]
        if (last in ":;" and char == "-") or (last not in _MOUTHS and char in _MOUTHS):
            self._held.append((char, at, end))
            return True
        if last in _MOUTHS and (char in WHITE_SPACE or char in ".,!?"):
            self._spoken.gap(self._held[0][1])
            self._drop()
        else:
            self._release()
        return False

    def _in_bracket(self, char: str, at: int, end: int) -> bool:
        attached = not self._spoken.spaced and self._spoken.last != "" and not self._spoken.fresh
        if char == "^" or (char.isdigit() and attached) or (self._spoken.fresh and char in " xX"):
            self._held.append((char, at, end))
            self._mode = _Mode.NOTE
            return True
        self._release_bracket()
        return False

    def _in_note(self, char: str, at: int, end: int) -> bool:
        if char == "]":
            self._drop()
            self._mode = _Mode.NOTE_END
            return True
        note = self._held[1][0] == "^"
        if len(self._held) < NOTE_MAX and char != "\n" and (note or char.isdigit()):
            self._held.append((char, at, end))
            return True
        self._release_bracket()
        return False

    def _release_bracket(self) -> None:
        self._spoken.gap(self._held.pop(0)[1])
        self._brackets += 1
        self._release()

    def _in_note_end(self, char: str, _at: int, _end: int) -> bool:
        self._mode = _Mode.TEXT
        return char == ":" and self._spoken.fresh

    def _in_bracket_end(self, char: str, at: int, end: int) -> bool:
        if char == "(":
            self._held = [(char, at, end)]
            self._mode = _Mode.LINK
            self._link_depth = 1
            self._link_spaced = self._link_titled = False
            return True
        self._spoken.gap(self._held[0][1] if self._held else at)
        self._drop()
        return False

    def _in_link(self, char: str, at: int, end: int) -> bool:
        self._held.append((char, at, end))
        if char == "(":
            self._link_depth += 1
        elif char == ")":
            self._link_depth -= 1
            if not self._link_depth:
                self._drop()
        elif char == "\n" or len(self._held) > LINK_MAX:
            self._release_link()
        elif self._link_titled:
            pass
        elif char in WHITE_SPACE:
            self._link_spaced = True
        elif self._link_spaced:
            # Only a title may follow the address.
            self._link_titled = char in "\"'"
            if not self._link_titled:
                self._release_link()
        return True

    def _release_link(self) -> None:
        self._spoken.gap(self._held[0][1])
        self._release()

    def _in_address(self, char: str, _at: int, _end: int) -> bool:
        self._link_depth += (char == "(") - (char == ")")
        if char in WHITE_SPACE:
            self._mode = _Mode.TEXT
            return False
        if not self._link_depth:
            self._mode = _Mode.TEXT
        return True

    # Tags, entities, escapes

    def _in_tag(self, char: str, at: int, end: int) -> bool:
        if len(self._held) == 1:
            self._tag = TagSoFar()
        if char == ">" and self._tag.may_end:
            self._end_tag(at, end)
            return True
        if not self._tag.takes(char):
            self._release()
            return False
        self._held.append((char, at, end))
        return True

    def _end_tag(self, at: int, end: int) -> None:
        content = "".join(char for char, _, _ in self._held[1:])
        kind = tag_of(content)
        if kind in (Tag.INLINE, Tag.BREAK):
            if kind is Tag.BREAK:
                self._spoken.newline(self._held[0][1], firm=True)
            self._drop()
            return
        if kind is Tag.LINK:
            del self._held[0]
        else:
            self._held.append((">", at, end))
        self._release()

    def _in_entity(self, char: str, at: int, end: int) -> bool:
        if char == ";":
            source = "".join(held[0] for held in self._held) + ";"
            spoken = html.unescape(source)
            if len(spoken) == 1:
                start = self._held[0][1]
                self._drop()
                self._spoken.take(spoken, start, end)
                return True
        elif len(self._held) < ENTITY_MAX and char.isascii() and (char.isalnum() or char == "#"):
            self._held.append((char, at, end))
            return True
        self._release()
        return False

    def _in_escape(self, char: str, at: int, end: int) -> bool:
        if char in _ESCAPABLE:
            self._drop()
            self._spoken.say(char, at, end)
            return True
        if char == "\n":
            self._drop()  # a line's end that is meant
        else:
            self._release()
        return False

    # Code blocks and tables

    def _in_fence_open(self, char: str, at: int, end: int) -> bool:
        if char == "\n":
            self._drop()
            self._mode = _Mode.FENCE
            self._count = 0
            return False
        if self._run == "`" and char == "`":
            self._release()  # code on one line
            return False
        self._held.append((char, at, end))
        if len(self._held) > NOTE_MAX:
            self._release()
        return True

    def _in_fence(self, char: str, at: int, end: int) -> bool:
        if char == "\n":
            if self._count >= self._fence_count:
                self._mode = _Mode.TEXT
            self._count = 0
            self._spoken.newline(at, firm=True)
        elif self._count >= 0 and char == self._run:
            self._count += 1
        elif char not in WHITE_SPACE:
            self._count = -1
            if self._speak_code:
                self._spoken.take(char, at, end)
        elif self._speak_code:
            self._spoken.take(char, at, end)
        return True

    def _in_table(self, char: str, at: int, end: int) -> bool:
        if char == "|":
            self._held.clear()
        elif char in ":-" and len(self._held) < REPEATS_MAX:
            self._held.append((char, at, end))
        elif char in "\r\n":
            self._drop()
            return False
        elif char not in " \t:-":
            self._release()
            return False
        return True
