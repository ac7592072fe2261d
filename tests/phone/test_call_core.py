"""The core of a call: events, keys, recordings, the end; incoming calls without a program."""

from __future__ import annotations

import asyncio
import gc
import json
import wave
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from qwen3tts_codecs import PCMA, PCMU, Payload
from qwen3tts_pacer.slot import Frame
from qwen3tts_phone.audio.frames import HeardFrame, KeyPressed, Tap
from qwen3tts_phone.call.core import CallCore, CallVoice
from qwen3tts_phone.call.events import (
    MAX_UNREAD_EVENTS,
    CallAnswered,
    CallEnded,
    CodecChanged,
    EventStream,
    InfoHeard,
    TimedEvent,
)
from qwen3tts_phone.call.incoming import RETRY_AFTER_S, refuse_with_retry_after
from qwen3tts_phone.errors import StreamLost, WrongState
from qwen3tts_phone.facts import MAX_NOTED_KEYS, CallFacts, EndFacts
from qwen3tts_phone.media.dtmf import KEYS_BURST
from qwen3tts_phone.records.store import CallStore
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_speech.link import SpeechLink, VoiceOptions
from qwen3tts_speech.sink import DuckMode, Interruption, Played
from tests.fakes import FakeClock, settle

LOUD = np.full(160, 8000, np.int16)


class HastySink:
    """Plays what it is given at once, frame after frame."""

    def __init__(self, clock: FakeClock) -> None:
        self.last_at: float | None = None
        self.was_gone = False
        self._clock = clock
        self._taps: list[Tap] = []
        self._positions: dict[int, int] = {}
        self._count = 0

    def begin(self, context: int, key: str) -> None:
        self._positions[context] = 0

    def write(self, frames: Sequence[Frame]) -> int:
        for frame in frames:
            self._positions[frame.context] = frame.end
            at = self._clock.now() + self._count * 0.02
            self._count += 1
            for tap in self._taps:
                tap(frame.payload, at)
        return len(frames)

    async def room(self) -> None:
        await asyncio.sleep(0)

    def finish(self, context: int) -> None:
        """Nothing waits."""

    async def drained(self, context: int) -> Played:
        self.last_at = self._clock.now()
        return Played(self._positions[context])

    def position(self, context: int) -> int:
        return self._positions.get(context, 0)

    def waiting_s(self, context: int) -> float:
        return 0.0

    changes_codec = False

    def resume_at(self, context: int) -> int | None:
        return None

    def duck(self, db: float) -> DuckMode:
        return "duck"

    def interrupt(self) -> None:
        """Nothing waits."""

    async def interrupted(self) -> Interruption:
        return Interruption(self._clock.now())

    def tap(self, tap: Tap) -> None:
        self._taps.append(tap)

    def untap(self, tap: Tap) -> None:
        self._taps.remove(tap)

    def follow(self) -> None:
        """The taps are told at once."""

    def gone(self) -> None:
        self.was_gone = True


def made(
    clock: FakeClock, records: RecordSettings | None = None, payload: Payload = PCMU
) -> tuple[CallCore, HastySink]:
    facts = CallFacts(call_id="MZ1", line="twilio", direction="in", started_wall=1_800_000_000.0)
    facts.started_at = clock.now()
    voice = CallVoice(SpeechLink("ws://127.0.0.1:1/v1/speech"), VoiceOptions())
    core = CallCore(facts, clock, voice, CallStore(records or RecordSettings(), None, clock))
    sink = HastySink(clock)
    core.begin(payload, sink)
    return core, sink


async def test_a_call_of_any_line_speaks_hears_and_leaves_its_record(tmp_path: Path) -> None:
    clock = FakeClock()
    log = tmp_path / "calls.jsonl"
    core, sink = made(clock, RecordSettings(log=log, audio=tmp_path / "audio"))
    before = core.may_speak
    core.answered()
    core.answered()  # harmless
    assert (before, core.may_speak) == (False, True)
    assert core.speaker is not None
    sound = core.speaker.play(np.tile(LOUD, 10), 8000)
    await settle()
    assert await sound.played()
    for number in range(100):
        core.inbound.take(HeardFrame(LOUD, clock.now(), False, 8000, number * 160))
        await clock.advance(0.02)
    core.pressed(KeyPressed(clock.now(), "5", 100, "stream"))
    await core.finish(EndFacts(by="remote"), "they hung up")
    assert sink.was_gone
    events = [event async for event in core.event_stream.all()]
    assert [type(event) for event in events] == [CallAnswered, KeyPressed, CallEnded]
    record = json.loads(log.read_text())
    assert (record["id"], record["line"], record["dtmf_in"]) == ("MZ1", "twilio", 1)
    assert record["end"]["words"] == "the other side hung up"
    (path,) = record["recording"]
    with wave.open(path, "rb") as file:
        both = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, 2)
    assert (np.abs(both.astype(int)) > 7000).sum(axis=0)[1] == pytest.approx(1600, abs=10)
    assert (np.abs(both.astype(int)) > 7000).sum(axis=0)[0] > 12_000


