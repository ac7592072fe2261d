"""Generation plan of a growing text: the pieces that are spoken in one generation each.

========== ========================================================================================
``clause`` each segment is a piece, given out when no later text can change it
``auto``   as ``clause``, but the first segment since the start or a flush is *live*: given out with
           its first word; the rest follows while it is spoken
``live``   every piece is live: all the text up to its end, a flush, or LIVE_MAX
``whole``  all the text up to its end or a flush is one piece; ``whole_streaming`` as well
========== ========================================================================================

The pieces follow from the text and its flushes, not from when they came; only what an engine did
not take of a live piece comes again as another. A text that begins with one of ``openings`` has
that as its first piece in every mode; what follows is cut as if it began the text.
"""

from __future__ import annotations

import unicodedata
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from qwen3tts_engine.base import Engine, Layout
from qwen3tts_text.growing import LiveText
from qwen3tts_text.openings import Phrases
from qwen3tts_text.segmenter import Live, Segment, Segmenter, SegmenterSettings, Spelled, trimmed

PlanMode = Literal["auto", "clause", "live", "whole", "whole_streaming"]
"""The modes of the wire (docs/protocol.md)."""
LAYOUTS: Mapping[PlanMode, Layout] = MappingProxyType(
    {"whole": "full", "whole_streaming": "streaming"}
)
"""Layout of a piece in the modes whose pieces are whole texts."""

LIVE_MAX = 600
"""Weight (letters) from which the end of a sentence ends a live piece, so that the generation stays
within what an engine can hold: some 40 s of speech, 500 frames. From 1.2 times that a clause does,
from 1.3 times any white space."""

WHOLE_MAX = 1 << 30
"""Weight that no text has."""

_LIVE_SCOPE: dict[PlanMode, Live] = {"auto": "first", "live": "all"}
_IN_WORD = frozenset("'-_\u2019\u2010\u2011\u200c\u200d")


def mode_for(engine: Engine, voice: str | None, wanted: PlanMode) -> PlanMode:
    """Return the mode, or ``clause`` where engine or voice lacks it."""
    if wanted in LAYOUTS:
        return wanted if "layout" in engine.options else "clause"
    return wanted if "live" in engine.modes(voice) else "clause"


@dataclass(frozen=True, slots=True)
class GenerationText:
    text: str
    """All of it, or its beginning if ``more`` is there: at least one whole word then."""
    offsets: tuple[int, ...]
    """See SynthesisRequest.offsets."""
    final: bool = False
    """Nothing of the text follows. False for a piece that grows when it is given out."""
    more: LiveText | None = None
    """Further text; of a live piece only, and of each of them, also where its text has ended."""


