from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from qwen3tts_phone.audio.answering import Answerer, AnsweringMachineDetector, AnsweringSettings
from tests.phone.sounds import Pcm, noise, quiet, speech, tone


def listen(*parts: Pcm, rate_hz: int = 8000) -> tuple[list[Answerer], AnsweringMachineDetector]:
    detector = AnsweringMachineDetector(rate_hz)
    sound = np.concatenate(parts)
    step = rate_hz // 50
    told = [detector.push(sound[at : at + step]) for at in range(0, len(sound), step)]
    return [each for each in told if each is not None], detector


def test_a_few_words_and_then_quiet_is_a_person() -> None:
    told, detector = listen(quiet(0.5), speech(0.8), quiet(3.0))
    assert [each.kind for each in told] == ["human"]
    assert told[0].at_s == pytest.approx(0.5 + 0.8 + 1.1, abs=0.15)
    assert "speech, then quiet" in told[0].words
    assert detector.ready_s is None


def test_a_person_who_says_hello_twice_is_told_once() -> None:
    told, _ = listen(quiet(0.5), speech(0.5), quiet(1.6), speech(0.5), quiet(3.0))
    assert [each.kind for each in told] == ["human"]


def test_much_speech_is_a_machine_and_it_records_after_its_beep() -> None:
    told, detector = listen(quiet(0.5), speech(6.0), quiet(0.5), tone(1000.0, 0.4), quiet(2.0))
    assert [each.kind for each in told] == ["machine"]
    assert told[0].at_s < 4.0
    assert detector.beep is not None
    assert detector.ready_s == pytest.approx(7.4 + 0.25, abs=0.06)


def test_a_machine_that_does_not_beep_records_after_a_long_quiet() -> None:
    _, detector = listen(quiet(0.5), speech(4.0), quiet(4.0))
    assert detector.ready_s == pytest.approx(4.5 + 2.5, abs=0.1)


def test_pauses_between_sentences_do_not_make_a_person_of_a_machine() -> None:
    sentences = [part for n in range(4) for part in (speech(1.2, seed=n), quiet(0.6))]
    told, _ = listen(quiet(0.3), *sentences, quiet(2.0))
    assert [each.kind for each in told] == ["machine"]


def test_a_beep_makes_a_machine_of_a_person() -> None:
    told, detector = listen(quiet(0.3), speech(1.0), quiet(1.5), tone(1000.0, 0.3), quiet(1.0))
    assert [each.kind for each in told] == ["human", "machine"]
    assert told[1].words == "a beep"
    assert detector.ready_s is not None


def test_nobody_speaks_and_is_taken_for_somebody_when_he_does() -> None:
    told, _ = listen(quiet(6.0))
    assert [each.kind for each in told] == ["silence"]
    assert told[0].at_s == pytest.approx(3.5)
    late, _ = listen(quiet(5.0), speech(0.6), quiet(2.0))
    assert [each.kind for each in late] == ["silence", "human"]


def test_noise_of_the_line_is_no_greeting() -> None:
    told, _ = listen(noise(6.0, -42.0))
    assert [each.kind for each in told] == ["silence"]
    greeting = np.concatenate([quiet(0.6), speech(0.8), quiet(3.0)])
    told, _ = listen(greeting + noise(len(greeting) / 8000, -42.0))
    assert [each.kind for each in told] == ["human"]


def test_a_click_at_the_answer_is_no_greeting() -> None:
    told, _ = listen(speech(0.05), quiet(4.0))
    assert [each.kind for each in told] == ["silence"]


def test_ringing_that_goes_on_after_the_answer_is_no_greeting() -> None:
    told, _ = listen(tone(425.0, 1.0), quiet(1.0), speech(0.7), quiet(2.0))
    assert [each.kind for each in told] == ["human"]


def test_a_fax_machine_and_a_line_out_of_use_are_machines() -> None:
    fax, _ = listen(quiet(0.5), tone(2100.0, 3.0))
    assert [(each.kind, "fax_ced" in each.words) for each in fax] == [("machine", True)]
    rising = [tone(950.0, 0.33), tone(1400.0, 0.33), tone(1800.0, 0.33)]
    sit, _ = listen(quiet(0.2), *rising, quiet(1.0))
    assert [(each.kind, "sit" in each.words) for each in sit] == [("machine", True)]


def test_sound_without_an_end_is_decided_in_time() -> None:
    bursts = [part for n in range(30) for part in (speech(0.12, seed=n), quiet(0.5))]
    told, _ = listen(*bursts)
    assert told
    assert told[0].at_s <= 8.05


@pytest.mark.parametrize("rate_hz", [16_000, 24_000])
def test_it_works_at_the_rate_of_any_codec(rate_hz: int) -> None:
    person, _ = listen(
        quiet(0.5, rate_hz), speech(0.8, rate_hz), quiet(2.0, rate_hz), rate_hz=rate_hz
    )
    machine, _ = listen(quiet(0.5, rate_hz), speech(5.0, rate_hz), rate_hz=rate_hz)
    assert [person[0].kind, machine[0].kind] == ["human", "machine"]


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"human_quiet_s": 0.0}, "human_quiet_s"),
        ({"human_speech_s": 5.0}, "human_speech_s"),
        ({"most_s": 1.0}, "most_s"),
        ({"silence_s": 0.1}, "silence_s"),
        ({"message_quiet_s": 0.0}, "message_quiet_s"),
        ({"human_quiet_s": float("nan")}, "human_quiet_s"),
        ({"machine_speech_s": float("nan")}, "machine_speech_s"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(wrong: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        AnsweringSettings(**wrong)


@settings(max_examples=30, deadline=None)
@given(hnp.arrays(np.int16, st.integers(0, 5000)))
def test_any_sound_is_somebody_or_nobody(sound: Pcm) -> None:
    detector = AnsweringMachineDetector()
    for _ in range(3):
        told = detector.push(sound)
        assert told is None or told is detector.answerer
