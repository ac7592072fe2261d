"""A pause anywhere in a text that goes on ends no generation, whatever the rate and the sound."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any, get_args

import numpy as np
import pytest

from qwen3tts_engine.base import PcmChunk, SynthesisRequest
from qwen3tts_engine.guards import SoundGuard
from qwen3tts_engine.pause_aligner import PauseAligner
from qwen3tts_engine.qwen3.engine.jobs import Job, OutputQueue, SpeechPostprocessor
from qwen3tts_engine.qwen3.engine.text_track import TextTrack
from qwen3tts_text.growing import LiveText
from qwen3tts_text.word_units import SpokenWords
from qwen3tts_wire.errors import EngineFailed
from qwen3tts_wire.heard import Word
from tests.engine.speech_like import Kind, Sound, silence, voice
from tests.qwen3.engine.worker_world import FRAME, Letters, World


def tone(frames: int) -> Any:
    return (0.3 * np.sin(np.arange(frames * FRAME) / 20)).astype(np.float32)


def silent_frames(frames: int) -> Any:
    return np.zeros(frames * FRAME, np.float32)


def voiced(text: str = "ab cd", more: LiveText | None = None) -> tuple[SpeechPostprocessor, Job]:
    track = TextTrack(SynthesisRequest(text, more=more), Letters())
    job = World().job(text)
    job.track = track
    guard = SoundGuard()
    return SpeechPostprocessor(track, guard, PauseAligner(dropped=lambda: guard.dropped)), job


def test_silence_before_the_first_sound_is_left_out_but_for_its_end() -> None:
    voicing, job = voiced()
    job.mark("slot", 1.0)
    assert voicing.process(job, silent_frames(2)) == (None, False)
    chunk, over = voicing.process(job, tone(1))
    assert chunk is not None
    assert not over
    assert FRAME < chunk.samples <= FRAME + 480
    assert chunk.marks == {"slot": 1.0}
    second, _ = voicing.process(job, tone(1))
    assert second is not None
    assert (second.samples, second.marks) == (FRAME, {})


def test_it_is_over_when_silence_lasts_after_the_text() -> None:
    voicing, job = voiced()
    voicing.process(job, tone(12))
    over = [voicing.process(job, silent_frames(5))[1] for _ in range(4)]
    # 1.2 s are 15 frames.
    assert over == [False, False, True, True]


def test_silence_while_text_is_left_is_a_pause() -> None:
    voicing, job = voiced("ab cd", LiveText())
    voicing.process(job, tone(12))
    assert not any(voicing.process(job, silent_frames(5))[1] for _ in range(10))


def test_words_are_told_once_and_the_rest_at_the_end() -> None:
    voicing, job = voiced("ab cd ef")
    words: list[Word] = []
    for _ in range(20):
        job.decoded += 1
        chunk, _ = voicing.process(job, tone(1))
        assert chunk is not None
        words += chunk.words
    job.end = "text_end"
    last = voicing.finish(job)
    assert [word.text for word in (*words, *last.words)] == ["ab", "cd", "ef"]
    assert last.end == "text_end"
    assert last.samples == 0


def test_where_all_was_silence_no_word_was_said() -> None:
    voicing, job = voiced()
    voicing.process(job, silent_frames(3))
    assert voicing.finish(job).words == ()


@pytest.mark.parametrize(
    ("text", "least_s"),
    [
        # Chinese official names: 13.7 s at 0.7 of the usual rate.
        (
            "国务院新闻办公室国家发展和改革委员会工业和信息化部人力资源和社会保障部联合发布通知",
            13.7,
        ),
        ("antidisestablishmentarianism internationalization counterrevolutionaries", 10.0),
        ("Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz, bitte sehr.", 10.0),
        ("0171 2345678 9012 3456 7890", 20.0),
        ("안녕하세요, 무엇을 도와드릴까요? 국가인권위원회입니다.", 10.0),
        ("お電話ありがとうございます。国土交通省大臣官房でございます。", 12.0),
        ("GmbH & Co. KG, XKCD, https://example.com/a_b", 15.0),
    ],
)
def test_the_cap_leaves_time_for_dense_text(text: str, least_s: float) -> None:
    voicing, _ = voiced(text)
    assert voicing.frame_cap() * 0.08 >= least_s
    assert voicing.frame_cap() < 1000


def test_a_short_text_may_use_all_frames_of_the_checkpoint() -> None:
    assert voiced("Ha!")[0].frame_cap() == 8192


async def test_a_reader_gets_what_was_put_and_then_the_end() -> None:
    room: list[int] = []
    out = OutputQueue(10, lambda: room.append(out.unread))
    await asyncio.to_thread(out.put, PcmChunk(bytes(20)))
    await asyncio.to_thread(out.put, PcmChunk(bytes(6)))
    assert out.unread == 13
    assert await out.next() == PcmChunk(bytes(20))
    assert await out.next() == PcmChunk(bytes(6))
    assert room == [3]
    waiting = asyncio.create_task(out.next())
    await asyncio.to_thread(out.finish, None)
    assert await waiting is None
    assert await out.next() is None


async def test_a_reader_gets_what_was_put_and_then_the_error() -> None:
    out = OutputQueue(10, lambda: None)
    out.put(PcmChunk(b"ab"))
    out.finish(EngineFailed("It broke."))
    assert await out.next() == PcmChunk(b"ab")
    with pytest.raises(EngineFailed):
        await out.next()


def test_what_is_put_for_a_loop_that_is_gone_is_dropped() -> None:
    async def make() -> OutputQueue:
        return OutputQueue(10, lambda: None)

    out = asyncio.run(make())
    out.put(PcmChunk(b"ab"))
    out.finish(None)


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
