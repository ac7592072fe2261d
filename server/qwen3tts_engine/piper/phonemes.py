"""Text to phoneme ids, and their words."""

# Look-alike characters are meant.
# ruff: noqa: RUF001

from __future__ import annotations

import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from qwen3tts_engine.embedded.library import EspeakLibrary, LibraryMissing, SpeakFailed
from qwen3tts_engine.piper.voice_files import END, PAD, START, VoiceConfig
from qwen3tts_engine.request_text import check_text, pieces, plain
from qwen3tts_text.boundaries import BoundaryRules, Strength
from qwen3tts_text.word_units import WordSpans
from qwen3tts_wire.errors import BadRequest, EngineUnavailable

MAX_CHARS = 5000
"""Most code points in one text."""
FASTEST = 450
"""Words a minute: the places of words are wanted, not the sound."""
_LANGUAGE = re.compile(r"\([^)]*\)")
"""A switch of language among the phonemes: ``(en)``."""
_MARKS = {
    mark: phoneme
    for phoneme, marks in {
        ".": ".…。।॥։።۔\n",
        "!": "!！",
        "?": "?？؟",
        ",": ",，、،—–",
        ";": ";；؛",
        ":": ":：",
    }.items()
    for mark in marks
}
"""Punctuation, and the phoneme that stands for it."""
_SENTENCE_ENDS = frozenset(".!?")
TRIAL = "0 1 2 3 4 5 6 7 8 9, 10 11 12 13 17 20 30, 100 1000."
"""Text that every eSpeak NG voice says in its own language."""
LEAST_KNOWN = 0.5
"""Part of the trial's phonemes that a voice must have ids for."""
_LOCK = threading.Lock()


@dataclass(frozen=True, slots=True)
class TextWord:
    char_start: int
    char_end: int
    first: int
    """Number of its first id in the sentence."""
    end: int
    """Number of the id after its last."""
    share: tuple[float, float] = (0.0, 1.0)
    """Part of those ids' time, where several words have phonemes in common (*for a*)."""


@dataclass(slots=True)
class _Said:
    start: int
    text: str
    events: list[int] | None = None
    """Code points at which words begin; None: not asked for yet."""


@dataclass(slots=True)
class Sentence:
    """Ids of a sentence; its words are found on demand."""

    ids: list[int]
    said: _Said
    runs: list[tuple[int, int]]
    """Ids [first, end) of each word of phonemes, in order."""
    first_run: int
    """Number of its first word of phonemes in the stretch."""


