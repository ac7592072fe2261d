"""vLLM-Omni's utterances: text, units, growing units, answers."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from qwen3tts_engine.base import SAMPLE_RATE, ContextVoice
from qwen3tts_server.connection import Close
from qwen3tts_server.dialects.vllm_omni import messages
from qwen3tts_server.dialects.vllm_omni.messages import SessionConfig
from qwen3tts_text.surrogates import SurrogateJoiner
from qwen3tts_wire.errors import BadRequest

Granularity = Literal["none", "sentence", "clause"]

ASCII_ENDS = {"none": "", "sentence": ".!?", "clause": ".!?,;"}
"""Unit ends before white space or at the end."""
_SENTENCE = "\u3002\uff01\uff1f\u2026\u0964\u0965\u061f"
"""Chinese and Japanese full stops, exclamation and question marks, ellipsis, Devanagari's danda and
double danda, Arabic question mark."""
SCRIPT_ENDS = {"none": "", "sentence": _SENTENCE, "clause": _SENTENCE + "\uff0c\uff1b\u060c\u061b"}
"""Unit ends anywhere; as clause marks Chinese and Arabic commas and semicolons."""
CLOSING = "\"'\u201d\u2019\u00bb)]}\u300f\u300d\uff09\u3011"
"""Closing marks, kept with the mark before."""
_RUN = frozenset(ASCII_ENDS["clause"] + SCRIPT_ENDS["clause"] + CLOSING)

_TITLES = ("dr", "mr", "mrs", "ms", "prof", "sr", "jr", "st", "mt")
_OTHERS = ("fig", "no", "vs", "etc", "approx", "dept", "inc", "ltd", "co", "al")
_DOTTED = ("e.g", "i.e", "u.s", "u.k", "a.m", "p.m")
ABBREVIATIONS = frozenset(_TITLES + _OTHERS + _DOTTED)
"""A dot after these (any case), or after a single letter, ends nothing."""
_LONGEST = max(map(len, ABBREVIATIONS))


class Splitter:
    """Text in pieces in, units out.

    >>> splitter = Splitter("sentence")
    >>> splitter.feed("It is 3.14. Or")
    >>> splitter.take(), splitter.take()
    ('It is 3.14.', None)
    >>> splitter.end()
    >>> splitter.take(), splitter.take()
    ('Or', None)
    """

    def __init__(self, granularity: Granularity = "none") -> None:
        self.ended = False
        """True once all text is here."""
        self._ascii = frozenset(ASCII_ENDS[granularity])
        self._ends = self._ascii | frozenset(SCRIPT_ENDS[granularity])
        self._chars: list[str] = []
        self._start = 0
        self._scan = 0
        """Before it nothing ends."""
        self._run = 0
        """End so far of the marks at ``_scan``."""

    def __len__(self) -> int:
        return len(self._chars) - self._start

    def feed(self, text: str) -> None:
        if 2 * self._start > len(self._chars):
            del self._chars[: self._start]
            self._scan -= self._start
            self._run -= self._start
            self._start = 0
        self._chars.extend(text)

    def end(self) -> None:
        self.ended = True

    def take(self) -> str | None:
        """Return the next complete unit, stripped, or None."""
        while (cut := self._boundary()) is not None:
            unit = "".join(self._chars[self._start : cut]).strip()
            self._start = self._scan = cut
            if unit:
                return unit
        return None

    def _boundary(self) -> int | None:
        chars, last = self._chars, len(self._chars)
        if not self._ends:
            self._scan = last
        while self._scan < last:
            at = self._scan
            if chars[at] not in self._ends or self._in_number(at) or self._abbreviates(at):
                self._scan += 1
                continue
            run = max(self._run, at + 1)
            while run < last and chars[run] in _RUN:
                run += 1
            self._run = run
            if run == last and not self.ended:
                return None
            if run < last and chars[at] in self._ascii and not chars[run].isspace():
                self._scan = run
                continue
            return run
        return last if self.ended and self._start < last else None

    def _in_number(self, at: int) -> bool:
        chars = self._chars
        return (
            chars[at] in ".,"
            and self._start < at < len(chars) - 1
            and chars[at - 1].isdigit()
            and chars[at + 1].isdigit()
        )

    def _abbreviates(self, at: int) -> bool:
        if self._chars[at] != ".":
            return False
        begin = at
        while begin > self._start and at - begin <= _LONGEST and _of_word(self._chars[begin - 1]):
            begin -= 1
        word = "".join(self._chars[begin:at])
        if len(word) == 1 and word.isalpha():
            return True
        return len(word) <= _LONGEST and word.lower().strip(".") in ABBREVIATIONS


def _of_word(char: str) -> bool:
    return char == "." or char.isalnum()


@dataclass(eq=False)
class Utterance:
    index: int
    config: SessionConfig
    splitter: Splitter
    joiner: SurrogateJoiner = field(default_factory=SurrogateJoiner)
    sentences: int = 0
    """Units begun, or texts committed."""
    held: list[str] = field(default_factory=list)
    """Growing unit's text not yet handed over."""
    chars: int = 0
    """Characters of a growing unit so far."""
    voice: ContextVoice = field(default_factory=ContextVoice)
    over: bool = False
    """True if its growing unit ended early."""

    @property
    def grows(self) -> bool:
        return self.config.streaming_mode is not None


@dataclass(frozen=True, eq=False)
class Unit:
    config: SessionConfig
    text: str
    utterance_index: int
    sentence_index: int
    grows: bool = False
    """True if More follows."""
    voice: ContextVoice = field(default_factory=ContextVoice)

    @property
    def where(self) -> dict[str, int]:
        return {"utterance_index": self.utterance_index, "sentence_index": self.sentence_index}