async def test_keys_that_no_person_presses_are_dropped_and_counted_and_few_are_kept() -> None:
    clock = FakeClock()
    core, _ = made(clock)
    for _ in range(3000):
        core.pressed(KeyPressed(clock.now(), "5", 100, "stream"))
    assert core.facts.keys_ignored == 3000 - KEYS_BURST
    for _ in range(2000):
        clock.jump(0.1)
        core.pressed(KeyPressed(clock.now(), "5", 100, "stream"))
    facts = core.facts
    assert (len(facts.keys_in), facts.keys_in_more) == (
        MAX_NOTED_KEYS,
        KEYS_BURST + 2000 - MAX_NOTED_KEYS,
    )


async def test_a_second_end_waits_for_the_first_and_changes_nothing() -> None:
    core, _ = made(FakeClock())
    first = asyncio.create_task(core.finish(EndFacts(by="remote"), "they hung up"))
    await asyncio.sleep(0)
    await core.finish(EndFacts(by="local"), "we hung up")
    await first
    assert core.cause == "they hung up"
    assert len([event async for event in core.event_stream.all()]) == 1


async def test_whoever_waits_for_the_answer_learns_why_there_is_none() -> None:
    core, _ = made(FakeClock())
    error = StreamLost("The connection closed.", remedy="Call again.")
    await core.finish(EndFacts(by="error", error=error), "the stream broke")
    with pytest.raises(StreamLost):
        await core.up
    with pytest.raises(WrongState, match="The call is over: the stream broke"):
        core.check_up()
    (event,) = [event async for event in core.event_stream.all()]
    assert isinstance(event, CallEnded)
    assert (event.code, event.remedy) == ("stream_lost", "Call again.")


async def test_what_a_call_has_begun_ends_with_it() -> None:
    core, _ = made(FakeClock())
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    core.start(work(), "work")
    await settle()
    await core.finish(EndFacts(by="local"), "we hung up")
    assert ended.is_set()


async def test_a_change_of_codec_is_told_and_what_is_said_goes_on_in_it() -> None:
    core, _ = made(FakeClock())
    core.answered()
    core.change(PCMA, 20)
    core.changed()
    assert core.payload is PCMA
    assert core.speaker is not None
    assert core.speaker.payload is PCMA
    await core.finish(EndFacts(by="local"), "we hung up")
    events = [event async for event in core.event_stream.all()]
    assert CodecChanged in [type(event) for event in events]


async def test_nothing_is_recorded_after_the_end(tmp_path: Path) -> None:
    clock = FakeClock()
    records = RecordSettings(audio=tmp_path / "audio")
    facts = CallFacts(call_id="1")
    voice = CallVoice(SpeechLink("ws://127.0.0.1:1/v1/speech"), VoiceOptions())
    core = CallCore(facts, clock, voice, CallStore(records, None, clock))
    await core.finish(EndFacts(by="remote"), "they hung up")
    core.begin(PCMU, HastySink(clock))
    assert core.recordings.automatic is None
    assert list((tmp_path / "audio").iterdir()) == []


async def test_a_far_end_cannot_fill_the_memory_of_a_program_that_does_not_listen() -> None:
    news = EventStream()
    for number in range(3 * MAX_UNREAD_EVENTS):
        news.publish(InfoHeard(float(number), "text/plain", "x"))
    news.publish(CallEnded(9.0, "they hung up"))
    news.close()
    heard: list[TimedEvent] = [event async for event in news.all()]
    assert len(heard) == MAX_UNREAD_EVENTS + 1
    assert [event.at for event in heard[:3]] == [0.0, 1.0, 2.0]
    assert isinstance(heard[-1], CallEnded)


async def test_who_follows_a_call_misses_nothing_from_when_he_asks() -> None:
    news = EventStream()
    news.publish(InfoHeard(1.0, "text/plain", "before"))
    first = news.following()
    news.publish(InfoHeard(2.0, "text/plain", "not read yet"))
    second = news.following()
    news.publish(CallEnded(3.0, "they hung up"))
    news.close()
    assert [event.at async for event in first] == [2.0, 3.0]
    assert [event.at async for event in second] == [3.0]
    assert [event.at async for event in news.all()] == [1.0, 2.0, 3.0]
    assert [event async for event in first] == []
    assert [event async for event in news.following()] == []


async def test_who_follows_no_more_is_forgotten() -> None:
    news = EventStream()
    async for _ in _one(news):
        break
    gc.collect()
    assert len(news._followers) == 0


def _one(news: EventStream) -> AsyncIterator[TimedEvent]:
    following = news.following()
    news.publish(InfoHeard(1.0, "text/plain", "x"))
    return following


class Sip:
    """A call that came in, as far as it is refused."""

    def __init__(self, over: bool = False) -> None:
        self.refused: tuple[int, dict[str, str]] | None = None
        self._over = over

    async def reject(
        self, status: int = 486, reason: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        if self._over:
            raise WrongState("The call is over.")
        self.refused = status, dict(headers or {})


async def test_a_call_for_which_nothing_is_free_is_told_when_to_come_again() -> None:
    sip = Sip()
    await refuse_with_retry_after(cast(Any, sip))
    assert sip.refused == (503, {"Retry-After": str(RETRY_AFTER_S)})


async def test_a_call_that_is_over_is_not_refused_again() -> None:
    sip = Sip(over=True)
    await refuse_with_retry_after(cast(Any, sip))
    assert sip.refused is None
