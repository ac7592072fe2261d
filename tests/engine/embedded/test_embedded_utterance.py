"""The words and the joints, on made-up sound of which every sample is known."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_engine.base import PcmChunk, SynthesisRequest
from qwen3tts_engine.embedded.utterance import HEADROOM, EspeakAudio, entry, faded_step
from qwen3tts_engine.request_text import TextPiece
from qwen3tts_wire.heard import Word

RATE = 22_050
BLOCK = 1323
"""60 ms, as the library gives it out."""


@dataclass
class Heard:
    """What an utterance gave out."""

    pcm: bytearray = field(default_factory=bytearray)
    words: list[Word] = field(default_factory=list)

    def take(self, chunk: PcmChunk | None) -> None:
        if chunk is not None:
            self.pcm += chunk.pcm
            assert all(word.end <= len(self.pcm) // 2 for word in chunk.words)
            self.words += chunk.words

    @property
    def samples(self) -> NDArray[np.int16]:
        return np.frombuffer(bytes(self.pcm), np.int16)


def voiced(samples: int, period: int = 110, seed: int = 1) -> NDArray[np.int16]:
    """A buzz with some noise, as a voice is."""
    time = np.arange(samples)
    buzz = sum(np.sin(2 * np.pi * k * time / period) / k for k in range(1, 9))
    noise = np.random.default_rng(seed).normal(0, 0.02, samples)
    return np.rint(6000 * (buzz + noise)).astype(np.int16)


def scene(*parts: tuple[int, bool]) -> NDArray[np.int16]:
    """Stretches of voice (True) and silence (False), by their samples."""
    return np.concatenate(
        [voiced(size) if loud else np.zeros(size, np.int16) for size, loud in parts]
    )


def feed(
    utterance: EspeakAudio,
    heard: Heard,
    sound: NDArray[np.int16],
    events: list[tuple[int, int]],
    *,
    until: int | None = None,
    block: int = BLOCK,
) -> None:
    """Give out ``sound`` in blocks, each with the events that lie in it."""
    for start in range(0, len(sound) if until is None else until, block):
        part = sound[start : start + block]
        begun = tuple(e for e in events if start <= e[1] < start + len(part))
        heard.take(utterance.sound(part.tobytes(), begun))


def said(text: str, sound: NDArray[np.int16], events: list[tuple[int, int]]) -> Heard:
    heard = Heard()
    utterance = EspeakAudio(SynthesisRequest(text), RATE)
    utterance.begin(TextPiece(0, text, True))
    feed(utterance, heard, sound, events)
    heard.take(utterance.end())
    heard.take(utterance.finish())
    return heard


def loud_stretches(samples: NDArray[np.int16], gap: int = 400) -> list[tuple[int, int]]:
    """First and one past the last sample of each stretch that is heard."""
    loud = np.flatnonzero(np.abs(samples.astype(np.int32)) > 300)
    edges = np.flatnonzero(np.diff(loud) > gap)
    return [(int(part[0]), int(part[-1]) + 1) for part in np.split(loud, edges + 1) if len(part)]


def test_a_word_begins_and_ends_where_it_is_heard() -> None:
    sound = scene((3000, True), (2000, False), (4000, True), (5000, False), (2500, True))
    heard = said("one two three", sound, [(0, 0), (4, 5000), (8, 14000)])
    assert [word.text for word in heard.words] == ["one", "two", "three"]
    assert len(heard.samples) == round(len(sound) * 24000 / RATE)
    for word, (start, end) in zip(heard.words, loud_stretches(heard.samples), strict=True):
        # The filter rings for some samples around an edge; the word does not.
        assert abs(word.start - start) <= 12
        assert abs(word.end - end) <= 12


def test_a_words_moment_is_scaled_to_the_nearest_sample() -> None:
    starts = [0, 3001, 7777, 12_345, 18_018]
    text = "a b c d e"
    heard = said(text, voiced(22_050), [(2 * i, start) for i, start in enumerate(starts)])
    for word, start in zip(heard.words, starts, strict=True):
        assert abs(word.start - start * 24000 / RATE) <= 0.5


def test_one_word_ends_where_the_next_begins_when_nothing_lies_between() -> None:
    heard = said("one two", voiced(6000), [(0, 0), (4, 3000)])
    assert heard.words[0].end == pytest.approx(heard.words[1].start, abs=8)


def test_the_size_of_the_portions_changes_nothing() -> None:
    sound = scene((3000, True), (2000, False), (4000, True))
    events = [(0, 0), (4, 5000)]
    usual = said("one two", sound, events)
    heard = Heard()
    utterance = EspeakAudio(SynthesisRequest("one two"), RATE)
    utterance.begin(TextPiece(0, "one two", True))
    feed(utterance, heard, sound, events, block=97)
    heard.take(utterance.end())
    heard.take(utterance.finish())
    assert heard.pcm == usual.pcm
    assert heard.words == usual.words


def test_the_words_of_a_number_are_one_word() -> None:
    heard = said("3.14 ok", voiced(8000), [(0, 0), (1, 2000), (1, 4000), (5, 6000)])
    assert [(word.text, word.char_start, word.char_end) for word in heard.words] == [
        ("3.14", 0, 4),
        ("ok", 5, 7),
    ]


def test_a_phrase_told_once_is_shared_out_by_letters_and_says_so() -> None:
    heard = said("for a day", voiced(6000), [(0, 0), (6, 4000)])
    assert [(word.text, word.precision) for word in heard.words] == [
        ("for", "estimated"),
        ("a", "estimated"),
        ("day", "exact"),
    ]
    one, two, three = heard.words
    assert one.end == two.start == pytest.approx(0.75 * three.start, abs=8)


def test_sound_without_a_word_is_not_given_out() -> None:
    heard = said("...", np.zeros(4000, np.int16), [])
    assert heard.samples.size == 0
    assert heard.words == []


def test_sound_before_the_first_word_is_given_out_with_it() -> None:
    sound = scene((2 * BLOCK + 500, False), (3000, True))
    heard = said("one", sound, [(0, 2 * BLOCK + 500)])
    assert len(heard.samples) == round(len(sound) * 24000 / RATE)
    ((start, _),) = loud_stretches(heard.samples)
    assert heard.words[0].start == pytest.approx(start, abs=12)


def test_a_word_whose_place_is_a_space_is_the_next_one_at_the_start_only() -> None:
    heard = said(" one two", voiced(6000), [(0, 0), (4, 2000), (5, 4000)])
    assert [word.text for word in heard.words] == ["one", "two"]
    assert heard.words[1].start == round(4000 * 24000 / RATE)


def test_the_pieces_of_a_text_follow_each_other() -> None:
    text = "one. two."
    heard = Heard()
    utterance = EspeakAudio(SynthesisRequest(text, offsets=tuple(range(100, 110))), RATE)
    for piece in (TextPiece(0, "one. ", True), TextPiece(5, "two.", True)):
        utterance.begin(piece)
        feed(utterance, heard, scene((3000, True), (1000, False)), [(0, 0)])
        heard.take(utterance.end())
    heard.take(utterance.finish())
    assert [(word.text, word.char_start, word.char_end) for word in heard.words] == [
        ("one", 100, 103),
        ("two", 105, 108),
    ]
    assert heard.words[1].start == round(4000 * 24000 / RATE)
    assert len(heard.samples) == round(8000 * 24000 / RATE)


@pytest.mark.parametrize("reached", [2, 5, 9])
@pytest.mark.parametrize("shift", [-25, 0, 25])
def test_a_broken_saying_is_resumed_without_a_gap_a_repeat_or_a_click(
    reached: int, shift: int
) -> None:
    text = "one two three"
    first = voiced(16_000, seed=1)
    second = voiced(16_000 + 110, seed=2)[55 - shift :][:16_000]
    events = [(0, 0), (4, 5000), (8, 11_000)]
    heard = Heard()
    utterance = EspeakAudio(SynthesisRequest(text), RATE)
    utterance.begin(TextPiece(0, text, True))
    feed(utterance, heard, first, events, until=reached * BLOCK)
    given = len(heard.samples)
    utterance.again()
    feed(utterance, heard, second, events)
    heard.take(utterance.end())
    heard.take(utterance.finish())
    assert [word.text for word in heard.words] == ["one", "two", "three"]
    undisturbed = said(text, first, events)
    assert len(heard.samples) == pytest.approx(len(undisturbed.samples), abs=0.013 * 24000)
    for word, usual in zip(heard.words, undisturbed.words, strict=True):
        assert word.start == pytest.approx(usual.start, abs=0.013 * 24000)
    steps = np.abs(np.diff(heard.samples.astype(np.int32)))
    joint = slice(given - 200, given + 400)
    assert steps[joint].max() <= 1.1 * np.delete(steps, range(given - 200, given + 400)).max()


def test_a_saying_that_breaks_off_twice_is_still_said_whole() -> None:
    text = "one two three"
    events = [(0, 0), (4, 5000), (8, 11_000)]
    heard = Heard()
    utterance = EspeakAudio(SynthesisRequest(text), RATE)
    utterance.begin(TextPiece(0, text, True))
    feed(utterance, heard, voiced(16_000, seed=1), events, until=3 * BLOCK)
    for seed, reached in ((2, 2), (3, 8)):
        utterance.again()
        feed(utterance, heard, voiced(16_000, seed=seed), events, until=reached * BLOCK)
    utterance.again()
    feed(utterance, heard, voiced(16_000, seed=4), events)
    heard.take(utterance.end())
    heard.take(utterance.finish())
    assert [word.text for word in heard.words] == ["one", "two", "three"]
    assert len(heard.samples) == pytest.approx(16_000 * 24000 / RATE, abs=0.026 * 24000)


def test_a_second_saying_that_is_shorter_just_ends() -> None:
    heard = Heard()
    utterance = EspeakAudio(SynthesisRequest("one"), RATE)
    utterance.begin(TextPiece(0, "one", True))
    feed(utterance, heard, voiced(6 * BLOCK), [(0, 0)])
    utterance.again()
    feed(utterance, heard, voiced(6 * BLOCK - 40), [(0, 0)])
    heard.take(utterance.end())
    heard.take(utterance.finish())
    assert [word.text for word in heard.words] == ["one"]
    assert len(heard.samples) == pytest.approx(6 * BLOCK * 24000 / RATE, abs=0.013 * 24000)


def test_sound_of_full_scale_is_brought_down_before_it_is_filtered() -> None:
    full = np.clip(voiced(6000).astype(np.int32) * 5, -32768, 32767).astype(np.int16)
    heard = said("one", full, [(0, 0)])
    peak = np.abs(heard.samples.astype(np.int32)).max()
    assert 32768 * HEADROOM <= peak < 32767


def test_the_entry_is_found_where_the_wave_is_alike() -> None:
    first, second = voiced(6000, seed=1), voiced(6100, seed=2)[30:]
    at = entry(first[:4000][-330:], second, 4000, 264)
    assert (at + 30 - 4000) % 110 in (0, 1, 109)


def test_silence_is_entered_where_it_was_left() -> None:
    silence = np.zeros(6000, np.int16)
    assert entry(silence[:330], silence, 4000, 264) == 4000


def test_nothing_to_compare_is_entered_where_it_was_left() -> None:
    nothing = np.zeros(0, np.int16)
    assert entry(nothing, voiced(1000), 500, 264) == 500
    assert entry(voiced(330), voiced(100), 500, 264) == 100


def test_a_step_is_faded_within_full_scale() -> None:
    sound = np.full(200, 32000, np.int16)
    faded = faded_step(sound, 2000, 100)
    assert faded[0] == 32767
    assert np.array_equal(faded[100:], sound[100:])
    assert np.all(np.diff(faded.astype(np.int32)) <= 0)
    assert np.array_equal(faded_step(sound, 0, 100), sound)
