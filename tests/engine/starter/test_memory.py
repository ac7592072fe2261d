"""What is kept of openings: bounded, by what they say and how."""

from __future__ import annotations

import itertools
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_engine.base import PcmChunk, SynthesisRequest
from qwen3tts_engine.starter.engine import StarterSettings
from qwen3tts_engine.starter.memory import (
    ENTRY_BYTES,
    FADE,
    WORD_BYTES,
    CachedSound,
    CacheKey,
    OpeningCache,
    SpeechStyle,
    cached_sound,
)
from qwen3tts_text.openings import folded
from qwen3tts_text.segmenter import Segmenter, SegmenterSettings
from qwen3tts_wire.heard import Word
from qwen3tts_wire.messages import Sampling

KEY_BYTES = 4
"""What a key of one letter counts for."""


def entry(size: int, text: str = "x") -> CachedSound:
    """One that counts for ``size`` bytes, with a key of one letter."""
    return CachedSound(text, (PcmChunk(bytes(size - KEY_BYTES - ENTRY_BYTES)),))


def key(text: str, *, final: bool = False, style: SpeechStyle | None = None) -> CacheKey:
    return CacheKey(style or SpeechStyle(), folded(text), final)


def test_the_longest_unused_goes_first() -> None:
    memory = OpeningCache(30_000)
    for name in "abc":
        assert memory.keep(key(name), entry(10_000))
    assert memory.find(key("a"))
    assert memory.keep(key("d"), entry(10_000))
    assert [bool(memory.find(key(name))) for name in "abcd"] == [True, False, True, True]
    assert (memory.bytes, len(memory)) == (30_000, 3)


def test_what_is_pinned_stays_and_what_does_not_fit_is_not_kept() -> None:
    memory = OpeningCache(30_000)
    assert memory.keep(key("a"), entry(10_000))
    assert memory.keep(key("p"), entry(15_000), pinned=True)
    assert memory.keep(key("q"), entry(15_000), pinned=True)
    assert memory.find(key("a")) is None
    assert not memory.keep(key("b"), entry(10_000))
    assert not memory.keep(key("r"), entry(10_000), pinned=True)
    assert memory.keep(key("p"), entry(29_000)), "it is there already"
    assert memory.bytes == 30_000
    memory.clear()
    assert (memory.bytes, len(memory), memory.phrases(SpeechStyle())) == (0, 0, None)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 20), st.booleans()), max_size=60))
def test_the_bound_holds_whatever_is_kept(steps: list[tuple[int, int, bool]]) -> None:
    memory = OpeningCache(30_000)
    for name, size, pinned in steps:
        if size % 5 == 0:
            memory.find(key(str(name)))
        memory.keep(key(str(name)), entry(size * 2000), pinned=pinned)
        entries = [*memory._pinned.items(), *memory._others.items()]
        assert memory.bytes == sum(key.bytes + each.bytes for key, each in entries) <= 30_000


def test_what_a_caller_writes_counts() -> None:
    memory = OpeningCache(30_000)
    long = key("a", style=SpeechStyle(instructions="x" * 8_000))
    assert not memory.keep(long, entry(2000))
    assert memory.bytes == 0


def test_openings_are_those_that_something_may_follow() -> None:
    memory = OpeningCache(1 << 20)
    german = SpeechStyle(language="de")
    memory.keep(key("Sure,"), entry(2000), pinned=True)
    memory.keep(key("Fine.", final=True), entry(2000), pinned=True)
    memory.keep(key("Gut,", style=german), entry(2000), pinned=True)
    memory.keep(key("I would like"), entry(2000))
    memory.keep(key("I see."), entry(2000))
    phrases = memory.phrases(SpeechStyle())
    assert phrases is not None
    assert phrases.texts == {"sure,", "i see."}
    assert memory.phrases(SpeechStyle()) is phrases
    memory.keep(key("Well,"), entry(2000))
    again = memory.phrases(SpeechStyle())
    assert again is not None
    assert "Well," in again
    assert memory.phrases(SpeechStyle("other")) is None


def test_styles_that_sound_alike_are_one() -> None:
    assert SpeechStyle(language="pt_BR", instructions="") == SpeechStyle(language="pt-br")
    assert SpeechStyle(sampling=Sampling()) == SpeechStyle()
    assert SpeechStyle(sampling=Sampling(temperature=0.0)) != SpeechStyle()
    assert SpeechStyle(seed=0) != SpeechStyle()


