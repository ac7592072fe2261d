"""Word times against sound whose word times are known: made here, and by the embedded engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from qwen3tts_engine.alignment import AlignedWord, ForcedAligner, WordAligner
from qwen3tts_engine.base import SAMPLE_RATE, SynthesisRequest
from qwen3tts_engine.embedded.engine import EmbeddedEngine, EmbeddedSettings
from qwen3tts_engine.pause_aligner import PauseAligner
from qwen3tts_engine.speech_rhythm import SpeechRates
from qwen3tts_text.word_units import SpokenWords
from qwen3tts_wire.heard import Word

Sound = NDArray[Any]
FRAME = 1920
SECOND = SAMPLE_RATE


def silence(seconds: float) -> Sound:
    return np.zeros(round(seconds * SECOND), np.float32)


def syllables(number: int, seconds: float) -> Sound:
    """So many rises and falls of a buzz."""
    at = np.arange(round(seconds * SECOND)) / SECOND
    swell = 0.02 + 0.3 * np.sin(np.pi * number * at / seconds) ** 2
    return (swell * np.sign(np.sin(2 * np.pi * 120 * at))).astype(np.float32)


def said(text: str, unit_s: float = 0.16, pause_s: float = 0.3) -> tuple[Sound, list[float]]:
    """The sound of a text by a voice that is exactly as even as the aligner thinks, and where each
    word begins, in seconds."""
    parts: list[Sound] = []
    begins: list[float] = []
    at = 0.0
    for word in SpokenWords(text, ended=True).words:
        length = word.units * unit_s
        begins.append(at)
        parts.append(syllables(max(1, round(word.units)), length))
        if word.stop:
            parts.append(silence(pause_s))
        at = sum(len(part) for part in parts) / SECOND
    return np.concatenate(parts), begins


def aligned(
    aligner: WordAligner, sound: Sound, chunks: Sequence[int] = ()
) -> list[tuple[AlignedWord, int]]:
    """Words, and how many samples had been given out when each was told."""
    found: list[tuple[AlignedWord, int]] = []
    at = 0
    for border in [*sorted(chunk % (len(sound) + 1) for chunk in chunks), len(sound)]:
        while at < border:
            part = sound[at : min(border, at + 4 * FRAME)]
            at += len(part)
            found += [(word, at) for word in aligner.push(part)]
    return found + [(word, at) for word in aligner.end()]


def check(found: list[tuple[AlignedWord, int]], text: str) -> None:
    """In order, without overlap, each word once, never ahead of the sound."""
    words = SpokenWords(text, ended=True).words
    assert [(each.char_start, each.char_end) for each, _ in found] == [
        (word.start, word.end) for word in words
    ]
    before = 0
    for word, given_out in found:
        assert before <= word.start <= word.end <= given_out
        assert word.precision_ms > 0
        before = word.end


TEXT = "Good morning to you all, this is the usual line. It works today; come and see it."


def test_an_even_voice_is_followed_closely() -> None:
    sound, begins = said(TEXT)
    found = aligned(PauseAligner(TEXT, ended=True, language="en"), sound)
    check(found, TEXT)
    errors = [abs(word.start / SECOND - at) for (word, _), at in zip(found, begins, strict=True)]
    assert max(errors) < 0.15
    assert sum(errors) / len(errors) < 0.05


@pytest.mark.parametrize("unit_s", [0.1, 0.24])
def test_a_voice_much_faster_or_slower_than_usual_is_followed(unit_s: float) -> None:
    sound, begins = said(TEXT, unit_s)
    found = aligned(PauseAligner(TEXT, ended=True, language="en"), sound)
    check(found, TEXT)
    errors = [abs(word.start / SECOND - at) for (word, _), at in zip(found, begins, strict=True)]
    assert max(errors) < 0.4
    assert sum(errors) / len(errors) < 0.15


def test_words_are_told_while_the_sound_is_made() -> None:
    sound, _ = said(TEXT)
    found = aligned(PauseAligner(TEXT, ended=True, language="en"), sound)
    late = [(given_out - word.end) / SECOND for word, given_out in found]
    assert max(late) < 1.5
    assert sorted(late)[len(late) // 2] < 0.6


def test_the_rate_of_a_voice_is_kept_for_its_next_clause() -> None:
    rates = SpeechRates()
    sound, begins = said(TEXT, 0.24)
    aligned(PauseAligner(TEXT, ended=True, rates=rates, voice="slow"), sound)
    found = aligned(PauseAligner(TEXT, ended=True, rates=rates, voice="slow"), sound)
    known = rates.get("slow")
    assert known == pytest.approx(0.24, rel=0.1)
    errors = [abs(word.start / SECOND - at) for (word, _), at in zip(found, begins, strict=True)]
    assert max(errors) < 0.2


def test_a_long_pause_in_the_middle_of_a_phrase_moves_what_follows() -> None:
    text = "one two three four five six"
    first, _ = said("one two three")
    second, _ = said("four five six")
    sound = np.concatenate((first, silence(0.5), second))
    found = aligned(PauseAligner(text, ended=True), sound)
    check(found, text)
    four = found[3][0]
    assert four.start / SECOND == pytest.approx(len(first) / SECOND + 0.5, abs=0.15)


def test_without_any_sound_the_words_are_told_all_the_same() -> None:
    for sound in (silence(0), silence(0.5)):
        found = aligned(PauseAligner("two words", ended=True), sound)
        check(found, "two words")
    assert aligned(PauseAligner("?!", ended=True), said("something else")[0]) == []


@given(st.lists(st.integers(0, 200_000), max_size=10), st.booleans())
@settings(derandomize=True, deadline=None, max_examples=30)
def test_the_words_do_not_depend_on_the_chunks(chunks: list[int], whole_numbers: bool) -> None:
    sound, _ = said("Yes, this is it. Not that")
    if whole_numbers:
        sound = np.rint(sound * 32767).astype(np.int16)
    text = "Yes, this is it. Not that"
    once = aligned(PauseAligner(text, ended=True), sound)
    often = aligned(PauseAligner(text, ended=True), sound, chunks)
    check(often, text)
    assert [word for word, _ in often] == [word for word, _ in once]


@given(st.data())
@settings(derandomize=True, deadline=None, max_examples=60)
def test_whatever_is_heard_each_word_is_told_once_and_in_order(data: st.DataObject) -> None:
    text = data.draw(st.text(alphabet="abeo ,.好5\n", max_size=60))
    spans = data.draw(st.lists(st.tuples(st.integers(0, 8), st.floats(0.01, 1.5)), max_size=8))
    parts = [syllables(number, s) if number else silence(s) for number, s in spans]
    sound = np.concatenate([silence(0), *parts])
    aligner = PauseAligner(dropped=lambda: 480)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    found: list[tuple[AlignedWord, int]] = []
    at = 0
    for index, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(text)], strict=True)):
        aligner.append(text[begin:end])
        aligner.entered(end, data.draw(st.integers(0, 30)) + 30 * index)
        part = sound[at : len(sound) * (index + 1) // (len(cuts) + 1)]
        at += len(part)
        found += [(word, at) for word in aligner.push(part)]
    aligner.end_text()
    found += [(word, at) for word in aligner.push(sound[at:])]
    found += [(word, len(sound)) for word in aligner.end()]
    check(found, text)


# --- live text ---


def test_a_word_does_not_begin_before_its_first_token() -> None:
    """What is heard before it is of the words before, however slow that makes them."""
    text = "one two three four"
    sound = syllables(12, 4.0)
    aligner = PauseAligner(text, ended=True)
    for char_end, frame in ((3, 0), (7, 1), (13, 25), (18, 26)):
        aligner.entered(char_end, frame)
    found = aligned(aligner, sound)
    check(found, text)
    three = found[2][0]
    assert three.start >= 25 * FRAME
    early = aligned(PauseAligner(text, ended=True), sound)
    assert early[2][0].start < three.start


def test_samples_left_out_at_the_start_count_as_past() -> None:
    aligner = PauseAligner("one two", ended=True, dropped=lambda: 20 * FRAME)
    aligner.entered(3, 0)
    aligner.entered(7, 25)
    found = aligned(aligner, syllables(6, 2.0))
    assert found[1][0].start >= 5 * FRAME


def test_text_that_is_not_there_yet_is_not_told() -> None:
    aligner = PauseAligner("one ")
    sound = syllables(30, 6.0)
    assert aligner.push(sound[:SECOND]) == []
    aligner.append("two")
    assert [word.char_end for word in aligner.push(sound[SECOND : 2 * SECOND])] == [3]
    aligner.end_text()
    assert [word.char_end for word in aligner.push(sound[2 * SECOND :])] == [7]
    assert aligner.end() == []


def test_a_word_whose_tokens_have_not_gone_in_is_not_told() -> None:
    aligner = PauseAligner("one two", ended=True)
    aligner.entered(3, 0)
    sound = syllables(30, 6.0)
    assert [word.char_end for word in aligner.push(sound)] == [3]
    assert [word.char_end for word in aligner.end()] == [7]


def test_a_text_of_many_stops_is_followed() -> None:
    text = " ".join(f"This is number {name}." for name in ("one", "two", "three", "four") * 3)
    sound, begins = said(text)
    found = aligned(PauseAligner(text, ended=True, language="en"), sound)
    check(found, text)
    errors = [abs(word.start / SECOND - at) for (word, _), at in zip(found, begins, strict=True)]
    assert max(errors) < 0.2


# --- another aligner in its place ---


def test_a_forced_aligner_gives_its_words_at_the_end_in_order_and_within_the_sound() -> None:
    heard: list[tuple[int, str, int]] = []

    def align(sound: Sound, text: str, rate: int) -> list[tuple[int, int, int, int]]:
        heard.append((len(sound), text, rate))
        return [(10, 900, 0, 3), (500, 700, 4, 7), (950, 5000, 8, 9)]

    aligner = ForcedAligner(align, precision_ms=30)
    aligner.append("one ")
    aligner.append("two x")
    aligner.end_text()
    aligner.entered(3, 0)
    assert aligner.push(np.zeros(400, np.int16)) == []
    assert aligner.push(np.zeros(600, np.float32)) == []
    words = aligner.end()
    assert heard == [(1000, "one two x", SAMPLE_RATE)]
    assert [(word.start, word.end) for word in words] == [(10, 900), (900, 900), (950, 1000)]
    assert {word.precision_ms for word in words} == {30}
    assert ForcedAligner(lambda *_: [], 30).end() == []


# --- sound of the embedded engine, whose word times are exact ---

SPOKEN = {
    "en": "Thank you for calling. Your appointment is on Thursday, the fourteenth of March.",
    "de": "Leider ist der Kollege im Gespräch, aber er ruft Sie in einer halben Stunde zurück.",
    "es": "La reunión empieza a las nueve y media. Por favor, traiga los documentos de ayer.",
    "fr": "Nous avons bien reçu votre demande. Elle sera traitée avant la fin de la semaine.",
    "it": "Il treno parte dal binario quattro, e arriva poco dopo mezzogiorno.",
    "ru": "Ваш заказ отправлен вчера вечером, он будет доставлен завтра до обеда.",
    "cmn": "请您稍等一下，我帮您查一查这个号码。谢谢您的耐心。",  # noqa: RUF001
}


async def exact(engine: EmbeddedEngine, language: str, speed: float) -> tuple[Sound, list[Word]]:
    request = SynthesisRequest(SPOKEN[language], language=language, speed=speed)
    chunks = [chunk async for chunk in engine.synthesize(request)]
    sound = np.concatenate([np.frombuffer(chunk.pcm, "<i2") for chunk in chunks])
    return sound, [word for chunk in chunks for word in chunk.words]


async def test_words_of_a_synthesizer_are_found_as_precisely_as_is_stated() -> None:
    engine = EmbeddedEngine(EmbeddedSettings(workers=1))
    await engine.start()
    errors: list[float] = []
    within = 0
    try:
        for language, text in SPOKEN.items():
            for speed in (0.8, 1.0, 1.3):
                sound, words = await exact(engine, language, speed)
                found = aligned(PauseAligner(text, ended=True, language=language), sound)
                check(found, text)
                begins = {word.char_start: word.start for word in words}
                for word, _ in found:
                    if word.char_start in begins:
                        off_ms = abs(word.start - begins[word.char_start]) / SECOND * 1000
                        errors.append(off_ms)
                        within += off_ms <= word.precision_ms
    finally:
        await engine.close()
    assert len(errors) > 200
    assert np.median(errors) < 90
    assert np.percentile(errors, 90) < 300
    assert within / len(errors) > 0.93
