"""Utterances that are synthesised ahead and held: heard from their release on, or never."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import pytest

from qwen3tts_codecs.g711 import PCMA
from qwen3tts_speech.latency import Mark, UtteranceRecord
from qwen3tts_speech.line import UtteranceLog
from qwen3tts_speech.utterance import Spoken
from qwen3tts_speech.utterance_spans import client_stages, server_stages
from qwen3tts_wire.errors import BadText, EngineFailed
from tests.fakes import settle
from tests.speech.test_line import Line, words, writes


class Kept:
    """A log of utterances."""

    def __init__(self, line: Line) -> None:
        self.records: list[UtteranceRecord] = []
        self.spoken: list[Spoken] = []
        line.speaker._log = UtteranceLog(
            "call", "sip", self, lambda spoken, at: self.spoken.append(spoken)
        )

    def append(self, record: UtteranceRecord) -> None:
        self.records.append(record)

    def close(self) -> None: ...


async def test_a_prepared_utterance_is_synthesised_and_no_frame_of_it_is_played() -> None:
    line = Line()
    kept, followed = Kept(line), list[Any]()
    line.speaker.followers.append(followed.append)
    utterance = line.speaker.prepare(writes("Good ", "morning."))
    context = await line.context()
    assert context.text == "Good morning."
    assert context.ended
    context.start()
    context.sound(100)
    context.done()
    await line.clock.advance(0.35)
    assert (utterance.held, line.speaker.speaking, line.speaker.utterances) == (True, False, 0)
    assert line.sink.log == []
    assert line.sink.frames == []
    assert followed == kept.records == []
    assert context.states == ["held"], "the engine rests after its lead"
    released_at = line.clock.now()
    utterance.release()
    assert (utterance.held, line.speaker.speaking, line.speaker.utterances) == (False, True, 1)
    assert followed == [utterance]
    await settle(20)
    assert line.sink.log == ["begin 1", "finish 1"]
    assert [frame.context for frame in line.sink.frames] == [1] * 6
    await line.sink.play_all()
    spoken = await utterance.spoken()
    assert (spoken.interrupted, spoken.position) == (False, 2400)
    (record,) = kept.records
    assert record.context == "1"
    assert record.marks[Mark.RELEASED] == released_at
    assert record.prepared[Mark.RESAMPLED] < released_at <= record.marks[Mark.QUEUED]
    utterance.release()
    utterance.drop()
    assert line.speaker.utterances == 1


async def test_the_wait_for_the_first_sound_counts_from_the_release() -> None:
    record = UtteranceRecord(started_unix_s=50.0)
    record.mark(Mark.TEXT_IN, 1.0)
    record.mark(Mark.FIRST_DELTA, 1.1)
    record.mark(Mark.RECEIVED, 1.2)
    record.mark(Mark.SPEECH_END, 1.3)
    record.release(1.97)
    record.mark(Mark.TURN_END, 1.95)
    record.server_marks({"first_pcm": 1150.0})
    record.mark(Mark.QUEUED, 1.98)
    record.mark(Mark.FIRST_AUDIBLE_WIRE, 2.0)
    assert record.first_sound_ms == pytest.approx(30)
    assert record.started_unix_s == pytest.approx(50.97)
    assert [stage.name for stage in client_stages(record)] == [
        *("end of turn", "agent", "first words", "turn to speak", "silence before the sound")
    ]
    assert all(stage.ms >= 0 for stage in client_stages(record))
    assert server_stages(record) == []
    line = json.loads(record.to_json())
    assert line["prepared_ms"] == {
        "text_in": -970.0,
        "first_delta": -870.0,
        "received": -770.0,
        "first_pcm": -820.0,
    }
    assert UtteranceRecord.from_json(json.dumps(line)).first_sound_ms == pytest.approx(30)
    assert "prepared_ms" not in UtteranceRecord().to_json()


async def test_text_that_comes_after_the_release_counts_from_its_first_delta() -> None:
    record = UtteranceRecord()
    record.mark(Mark.TEXT_IN, 1.0)
    record.release(1.5)
    record.mark(Mark.FIRST_DELTA, 1.6)
    record.mark(Mark.FIRST_AUDIBLE_WIRE, 2.0)
    assert record.first_sound_ms == pytest.approx(400)


async def test_one_that_is_released_before_its_sound_is_there_is_one_like_any_other() -> None:
    line = Line()
    utterance = line.speaker.prepare("Good morning.")
    context = await line.context()
    utterance.release()
    context.sound(40)
    context.done()
    await settle(20)
    assert [frame.context for frame in line.sink.frames] == [1, 1, 1]
    await line.sink.play_all()
    assert not (await utterance.spoken()).interrupted


async def test_one_that_is_dropped_leaves_no_trace_and_frees_the_engine() -> None:
    line = Line()
    kept = Kept(line)
    utterance = line.speaker.prepare("Good morning.")
    context = await line.context()
    context.sound(100)
    await settle(20)
    utterance.drop()
    await settle(5)
    assert context.cancelled_at == [0]
    utterance.release()
    await settle(20)
    assert (line.sink.log, line.speaker.utterances, line.speaker.interrupted) == ([], 0, 0)
    assert kept.records == []
    assert kept.spoken == []
    following = line.speaker.say("Yes.")
    (await line.context(2)).sound(20)
    await settle(20)
    assert line.sink.log == ["begin 1"]
    assert following.number == 1


async def test_one_that_is_dropped_at_birth_opens_no_context() -> None:
    line = Line()
    line.speaker.prepare("Good morning.").drop()
    await settle(20)
    assert line.client.contexts == []


async def test_other_speech_does_not_wait_for_what_is_held_and_numbers_rise() -> None:
    line = Line()
    held = line.speaker.prepare("Later.")
    (await line.context()).sound(40)
    first = line.speaker.say("Now.")
    second_context = await line.context(2)
    second_context.sound(40)
    second_context.done()
    await settle(20)
    assert [frame.context for frame in line.sink.frames] == [1, 1, 1]
    held.release()
    line.client.contexts[0].done()
    await settle(20)
    assert [frame.context for frame in line.sink.frames] == [1, 1, 1, 2, 2, 2]
    await line.sink.play_all()
    await first.spoken()
    await held.spoken()


async def test_an_interruption_of_something_else_leaves_it_held() -> None:
    line = Line()
    held = line.speaker.prepare("Later.")
    line.speaker.say("Now.")
    await settle(20)
    assert len(line.speaker.interrupt()) == 1
    await settle(20)
    assert held.held
    assert not held.stopped
    held.release()
    assert line.speaker.interrupt() == [held]


async def test_a_failure_while_it_is_held_is_raised_after_its_release() -> None:
    line = Line()
    kept = Kept(line)
    held = line.speaker.prepare("Later.")
    (await line.context()).fail(EngineFailed("broken"))
    await settle(20)
    assert kept.records == []
    held.release()
    with pytest.raises(EngineFailed):
        await held.spoken()
    assert [record.end_reason for record in kept.records] == ["engine_failed"]
    assert not line.speaker.speaking


async def test_a_failure_of_what_is_dropped_is_no_error_of_the_loop() -> None:
    line = Line()
    broken: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: broken.append(what))
    held = line.speaker.prepare("Later.")
    (await line.context()).fail(EngineFailed("broken"))
    await settle(20)
    held.drop()
    del held
    await settle(20)
    assert broken == []


async def test_the_end_of_the_call_drops_what_is_held() -> None:
    line = Line()
    kept = Kept(line)
    line.speaker.prepare("Later.")
    context = await line.context()
    await line.speaker.close()
    assert context.cancelled_at == [0]
    assert kept.records == []


async def test_a_codec_that_changes_meanwhile_leaves_the_positions_exact() -> None:
    line = Line()
    held = line.speaker.prepare("Later.")
    context = await line.context()
    context.words += words("Later.", 100)
    context.sound(100)
    await settle(20)
    line.speaker.change(PCMA, 20)
    line.speaker.change(PCMA, 40)
    held.release()
    context.done()
    await settle(20)
    frames = line.sink.frames
    assert frames[0].start == 0
    assert frames[-1].end == 2400
    assert all(one.end == two.start for one, two in pairwise(frames))
    assert {len(frame.payload) for frame in frames} == {320}
    assert {frame.context for frame in frames} == {1}


async def test_no_text_is_refused_and_takes_no_number() -> None:
    line = Line()
    with pytest.raises(BadText):
        line.speaker.prepare("  ")
    assert line.speaker.say("Yes.").number == 1