@dataclass(frozen=True)
class Start:
    """Speak a unit; then ``audio``, and ``finished`` or ``failed``."""

    unit: Unit


@dataclass(frozen=True)
class Stop:
    unit: Unit


@dataclass(frozen=True)
class More:
    unit: Unit
    text: str
    flush: bool = False
    """Say all so far, even an incomplete word."""
    final: bool = False
    """Nothing follows."""


Command = Start | More | Stop | Close


@dataclass(frozen=True)
class MoreText:
    utterance: Utterance
    parts: list[str]


@dataclass(frozen=True)
class EndOfText:
    utterance: Utterance
    dropped: bool = False
    """True if uncommitted text is discarded."""


@dataclass(frozen=True)
class Commit:
    utterance: Utterance
    commit_id: str | None


@dataclass(frozen=True)
class DeferredAnswer:
    text: str


@dataclass(frozen=True)
class GrowthStep:
    text: str = ""
    """To be said; not only white space at a unit's begin."""
    flush: bool = False
    final: bool = False
    answer: str = ""
    """To the client."""


def nothing_to_commit() -> BadRequest:
    return BadRequest("input.commit requires buffered text.", remedy="Send input.text first.")


def append_step(utterance: Utterance, text: str) -> GrowthStep:
    utterance.held.append(utterance.joiner.push(text))
    if utterance.config.streaming_mode == "sentence_commit":
        return GrowthStep()
    return GrowthStep(_held(utterance))


def commit_step(utterance: Utterance, commit_id: str | None) -> GrowthStep:
    text = _held(utterance)
    if not text:
        return GrowthStep(answer=messages.error(nothing_to_commit()))
    if utterance.over:
        spent = BadRequest(
            "The utterance is over: its sound ended before its text did.",
            remedy="Send input.done, then the next utterance.",
        )
        return GrowthStep(answer=messages.error(spent))
    return GrowthStep(text, flush=True, answer=_answer(utterance, text, commit_id))


def end_step(utterance: Utterance, *, dropped: bool) -> GrowthStep:
    utterance.held.append(utterance.joiner.finish())
    utterance.splitter.end()
    commits = utterance.config.streaming_mode == "sentence_commit"
    text = _held(utterance)
    if utterance.over or (dropped and commits):
        return GrowthStep(final=True)
    answer = _answer(utterance, text, None) if commits and text else ""
    return GrowthStep(text, final=True, answer=answer)


def _answer(utterance: Utterance, text: str, commit_id: str | None) -> str:
    return messages.message(
        "input.committed",
        commit_id=commit_id,
        utterance_index=utterance.index,
        sentence_index=utterance.sentences,
        chars_committed=len(text),
    )


def _held(utterance: Utterance) -> str:
    text = "".join(utterance.held)
    begun = utterance.sentences > 0 and utterance.config.streaming_mode == "token_level"
    if not (text.strip() or begun):
        return ""
    utterance.held.clear()
    return text


class Answers:
    """Unwritten messages, and progress of the unit."""

    def __init__(self) -> None:
        self.bytes = 0
        """Audio bytes of the current unit."""
        self._chunks = 0
        self._out: deque[tuple[str | bytes, int]] = deque()
        """Messages with their audio bytes."""
        self._writing = False
        """True while the client must take some first."""

    @property
    def unread(self) -> bool:
        return self._writing or bool(self._out)

    def announce(self, unit: Unit) -> None:
        self.bytes = self._chunks = 0
        config = unit.config
        more: dict[str, object] = {}
        if config.stream_audio:
            more["sample_rate"] = SAMPLE_RATE
        if config.word_timestamps:
            more["word_timestamps"] = True
        more = {"format": config.response_format, **more}
        self.put(
            messages.message("audio.start", **unit.where, sentence_text=unit.text.strip(), **more)
        )

    def chunk(
        self,
        unit: Unit,
        data: bytes,
        timestamps: Sequence[object] | None,
        start_ms: int,
        count: int = 0,
    ) -> None:
        chunk = messages.message(
            "audio.chunk",
            **unit.where,
            chunk_id=self._chunks,
            chunk_start_ms=start_ms,
            chunk_end_ms=messages.milliseconds(self.bytes),
            sample_rate=SAMPLE_RATE,
            audio_b64=base64.b64encode(data).decode("ascii"),
            timestamps=timestamps,
        )
        self._chunks += 1
        self._out.append((chunk, count))

    def done(self, unit: Unit, *, error: bool, **more: object) -> None:
        self.put(
            messages.message(
                "audio.done", **unit.where, total_bytes=self.bytes, error=error, **more
            )
        )

    def session_done(self, utterance: Utterance, **more: object) -> None:
        index, sentences = utterance.index, utterance.sentences
        self.put(
            messages.message(
                "session.done", utterance_index=index, total_sentences=sentences, **more
            )
        )

    def put(self, text: str) -> None:
        self._out.append((text, 0))

    def audio(self, data: bytes) -> None:
        self._out.append((data, len(data)))

    def drop_audio(self) -> None:
        self.bytes -= sum(count for _, count in self._out)
        self._out = deque(each for each in self._out if not each[1])

    @property
    def backlog(self) -> int:
        return sum(len(data) for data, _ in self._out)

    def __len__(self) -> int:
        return len(self._out)

    def sent(self) -> None:
        self._writing = False

    def data_to_send(self) -> list[str | bytes]:
        data = [each for each, _ in self._out]
        self._out.clear()
        self._writing = bool(data)
        return data