class TextPlan:
    """Text in, pieces out. Used by the writer's thread; only ``GenerationText.more`` is shared.

    >>> plan = TextPlan("auto")
    >>> plan.append("Good mor")
    >>> piece = plan.next()
    >>> plan.append("ning to all of you. I have")
    >>> piece.text, "".join(text for text, _ in piece.more.take()), piece.more.ended
    ('Good mor', 'ning to all of you.', True)
    """

    def __init__(
        self,
        mode: PlanMode,
        settings: SegmenterSettings | None = None,
        *,
        language: str | None = None,
        openings: Phrases | None = None,
    ) -> None:
        """``settings`` holds for clauses; ``language`` (BCP 47) is a hint."""
        settings = settings or SegmenterSettings()
        self._wholly = mode in LAYOUTS
        if self._wholly:
            settings = _uncut(settings)
            openings = None
        elif mode == "live":
            settings = _whole(settings)
        self._segmenter = Segmenter(
            settings, language=language, live=_LIVE_SCOPE.get(mode, "none"), openings=openings
        )
        self._pieces: deque[GenerationText] = deque()
        self._out: GenerationText | None = None
        """The piece given out last, until it has been generated."""
        self._writing: LiveText | None = None
        """Receiver of the live segment's text, for the growing piece."""
        self._taken = 0
        """Characters of the live segment's text that came here before its end."""
        self._held: Spelled = ("", (0,))
        """Text of the live segment that is in no piece yet."""
        self._ended = False

    # Writing

    def append(self, text: str) -> None:
        self._add(self._segmenter.push(text))

    def flush(self) -> None:
        self._add(self._segmenter.flush())

    def end(self) -> None:
        """End the text.

        Raises ValueError if already ended; so do ``append`` and ``flush`` then.
        """
        self._add(self._segmenter.end())
        self._ended = True

    def close(self) -> None:
        self._pieces.clear()
        self._out = self._writing = None
        self._held = ("", (0,))
        self._ended = True

    # Speaking

    @property
    def waiting(self) -> bool:
        return bool(self._pieces)

    @property
    def growing(self) -> bool:
        out = self._out
        return (
            out is not None
            and out.more is not None
            and out.more is self._writing
            and not out.more.closed
        )

    def next(self) -> GenerationText | None:
        """Return the next piece, or None; ends the one before."""
        self.generated()
        if not self._pieces:
            return None
        self._out = self._pieces.popleft()
        return self._out

    def generated(self) -> None:
        out, self._out = self._out, None
        if out is None or out.more is None:
            return
        out.more.close()
        left = _joined(out.more)
        if out.more is self._writing:
            self._writing = None
            self._held = left
            self._begin(whole=False)
        elif (said := trimmed(*left)) is not None:
            self._pieces.appendleft(GenerationText(*said, out.final, _ended_text()))

    def finished(self) -> bool:
        return self._ended and not self._pieces and self._out is None

    # Within

    def _add(self, segments: list[Segment]) -> None:
        for segment in segments:
            if segment.live:
                self._write(segment.text[self._taken :], segment.offsets[self._taken :])
                self._taken = 0
                self._complete(segment.final)
            elif segment.text:
                more = _ended_text() if self._wholly else None
                self._pieces.append(
                    GenerationText(segment.text, segment.offsets, segment.final, more)
                )
        grown = self._segmenter.take_live()
        if grown is not None:
            self._taken += len(grown[0])
            self._write(*grown)
            self._begin(whole=False)

    def _write(self, text: str, offsets: tuple[int, ...]) -> None:
        if not text:
            return
        if self._writing is not None:
            if self._writing.push(text, offsets):
                return
            self._writing = None  # its reader is gone
        self._held = (self._held[0] + text, (*self._held[1][:-1], *offsets))

    def _begin(self, *, whole: bool, final: bool = False) -> None:
        said = trimmed(*self._held)
        if said is not None and (whole or _has_whole_word(said[0])):
            more = _ended_text() if whole else LiveText()
            self._pieces.append(GenerationText(*said, final, more))
            self._writing = None if whole else more
            self._held = ("", (0,))

    def _complete(self, final: bool) -> None:
        if self._writing is not None:
            self._writing.end()
            self._writing = None
        else:
            self._begin(whole=True, final=final)
            self._held = ("", (0,))


def _whole(settings: SegmenterSettings) -> SegmenterSettings:
    return replace(
        settings,
        sentence_min=(LIVE_MAX,),
        clause_min=(LIVE_MAX * 6 // 5,),
        whole_max=(LIVE_MAX * 13 // 20,),  # a live piece ends at the white space from twice that
        hard_max=max(LIVE_MAX * 8 // 5, settings.hard_max),
    )


def _uncut(settings: SegmenterSettings) -> SegmenterSettings:
    most = (WHOLE_MAX,)
    return replace(
        settings,
        sentence_min=most,
        clause_min=most,
        whole_max=most,
        unspaced_max=(),
        hard_max=WHOLE_MAX,
    )


def _ended_text() -> LiveText:
    more = LiveText()
    more.end()
    return more


def _joined(more: LiveText) -> Spelled:
    parts = more.take()
    if not parts:
        return "", (0,)
    offsets = [each for _, part in parts for each in part[:-1]]
    return "".join(text for text, _ in parts), (*offsets, parts[-1][1][-1])


def _has_whole_word(text: str) -> bool:
    begun = False
    for char in text:
        if char.isalnum():
            begun = True
        elif begun and char not in _IN_WORD and unicodedata.category(char)[0] != "M":
            return True
    return False
