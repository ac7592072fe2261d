"""A voice speaks a text: words, settings, speakers, and what it cannot say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwen3tts_engine.piper.network import Sound
from qwen3tts_engine.piper.voice import Clause, PiperVoice, SpeechSettings
from qwen3tts_engine.request_text import plain
from qwen3tts_text.word_units import WordSpans
from qwen3tts_wire.errors import BadRequest, BadText, LimitExceeded
from tests.engine.piper.tiny_vits import LOW, MANY, SYMBOLS, write_voice

TEXTS = [
    "Good morning, this is the Riverside Clinic.",
    "Dr. Smith has 25 cats; he's well-known for a lot of them, isn't he? Yes.",
    '"Yes!" he said. (No?) Well... ok: I think so - 3.14 and $5.20',
    "a b c of the U.S. at 10:30 on 1/2/2024 e.g. this",
    "Really?! The 2nd e-mail, to joe@example.com — “quoted” 你好",
]


def spoken(clause: Clause) -> Sound:
    found = []
    while len(sound := clause.next()):
        found.append(sound)
    assert clause.ended
    return np.concatenate([*found, np.zeros(0, np.float32)])


def words(voice: PiperVoice, text: str) -> list[tuple[str, int, int, str]]:
    clause = voice.clause(text, SpeechSettings(seed=1))
    total = len(spoken(clause))
    assert total == clause.samples
    return [
        (text[word.char_start : word.char_end], word.start, word.end, word.precision)
        for word in clause.words
    ]


@pytest.mark.parametrize("text", [*TEXTS, "Just one", "…and 1,000,000?"])
def test_every_word_has_its_place_in_order(tiny: dict[str, PiperVoice], text: str) -> None:
    voice = tiny["LOW"]
    clause = voice.clause(text, SpeechSettings(seed=3))
    total = len(spoken(clause))
    at, char = 0, 0
    covered: set[int] = set()
    for word in clause.words:
        assert at <= word.start < word.end <= total
        assert char <= word.char_start < word.char_end <= len(text)
        at, char = word.end, word.char_end
        covered.update(range(word.char_start, word.char_end))
    assert {
        at for span in WordSpans(plain(text)).spans if span.is_word for at in (span.start,)
    } <= (covered)


def test_a_number_or_an_abbreviation_is_one_word_of_the_text(joe: PiperVoice) -> None:
    found = words(joe, "Dr. Smith has 25 cats.")
    assert [word for word, *_ in found] == ["Dr", "Smith", "has", "25", "cats"]
    assert {precision for *_, precision in found} == {"exact"}


def test_words_that_are_spoken_as_one_share_its_time(joe: PiperVoice) -> None:
    found = words(joe, "Look for a cat.")
    assert [(word, precision) for word, _, _, precision in found] == [
        ("Look", "exact"),
        ("for", "estimated"),
        ("a", "estimated"),
        ("cat", "exact"),
    ]


def test_a_word_begins_where_it_sounds(joe: PiperVoice) -> None:
    """After a comma the voice pauses: the sound just before the next word is silent."""
    text = "Monday, Tuesday."
    clause = joe.clause(text, SpeechSettings(seed=2, length_scale=1.3))
    sound = spoken(clause)
    first, second = clause.words
    gap = sound[first.end : second.start]
    assert len(gap) > 0.05 * joe.sample_rate
    for word in (first, second):
        assert sound[word.start : word.end].std() > 8 * gap.std()


def test_the_seed_makes_the_sound(joe: PiperVoice) -> None:
    one, same, other = (
        spoken(joe.clause("Hello.", SpeechSettings(seed=seed))) for seed in (4, 4, 5)
    )
    assert np.array_equal(one, same)
    assert len(one) != len(other) or not np.array_equal(one, other)


@pytest.mark.parametrize(
    ("slower", "faster"),
    [
        (SpeechSettings(seed=1, speed=0.7), SpeechSettings(seed=1, speed=1.6)),
        (SpeechSettings(seed=1, length_scale=1.5), SpeechSettings(seed=1, length_scale=0.8)),
    ],
)
def test_speed_and_length_scale_change_the_length(
    tiny: dict[str, PiperVoice], slower: SpeechSettings, faster: SpeechSettings
) -> None:
    clauses = [tiny["LOW"].clause("Good morning to you.", one) for one in (slower, faster)]
    assert clauses[0].samples > 1.5 * clauses[1].samples


def test_without_noise_every_saying_is_the_same(tiny: dict[str, PiperVoice]) -> None:
    quiet = SpeechSettings(noise_scale=0.0, noise_w=0.0)
    sounds = [spoken(tiny["LOW"].clause("Same again.", quiet)) for _ in range(2)]
    assert np.array_equal(sounds[0], sounds[1])


def test_a_sentence_begins_only_when_the_one_before_has_sounded(
    tiny: dict[str, PiperVoice],
) -> None:
    text = "One is here. Two is there. Three."
    clause = tiny["LOW"].clause(text, SpeechSettings(seed=1))
    assert [text[w.char_start : w.char_end] for w in clause.words] == ["One", "is", "here"]
    before = clause.samples
    spoken(clause)
    assert clause.samples > before
    assert [w.char_start for w in clause.words][-1] == text.index("Three")


@pytest.mark.parametrize("text", ["", "   ", "...", "?!", "\n"])
def test_text_without_a_speakable_sign_is_no_sound(joe: PiperVoice, text: str) -> None:
    clause = joe.clause(text)
    assert (clause.samples, clause.words, clause.ended) == (0, (), True)
    assert clause.next().shape == (0,)


def test_what_is_not_text_is_refused(joe: PiperVoice) -> None:
    with pytest.raises(BadText):
        joe.clause("a\x00b")
    with pytest.raises(LimitExceeded):
        joe.clause("a" * 5001)


def test_a_long_text_is_begun_in_parts(tiny: dict[str, PiperVoice]) -> None:
    clause = tiny["LOW"].clause("many words that go on and on " * 60)
    assert len(clause.words) < 200
    spoken(clause)
    assert len(clause.words) == 7 * 60


def test_speakers_by_name_and_number(tiny: dict[str, PiperVoice]) -> None:
    voice = tiny["MANY"]
    assert dict(voice.speakers) == {"s0": 0, "s1": 1, "s2": 2, "s3": 3}
    by_name, by_number, other = (
        spoken(voice.clause("Hello.", SpeechSettings(seed=1, speaker=speaker)))
        for speaker in ("s2", 2, None)
    )
    assert np.array_equal(by_name, by_number)
    assert len(other) != len(by_name) or not np.allclose(other, by_name)
    for speaker in ("s9", 4, -1, "²", True):
        with pytest.raises(BadRequest, match="no speaker") as refused:
            voice.clause("Hello.", SpeechSettings(speaker=speaker))
        assert "s0" in refused.value.remedy


@pytest.mark.parametrize(
    "bad",
    [
        {"speed": 0},
        {"speed": float("nan")},
        {"length_scale": 0.01},
        {"noise_scale": -0.1},
        {"noise_w": float("inf")},
        {"noise_w": True},
        {"speed": None},
        {"seed": -1},
        {"seed": 1.5},
    ],
)
def test_settings_out_of_range_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(BadRequest, match=next(iter(bad))):
        SpeechSettings(**bad)  # type: ignore[arg-type]


def test_phonemes_without_an_id_are_left_out_and_reported_once(tmp_path: Path) -> None:
    ids = {symbol: [at] for at, symbol in enumerate(SYMBOLS) if symbol not in "vmŋ"}
    voice = PiperVoice.load(write_voice(tmp_path, phoneme_id_map=ids))
    assert voice.newly_unknown() == ["v"]  # of the numbers that it is tried with
    told = []
    for _ in range(3):
        assert voice.clause("Good morning, Tom.").samples
        told += voice.newly_unknown()
    assert told == ["m", "ŋ"]


@pytest.mark.parametrize("symbols", ["_^$ .", "_^$ .bpmfdtnlgkhjqxzcsr123450"])
def test_a_voice_of_other_phonemes_than_espeaks_is_refused(tmp_path: Path, symbols: str) -> None:
    ids = {symbol: [at] for at, symbol in enumerate(symbols)}
    with pytest.raises(BadRequest, match=r"eSpeak NG's phonemes of 'en-us'") as refused:
        PiperVoice.load(write_voice(tmp_path, phoneme_id_map=ids))
    assert refused.value.remedy


def test_a_text_of_which_no_phoneme_is_known_is_refused(tmp_path: Path) -> None:
    ids = {symbol: [at] for at, symbol in enumerate("_^$ .abc")}
    changes: dict[str, Any] = {"phoneme_id_map": ids, "phoneme_type": "text", "espeak": {}}
    voice = PiperVoice.load(write_voice(tmp_path, **changes))
    with pytest.raises(BadRequest, match="no id for any phoneme"):
        voice.clause("Hello.")


def test_a_phoneme_map_replaces_phonemes(tmp_path: Path) -> None:
    ids = {symbol: [at] for at, symbol in enumerate(SYMBOLS) if symbol != "ŋ"}
    changes: dict[str, Any] = {"phoneme_id_map": ids, "phoneme_map": {"ŋ": ["n", "k"]}}
    voice = PiperVoice.load(write_voice(tmp_path, **changes))
    assert voice.clause("Sing.").samples
    assert voice.newly_unknown() == []


def test_a_voice_of_characters_needs_no_espeak(tmp_path: Path) -> None:
    ids = {symbol: [at] for at, symbol in enumerate("_^$ .,abcdefghijklmnopqrstuvwxyz\u0308")}
    changes: dict[str, Any] = {"phoneme_id_map": ids, "phoneme_type": "text", "espeak": {}}
    voice = PiperVoice.load(write_voice(tmp_path, LOW, **changes))
    assert [word for word, *_ in words(voice, "Hör zu, Tom.")] == ["Hör", "zu", "Tom"]


def test_settings_and_network_must_agree(tmp_path: Path) -> None:
    ids = {**{symbol: [at] for at, symbol in enumerate(SYMBOLS)}, "q": [64]}
    with pytest.raises(BadRequest, match="goes up to 64"):
        PiperVoice.load(write_voice(tmp_path, phoneme_id_map=ids, num_symbols=256))
    with pytest.raises(BadRequest, match="num_speakers"):
        PiperVoice.load(write_voice(tmp_path, MANY, num_speakers=1, speaker_id_map={}))
    with pytest.raises(BadRequest, match="eSpeak NG has no voice 'xx-none'"):
        PiperVoice.load(write_voice(tmp_path, espeak={"voice": "xx-none"}))