class Phonemizer:
    """Text to sentences of phoneme ids; threads take turns (global state).

    Raises:
        EngineUnavailable: eSpeak NG cannot be loaded.
        BadRequest: it has no such voice.
    """

    def __init__(self, config: VoiceConfig) -> None:
        self._config = config
        self._rules = BoundaryRules(config.language)
        self._pad = config.phoneme_ids[PAD]
        self.unknown: Counter[str] = Counter()
        """Phonemes left out because the voice has no id for them."""
        self._library: EspeakLibrary | None = None
        if config.phoneme_type == "espeak":
            self._library = espeak()
            try:
                self._check_phonemes()
            except SpeakFailed as error:
                raise BadRequest(
                    f"eSpeak NG has no voice {config.espeak_voice!r}, which this voice asks for.",
                    remedy="Take another voice, or install espeakng-loader's latest version.",
                ) from error

    def _check_phonemes(self) -> None:
        made = [
            phoneme
            for _, phonemes in self._phonemes(TRIAL)
            for phoneme in unicodedata.normalize("NFD", _LANGUAGE.sub("", phonemes))
            if not phoneme.isspace()
        ]
        for phoneme in made:
            self._add([], phoneme)
        known = len(made) - self.unknown.total()
        if not made or known < LEAST_KNOWN * len(made):
            raise BadRequest(
                f"The voice has ids for {known} of {len(made)} of eSpeak NG's phonemes of"
                f" {self._config.espeak_voice!r}; it was made for other phonemes.",
                remedy="Take another voice, or the .onnx.json that belongs to this one.",
            )

    def sentences(self, text: str) -> list[Sentence]:
        check_text(text, MAX_CHARS)
        found = []
        for piece in pieces(plain(text), final=True):
            said = _Said(piece.start, piece.text)
            found += self._characters(said) if self._library is None else self._spoken(said)
        return found

    def words(self, sentence: Sentence) -> list[TextWord]:
        said = sentence.said
        spans = WordSpans(said.text)
        if said.events is None:
            said.events = self._events(said.text)
        events = said.events[sentence.first_run :]
        begun: list[int | None] = [
            spans.after(at) if spans.at(at) is None else spans.at(at) for at in events
        ]
        count = len(sentence.runs)
        following = begun[count] if len(begun) > count else None
        begun += [None] * (count - len(begun))
        # WordSpans of the text and their ids: eSpeak NG says a number in several words.
        groups: list[tuple[int, int, int]] = []
        for (first, end), span in zip(sentence.runs, begun, strict=False):
            if groups and (span is None or span <= groups[-1][0]):
                groups[-1] = (*groups[-1][:2], end)
            elif span is not None:
                groups.append((span, first, end))
        ends = [group[0] for group in groups[1:]]
        ends.append(len(spans) if following is None else following)
        return [
            word
            for group, until in zip(groups, ends, strict=True)
            for word in self._shared(said, spans, group, until)
        ]

    def _shared(
        self, said: _Said, spans: WordSpans, group: tuple[int, int, int], until: int
    ) -> list[TextWord]:
        span, *ids = group
        told = spans.words(span, max(until, span + 1))
        letters = sum(last - first for first, last in told)
        found, so_far = [], 0
        for first, last in told:
            share = (so_far / letters, (so_far + last - first) / letters)
            so_far += last - first
            found.append(TextWord(said.start + first, said.start + last, ids[0], ids[1], share))
        return found

    def _phonemes(self, text: str) -> list[tuple[int, str]]:
        assert self._library is not None
        with _LOCK:
            return self._library.phonemes(text, self._config.espeak_voice)

    def _events(self, text: str) -> list[int]:
        found: list[int] = []

        def on_sound(_pcm: bytes, words: list[tuple[int, int]]) -> bool:
            found.extend(position for position, _ in words)
            return True

        assert self._library is not None
        with _LOCK:
            self._library.speak(text, self._config.espeak_voice, FASTEST, False, on_sound)
        return found

    def _spoken(self, said: _Said) -> list[Sentence]:
        found: list[Sentence] = []
        ids: list[int] = []
        runs: list[tuple[int, int]] = []
        number = 0
        clauses = self._phonemes(said.text)
        for index, (read, phonemes) in enumerate(clauses):
            groups = _LANGUAGE.sub("", phonemes).split()
            mark = self._mark(said.text, read, last=index + 1 == len(clauses))
            if not groups:
                continue
            ids = ids or self._begin()
            for at, group in enumerate(groups):
                if at:
                    self._add(ids, " ")
                first = len(ids)
                for phoneme in unicodedata.normalize("NFD", group):
                    self._add(ids, phoneme)
                runs.append((first, len(ids)))
            if mark and mark in self._config.phoneme_ids:
                self._add(ids, mark)
            if mark in _SENTENCE_ENDS:
                found.append(self._sentence(ids, said, runs, number))
                number += len(runs)
                ids, runs = [], []
            else:
                self._add(ids, " ")
        if runs:
            found.append(self._sentence(ids, said, runs, number))
        return [sentence for sentence in found if sentence.runs]

    def _characters(self, said: _Said) -> list[Sentence]:
        ids = self._begin()
        runs, events = [], []
        spans = WordSpans(said.text)
        at = 0
        for span in spans.spans:
            self._spell(ids, said.text[at : span.start])
            first = len(ids)
            self._spell(ids, said.text[span.start : span.end])
            if span.is_word:
                runs.append((first, len(ids)))
                events.append(span.start)
            at = span.end
        said.events = events
        return [self._sentence(ids, said, runs, 0)] if runs else []

    def _spell(self, ids: list[int], text: str) -> None:
        for char in unicodedata.normalize("NFD", text):
            self._add(ids, char if char in self._config.phoneme_ids else char.lower())

    def _begin(self) -> list[int]:
        return [*self._config.phoneme_ids[START], *self._pad]

    def _sentence(
        self, ids: list[int], said: _Said, runs: list[tuple[int, int]], number: int
    ) -> Sentence:
        return Sentence([*ids, *self._config.phoneme_ids[END]], said, runs, number)

    def _add(self, ids: list[int], phoneme: str) -> None:
        for one in self._config.phoneme_map.get(phoneme, (phoneme,)):
            known = self._config.phoneme_ids.get(one)
            if known is not None:
                ids += known
                ids += self._pad
            elif not one.isspace():
                self.unknown[one] += 1

    def _mark(self, text: str, read: int, *, last: bool) -> str:
        at = min(read, len(text)) - 1
        if not last and at > 0 and text[at - 1].isspace():
            at -= 1  # the first character of the next clause
        while at >= 0 and not (text[at].isalnum() or text[at] in _MARKS):
            at -= 1
        if at < 0 or text[at] not in _MARKS:
            return "." if last else ","
        while at > 0 and text[at - 1] in _MARKS:
            at -= 1
        mark = _MARKS[text[at]]
        if mark == "." and text[at] == "." and not last:
            boundary = self._rules.judge(text, at, True)
            if boundary is not None and boundary.strength is not Strength.SENTENCE:
                return ""
        return mark


@cache
def espeak() -> EspeakLibrary:
    try:
        import espeakng_loader  # an extra

        return EspeakLibrary(
            Path(espeakng_loader.get_library_path()), Path(espeakng_loader.get_data_path())
        )
    except (ImportError, LibraryMissing) as error:
        raise EngineUnavailable(
            f"eSpeak NG, which makes phonemes of text, cannot be loaded: {error}.",
            remedy="Install it: pip install 'mr_qwen3tts[voice]'",
        ) from error


def unsayable(unknown: Sequence[str]) -> BadRequest:
    return BadRequest(
        f"The voice has no id for any phoneme of this text ({', '.join(unknown[:5])}).",
        remedy="Choose a voice of the text's language.",
    )
