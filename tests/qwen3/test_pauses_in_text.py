"""A pause anywhere in a text that goes on ends no generation, whatever the rate and the sound."""

from __future__ import annotations

from copy import deepcopy
from typing import get_args

import numpy as np
import pytest

from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_engine.guards import SoundGuard
from qwen3tts_engine.pause_aligner import PauseAligner
from qwen3tts_engine.qwen3.engine.jobs import Job, SpeechPostprocessor
from qwen3tts_engine.qwen3.engine.text_track import TextTrack
from qwen3tts_text.word_units import SpokenWords
from tests.engine.speech_like import Kind, Sound, silence, voice
from tests.qwen3.worker_world import FRAME, Letters, World

TEXTS = {
    "en": "The train to Oxford leaves at half past nine from platform four and the next one which"
    " also stops at Reading and Didcot leaves forty minutes later.",
    "de": "Der Zug nach Potsdam fährt um halb zehn von Gleis vier ab und der nächste hält auch in"
    " Wannsee und Babelsberg wenn er nicht umgeleitet wird.",
    "zh": "去北京的火车九点半从四号站台出发下一班也停靠天津和唐山四十分钟以后离开。",
}


def voicing_of(language: str) -> tuple[SpeechPostprocessor, Job]:
    text = TEXTS[language]
    job = World().job(text)
    job.track = track = TextTrack(SynthesisRequest(text), Letters())
    aligner = PauseAligner(language=language)
    return SpeechPostprocessor(track, SoundGuard(), aligner, language=language), job


def word_ends(language: str) -> list[int]:
    return [word.end for word in SpokenWords(TEXTS[language], ended=True, language=language).words]


def pushed(voicing: SpeechPostprocessor, job: Job, sound: Sound) -> float | None:
    """Seconds after which the generation ended; None: it did not."""
    for at in range(0, len(sound), FRAME):
        if voicing.process(job, sound[at : at + FRAME])[1]:
            return (at + FRAME) / 24_000
    return None


def whole_frames(sound: Sound) -> Sound:
    return np.pad(sound, (0, -len(sound) % FRAME))


@pytest.mark.parametrize("language", list(TEXTS))
@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.parametrize("rate", [0.5, 0.6, 0.7, 0.8, 1.0, 1.4])
def test_a_pause_of_two_seconds_behind_any_word_ends_nothing(
    language: str, kind: Kind, rate: float
) -> None:
    ends = word_ends(language)
    voicing, job = voicing_of(language)
    sound = voice(TEXTS[language], rate=rate, language=language, kind=kind)
    said = 0
    for end in ends[:-1]:
        share = voice(TEXTS[language][:end], rate=rate, language=language, kind=kind)
        frames = len(share) // FRAME * FRAME
        assert pushed(voicing, job, sound[said:frames]) is None
        said = frames
        assert pushed(*deepcopy((voicing, job)), silence(2.0)) is None, end


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("rate", [0.5, 0.7, 1.0, 1.4])
def test_a_voice_that_falls_silent_for_good_loses_no_word_and_repeats_three_at_most(
    language: str, rate: float
) -> None:
    ends = word_ends(language)
    for count, end in enumerate(ends, 1):
        voicing, job = voicing_of(language)
        share = voice(TEXTS[language][:end], rate=rate, language=language)
        over = pushed(voicing, job, np.concatenate((whole_frames(share), silence(60.0))))
        job.end = "silence"
        voicing.finish(job)
        unsaid = len(ends) if job.unsaid is None else sum(at <= job.unsaid for at in ends)
        assert count - 3 <= unsaid <= count
        assert over is not None
        assert over <= len(share) / 24_000 + 4.2


@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.parametrize("rate", [0.5, 1.0, 1.4])
def test_silence_for_good_behind_the_text_ends_within_the_longer_limit(
    kind: Kind, rate: float
) -> None:
    voicing, job = voicing_of("en")
    said = whole_frames(voice(TEXTS["en"], rate=rate, kind=kind))
    over = pushed(voicing, job, np.concatenate((said, silence(60.0))))
    assert over is not None
    assert len(said) / 24_000 + 1.1 <= over <= len(said) / 24_000 + 4.1


@pytest.mark.parametrize("kind", get_args(Kind))
def test_past_the_slowest_plausible_length_the_shorter_limit_holds(kind: Kind) -> None:
    voicing, job = voicing_of("en")
    said = whole_frames(voice(TEXTS["en"], rate=0.3, kind=kind))
    over = pushed(voicing, job, np.concatenate((said, silence(60.0))))
    assert over == pytest.approx(len(said) / 24_000 + 1.2, abs=0.1)


def test_more_syllables_than_any_count_is_off_by_show_that_the_text_is_spent() -> None:
    voicing, job = voicing_of("en")
    said = whole_frames(voice(TEXTS["en"] + " " + TEXTS["en"][:60]))
    over = pushed(voicing, job, np.concatenate((said, silence(60.0))))
    assert over == pytest.approx(len(said) / 24_000 + 1.2, abs=0.1)