def test_words_stand_where_the_request_has_them() -> None:
    chunk = PcmChunk(bytes(20), (Word("Sure,", 0, 10, 0, 5, "estimated", 40.0),))
    found = cached_sound("Sure,", [chunk])
    assert found is not None
    request = SynthesisRequest("sure,", offsets=(2, 3, 4, 5, 6, 9))
    (said,) = found.said_for(request)
    assert said.words == (Word("sure,", 0, 10, 2, 7, "estimated", 40.0),)
    assert found.bytes == ENTRY_BYTES + WORD_BYTES + 20
    assert found.samples == 10


@pytest.mark.parametrize("end", ["frame_cap", "dry"])
def test_what_was_cut_off_is_not_kept(end: str) -> None:
    assert cached_sound("x", [PcmChunk(bytes(8)), PcmChunk(b"", end=end)]) is None  # type: ignore[arg-type]
    assert cached_sound("x", []) is None
    assert cached_sound("x", [PcmChunk(b"")]) is None


@pytest.mark.parametrize("size", [1, FADE, 3 * FADE])
def test_a_sound_that_breaks_off_is_faded_out(size: int) -> None:
    loud = array("h", [20_000] * size).tobytes()
    found = cached_sound("x", [PcmChunk(loud), PcmChunk(loud), PcmChunk(b"", end="text_end")])
    assert found is not None
    first, last, _ = (array("h", each.pcm) for each in found.chunks)
    assert first.tobytes() == loud
    assert len(last) == size
    assert last[-1] == 0
    steps = [abs(one - other) for one, other in itertools.pairwise(last)]
    assert max(steps, default=0) <= 20_000 / FADE + 1


@pytest.mark.parametrize("samples", [[20_000, -300], [0, 4000, 8000, 4000]])
def test_a_sound_that_ends_without_a_step_is_as_it_was(samples: list[int]) -> None:
    pcm = array("h", samples).tobytes()
    found = cached_sound("x", [PcmChunk(pcm)])
    assert found is not None
    assert found.chunks[0].pcm == pcm


# --- settings ---


@pytest.mark.parametrize(
    "bad",
    [
        {"phrases": ("",)},
        {"phrases": ("...",)},
        {"phrases": ("a" * 201,)},
        {"max_bytes": -1},
        {"remember_chars": -1},
        {"remember_chars": 1000},
        {"prepare_timeout_s": 0.0},
        {"prepare_timeout_s": float("nan")},
        {"starter_chars": (6, 2)},
        {"main_chars": (0, 60)},
        {"main_chars": (20, 60, 80)},
    ],
)
def test_settings_that_cannot_be_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        StarterSettings(**bad)  # type: ignore[arg-type]


def test_what_is_wanted() -> None:
    assert not StarterSettings().wanted
    assert StarterSettings(phrases=("Yes.",)).wanted
    assert StarterSettings(remember=True).wanted
    assert StarterSettings(dual_segment=True).wanted


def cut(text: str) -> list[str]:
    settings = StarterSettings(dual_segment=True).clauses(SegmenterSettings())
    segmenter = Segmenter(settings)
    return [each.text for each in (*segmenter.push(text), *segmenter.end()) if each.text]


@pytest.mark.parametrize(
    ("text", "starter"),
    [
        ("好的，我来帮你查一下今天的天气怎么样，请稍等一下好吗？", "好的，"),  # noqa: RUF001
        ("Well, I would be glad to look that up for you today.", "Well,"),
        ("Yes. I would be glad to look that up for you today.", "Yes."),
        ("I would be very glad to look that up for you today.", "I would be"),
    ],
)
def test_a_dual_text_begins_with_a_few_words(text: str, starter: str) -> None:
    assert cut(text)[0] == starter


HAN = "今天天气很好我们一起去公园散步吧然后再去吃饭看电影回家休息睡觉明天继续工作学习生活" * 4


def test_a_dual_text_of_han_has_2_to_6_and_then_20_to_60_characters() -> None:
    starter, *main = cut(HAN)
    assert 2 <= len(starter) <= 6
    assert "".join((starter, *main)) == HAN
    assert all(20 <= len(each) <= 60 for each in main[:-1])
    marked = "，".join(HAN[begin : begin + 9] for begin in range(0, len(HAN), 9)) + "。"  # noqa: RUF001
    starter, *main = cut(marked)
    assert 2 <= len(starter) <= 6
    assert all(20 <= len(each) <= 60 for each in main[:-1])
    assert all(each[-1] in "，。" for each in main)  # noqa: RUF001


def test_without_dual_segment_texts_are_cut_as_they_were() -> None:
    settings = SegmenterSettings((3,), (7,), (50,), 90)
    assert StarterSettings().clauses(settings) is settings
