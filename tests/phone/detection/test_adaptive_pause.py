"""The pause that ends a turn, by rules."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.detection.adaptive_pause import (
    DECIDABLE,
    HIGH,
    LOW,
    RULES,
    AdaptivePause,
    ChosenPause,
    PauseCues,
)
from qwen3tts_phone.detection.prosody import LastSound
from qwen3tts_phone.detection.settings import PRESETS, ListenSettings, listen_preset
from qwen3tts_phone.detection.turn_text.reading import TextEnd
from qwen3tts_phone.detection.turn_text.words import LANGUAGES

FALLING, UNCLEAR, LEVEL = LastSound(-8, -8), LastSound(-4, -5), LastSound(1, 1)
SENTENCE = PauseCues("The heating is broken", "en", True, 1.5, FALLING)


def chosen(cues: PauseCues, said: str = "", **settings: int) -> tuple[float, str]:
    """Pause in ms, and rule."""
    rules = AdaptivePause(ListenSettings(adaptive_pause=True, **settings))  # type: ignore[arg-type]
    rules.expect(said)
    pause = rules.choose(cues)
    return round(1000 * pause.pause_s), pause.rule


def test_a_complete_sentence_whose_melody_falls_ends_early() -> None:
    assert chosen(SENTENCE) == (250, "sentence:falling")
    unclear, rule = chosen(replace(SENTENCE, sound=UNCLEAR))
    level, _ = chosen(replace(SENTENCE, sound=LEVEL))
    assert rule == "sentence:unclear"
    assert 250 < unclear < level
    assert chosen(replace(SENTENCE, sound=None)) == (unclear, "sentence:unclear")


@pytest.mark.parametrize(
    ("text", "said", "least", "rule"),
    [
        ("My number is 555", "", 1200, "digits"),
        ("555 019", "What is your nine-digit number?", 1200, "digits"),
        ("s m i", "", 1000, "spelling"),
        ("john at", "Your email address, please?", 1200, "email"),
        ("Monday, Tuesday", "", 800, "list:falling"),
        ("I need a table for", "", 500, "open_word:falling"),
        ("Well, um", "", 1000, "filler:falling"),
    ],
)
def test_what_goes_on_is_waited_for_though_melody_and_detector_say_that_it_is_over(
    text: str, said: str, least: float, rule: str
) -> None:
    cues = replace(SENTENCE, text=text, probability=0.99)
    pause_ms, name = chosen(cues, said)
    assert name == rule
    assert least <= pause_ms <= 1500


@pytest.mark.parametrize("text", ["Yes.", "No, thank you."])
def test_a_short_answer_ends_early_whatever_its_melody(text: str) -> None:
    for sound in (FALLING, UNCLEAR, LEVEL, None):
        cues = replace(SENTENCE, text=text, sound=sound, probability=0.01)
        assert chosen(cues) == (250, "answer")


def test_an_answer_may_be_the_beginning_of_what_was_asked_for() -> None:
    pause_ms, rule = chosen(replace(SENTENCE, text="Sure."), "Can I have your number?")
    assert rule == "consent:falling"
    assert pause_ms > 600


def test_until_the_words_are_there_the_settings_pause_holds() -> None:
    assert chosen(replace(SENTENCE, text=None)) == (600, "")
    assert chosen(replace(SENTENCE, text=None, sound=LEVEL)) == (900, "sound:level")


def test_without_recogniser_or_table_the_melody_decides() -> None:
    for cues in (
        replace(SENTENCE, text=None, words_expected=False),
        replace(SENTENCE, text="De verwarming is kapot", language="nl"),
        replace(SENTENCE, text="...", language="en"),
    ):
        assert chosen(cues) == (450, "sound:falling")
        assert chosen(replace(cues, sound=None)) == (600, "sound:unclear")


def test_the_language_of_the_settings_comes_before_that_of_a_recogniser() -> None:
    rules = AdaptivePause(ListenSettings(adaptive_pause=True, language="en"))
    assert rules.choose(replace(SENTENCE, language="")).rule == "sentence:falling"
    assert rules.choose(replace(SENTENCE, language="nl")).rule == "sentence:falling"
    rules = AdaptivePause(ListenSettings(adaptive_pause=True, language="nl"))
    assert rules.choose(SENTENCE).rule == "sound:falling"


def test_a_detector_is_one_opinion() -> None:
    assert chosen(replace(SENTENCE, sound=LEVEL, probability=HIGH)) == (250, "detector:end")
    assert chosen(replace(SENTENCE, probability=LOW - 0.01)) == (1200, "detector:wait")
    assert chosen(replace(SENTENCE, probability=LOW)) == (250, "sentence:falling")
    assert chosen(replace(SENTENCE, probability=0.94)) == (250, "sentence:falling")


def test_a_detector_that_is_early_waits_for_the_words_that_may_contradict_it() -> None:
    early = replace(SENTENCE, text=None, probability=0.99)
    assert chosen(early) == (400, "detector:end")
    assert chosen(replace(early, words_expected=False)) == (250, "detector:end")
    assert chosen(early, pause_ms=300) == (300, "detector:end")


def test_the_callers_own_pauses_are_waited_for() -> None:
    rules = AdaptivePause(ListenSettings(adaptive_pause=True))
    unclear = replace(SENTENCE, sound=UNCLEAR)
    before = rules.choose(unclear).pause_s
    rules.note_pause(0.7)
    assert rules.choose(unclear).pause_s == before, "of one pause nothing follows"
    for _ in range(3):
        rules.note_pause(0.7)
    after = rules.choose(unclear)
    assert after.rule == "sentence:unclear:own_pauses"
    assert after.pause_s == pytest.approx(0.805)
    assert after.pause_s > before
    rules.note_pause(60.0)
    assert rules.choose(unclear).pause_s <= 1.0
    assert rules.choose(SENTENCE).rule == "sentence:falling", "what is over, is over"


def test_slow_speakers_and_long_turns_are_waited_for() -> None:
    unclear = replace(SENTENCE, sound=UNCLEAR)
    usual, _ = chosen(unclear)
    slow, rule = chosen(replace(unclear, speech_s=4.0))
    assert rule == "sentence:unclear:slow"
    assert slow > usual
    text = (
        "The heating in the house in which my mother lives has been broken since yesterday evening"
    )
    long, rule = chosen(replace(unclear, text=text + " " + text, speech_s=12.0))
    assert rule == "sentence:unclear:long"
    assert long > usual


def test_the_settings_pause_scales_what_is_not_complete() -> None:
    unclear = replace(SENTENCE, sound=UNCLEAR)
    assert chosen(unclear, pause_ms=1200)[0] == 2 * chosen(unclear)[0]
    assert chosen(unclear, pause_ms=300)[0] == 250
    assert chosen(SENTENCE, pause_ms=1200)[0] == 250
    assert chosen(SENTENCE, pause_ms=200, notice_ms=150)[0] == 200


def test_the_kinds_that_a_detector_may_decide_are_not_those_that_go_on() -> None:
    waited = {TextEnd.DIGITS, TextEnd.SPELLING, TextEnd.EMAIL, TextEnd.LIST, TextEnd.OPEN_WORD}
    assert not waited & DECIDABLE
    assert set(RULES) == set(TextEnd)
    assert all(row.falling <= row.unclear <= row.level for row in RULES.values())


@given(
    st.builds(
        PauseCues,
        text=st.one_of(st.none(), st.text(), st.sampled_from(["555", "a b", "Yes", "x at"])),
        language=st.sampled_from([*LANGUAGES, "", "xx"]),
        words_expected=st.booleans(),
        speech_s=st.floats(0, 60),
        sound=st.sampled_from([None, FALLING, UNCLEAR, LEVEL]),
        probability=st.one_of(st.none(), st.floats(0, 1)),
    ),
    st.lists(st.floats(0, 100), max_size=20),
    st.sampled_from(sorted(PRESETS)),
    st.text(),
)
def test_every_pause_is_within_the_limits(
    cues: PauseCues, own: list[float], preset: str, said: str
) -> None:
    settings = listen_preset(preset, adaptive_pause=True)
    rules = AdaptivePause(settings)
    rules.expect(said)
    for pause_s in own:
        rules.note_pause(pause_s)
    pause = rules.choose(cues)
    assert settings.min_pause_ms <= 1000 * pause.pause_s + 1e-9
    assert 1000 * pause.pause_s <= settings.max_pause_ms + 1e-9
    assert pause.rule or pause == rules.default


def test_a_detector_that_is_sure_ends_after_the_least_pause_of_a_preset() -> None:
    rules = AdaptivePause(listen_preset("patient"))
    assert rules.by_detector(0.99, (0.1, 0.95)) == ChosenPause(0.4, "detector:end")
