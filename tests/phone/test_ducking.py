"""Ducking at each kind of sink, and what a call makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest

from qwen3tts_agent.typed_call import TypedCall
from qwen3tts_codecs.g711 import PCMA, PCMU
from qwen3tts_codecs.g722 import G722
from qwen3tts_codecs.l16 import slin
from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.gain import scale_of
from qwen3tts_pacer.memory import ContextSent
from qwen3tts_pacer.slot import Frame
from qwen3tts_phone.audio.frames import OutboundAudio, SentAudio
from qwen3tts_phone.audio.rtp_sink import RtpSink
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.types import RemoteMedia
from qwen3tts_phone.softphone.webrtc.media import WebSink
from qwen3tts_phone.streams.sink import StreamSink
from qwen3tts_speech.line import Speaker
from qwen3tts_speech.link import SpeechLink
from qwen3tts_speech.sink import FrameSink, PacerSink
from tests.fakes import FakeClock, settle
from tests.pacer.playing import At, frames
from tests.speech.fakes import FakeSink
from tests.streams.far_end import FakeWire, PlainAdapter

START = 100.0
COUNT = 60


def tones(payload: Payload, context: int = 1) -> list[Frame]:
    samples = payload.frame_samples(20)
    time = np.arange(samples * COUNT) / payload.sample_hz
    sound = np.round(8000 * np.sin(2 * np.pi * 313.7 * time)).astype(np.int16)
    return [
        Frame(
            payload.encode(sound[samples * n : samples * (n + 1)]),
            payload.encode(sound[samples * n : samples * (n + 1)] // 2),
            None,
            context,
            480 * n,
            480 * (n + 1),
        )
        for n in range(COUNT)
    ]


class Line:
    """A sink that this process paces, on a fake clock; what it hands over and taps."""

    def __init__(self, make: Callable[[Line], PacerSink], payload: Payload = PCMU) -> None:
        self.clock = FakeClock(START)
        self.payload = payload
        self.out: list[bytes] = []
        self.tapped: list[bytes] = []
        self.sink = make(self)
        self.sink.start()
        if isinstance(self.sink, WebSink | StreamSink):
            self.sink.tap(lambda payload, at: self.tapped.append(payload))

    async def runs(self, slots: int) -> list[bytes]:
        before = len(self.out)
        for _ in range(slots):
            await self.clock.advance(0.02)
        return self.out[before:]

    def says(self, context: int = 1) -> list[Frame]:
        spoken = tones(self.payload, context)
        self.sink.begin(context, "")
        self.sink.write(spoken)
        self.sink.finish(context)
        return spoken

    def scaled(self, data: bytes, before: int, after: int) -> bytes:
        scale = scale_of(self.payload.name, self.payload.sample_hz)
        assert scale is not None
        return scale(data, before, after)


def web(line: Line) -> WebSink:
    put = lambda payload, ticks: line.out.append(payload)  # noqa: E731
    return WebSink(put, line.payload, clock=line.clock, policy=At())


def stream(line: Line, *, ours: bool, lead_ms: int = 240) -> StreamSink:
    wire = FakeWire(line.clock)

    async def send(messages: Any) -> None:
        line.out += [each for each in messages if isinstance(each, bytes)]

    return StreamSink(
        PlainAdapter(line.payload, ours=ours, marks=False),
        line.payload,
        send,
        wire.send_now,
        lead_ms=lead_ms,
        clock=line.clock,
        policy=At(START) if ours else None,
    )


@pytest.mark.parametrize(
    ("make", "payload"),
    [
        (web, PCMU),
        (web, PCMA),
        (lambda line: stream(line, ours=True), PCMU),
        (lambda line: stream(line, ours=True), slin(8000)),
    ],
    ids=["browser", "browser A-law", "stream", "stream L16"],
)
async def test_the_next_frame_is_lowered(
    make: Callable[[Line], PacerSink], payload: Payload
) -> None:
    line = Line(make, payload)
    spoken = line.says()
    await settle()
    await line.runs(10)
    done = sum(each in line.out for each in [frame.payload for frame in spoken])
    assert line.sink.duck(12) == "duck"
    low = await line.runs(5)
    assert low[0] == line.scaled(spoken[done].payload, 0, 120)
    assert low[1:] == [line.scaled(each.payload, 120, 120) for each in spoken[done + 1 : done + 5]]
    line.sink.duck(0)
    full = await line.runs(2)
    assert full == [
        line.scaled(spoken[done + 5].payload, 120, 0),
        spoken[done + 6].payload,
    ]
    await line.runs(COUNT)
    assert (await line.sink.drained(1)).position == 480 * COUNT
    # The echo guard and the recording are given what went out.
    assert line.tapped[done : done + 5] == low
    await line.sink.close()


async def test_a_carrier_s_queue_plays_what_it_has_and_what_follows_is_lowered() -> None:
    line = Line(lambda line: stream(line, ours=False, lead_ms=240))
    spoken = line.says()
    await settle()
    await line.runs(10)
    done = len(line.out)
    assert done - 10 in (11, 12)  # of 240 ms
    assert line.sink.duck(12) == "duck"
    assert (await line.runs(1))[0] == line.scaled(spoken[done].payload, 0, 120)
    await line.sink.close()


@pytest.mark.parametrize("make", [web, lambda line: stream(line, ours=True)], ids=["web", "stream"])
async def test_after_an_interruption_the_next_utterance_is_at_full_level(
    make: Callable[[Line], PacerSink],
) -> None:
    line = Line(make)
    spoken = line.says()
    await settle()
    await line.runs(10)
    line.sink.duck(12)
    await line.runs(5)
    line.sink.interrupt()
    tails = [cast(bytes, each.tail) for each in spoken]
    fade, *silence = await line.runs(4)
    assert fade in [line.scaled(each, 120, 120) for each in tails]
    assert set(silence) == {PCMU.silent_frame(20)}
    again = line.says(2)
    assert await line.runs(5) == [each.payload for each in again[:5]]
    await line.sink.close()


async def test_a_codec_that_cannot_be_scaled_is_held_and_goes_on() -> None:
    line = Line(web, G722)
    spoken = line.says()
    await settle()
    await line.runs(10)
    done = len([each for each in line.out if each != G722.silent_frame(20)])
    assert line.sink.duck(12) == "hold"
    assert line.sink.duck(20) == "hold"  # a second one is no second hold
    held = await line.runs(10)
    assert held == [spoken[done - 1].tail] + [G722.silent_frame(20)] * 9
    position = line.sink.position(1)
    line.sink.duck(0)
    line.sink.duck(0)
    assert (await line.runs(3)) == [each.payload for each in spoken[done : done + 3]]
    await line.runs(COUNT)
    played = await line.sink.drained(1)
    assert position < played.position == 480 * COUNT
    assert played.starvations == 0
    await line.sink.close()


async def test_an_interruption_ends_a_hold() -> None:
    line = Line(web, G722)
    line.says()
    await settle()
    await line.runs(10)
    line.sink.duck(12)
    await line.runs(3)
    line.sink.interrupt()
    await line.runs(3)
    again = line.says(2)
    assert await line.runs(5) == [each.payload for each in again[:5]]
    line.sink.duck(12)
    await line.sink.close()
    assert line.sink.duck(12) == "hold"  # a call that is over


async def test_a_sink_without_a_format_is_held() -> None:
    got: list[bytes] = []
    clock = FakeClock(START)

    async def write(payload: bytes, slot: object) -> None:
        got.append(payload)

    sink = PacerSink(write, silence=b"silence", clock=clock)
    assert sink.duck(12) == "hold"  # not begun: no effect
    sink.begin(1, "")
    sink.write(frames(1, 0, 20))
    await settle()
    sink.duck(12)
    before = len(got)
    await clock.advance(0.1)
    assert got[before:] == [b"1/3 tail"]
    sink.duck(0)
    await clock.advance(0.1)
    assert got[before + 1] == b"1/4 head"
    await sink.close()


@pytest.mark.parametrize("db", [-1, 41, float("nan")])
async def test_a_sink_refuses_levels_out_of_bounds(db: float) -> None:
    line = Line(web)
    with pytest.raises(ValueError, match="not between 0 and 40"):
        line.sink.duck(db)
    await line.sink.close()


# --- RTP


@dataclass
class Leg:
    """A leg that plays when the test says so, and knows at which level."""

    over: bool = False
    remote: RemoteMedia | None = field(default_factory=lambda: RemoteMedia("127.0.0.1", 4000))
    commands: list[str] = field(default_factory=list)
    written: list[Frame] = field(default_factory=list)
    sent_frames: int = 0
    levels: dict[int, tuple[int, int]] = field(default_factory=dict)

    def begin(self, context: int, *, key: str) -> None: ...

    def write(self, frames: list[Frame]) -> int:
        self.written += frames
        return len(frames)

    def interrupt(self) -> int:
        self.commands.append("interrupt")
        return 1

    def duck(self, attenuation: int) -> None:
        self.commands.append(f"duck {attenuation}")

    def attenuation(self, context: int, frame: int) -> tuple[int, int]:
        assert context == 1
        return self.levels.get(frame, (0, 0))

    def sent(self, context: int) -> ContextSent | None:
        if not self.sent_frames:
            return None
        end = 480 * self.sent_frames
        return ContextSent(1, self.sent_frames, end - 480, end, 10**9, 2 * 10**9)


def rtp(leg: Leg, payload: Payload = PCMU) -> RtpSink:
    return RtpSink(cast(MediaLeg, leg), 20, payload)


def test_a_leg_is_commanded_and_reset_after_an_interruption() -> None:
    leg = Leg()
    sink = rtp(leg)
    assert sink.duck(12) == "duck"
    sink.interrupt()
    sink.interrupt()
    # Level after epoch: no frame at full level in between.
    assert leg.commands == ["duck 120", "interrupt", "duck 0", "interrupt"]
    assert rtp(leg, G722).duck(12) == "hold"


def test_taps_are_given_the_level_that_went_out() -> None:
    leg = Leg()
    sink = rtp(leg)
    outbound = OutboundAudio()
    outbound.begin(sink, PCMU)
    reader = SentAudio(outbound)
    spoken = tones(PCMU)
    sink.begin(1, "")
    sink.write(spoken)
    sink.duck(12)
    leg.levels = {3: (0, 120), 4: (120, 120), 5: (120, 0)}
    leg.sent_frames = 2
    sink.follow()
    leg.sent_frames = 8
    scale = scale_of("PCMU")
    assert scale is not None
    expected = [
        PCMU.decode(scale(frame.payload, *leg.levels.get(number, (0, 0))))
        for number, frame in enumerate(spoken[:8])
    ]
    found = [frame.samples for frame in reader.take()]
    assert np.array_equal(np.concatenate(found), np.concatenate(expected))


def test_a_leg_that_is_over_or_not_begun_is_left_alone() -> None:
    for leg in (Leg(over=True), Leg(remote=None)):
        assert rtp(leg).duck(12) == "duck"
        assert leg.commands == []


# --- speaker and call


def speaker(sink: FrameSink) -> Speaker:
    return Speaker(SpeechLink("ws://nowhere"), sink, PCMU, clock=FakeClock())


async def test_without_speech_a_duck_has_no_effect() -> None:
    sink = FakeSink()
    voice = speaker(sink)
    assert voice.duck(12) == "duck"
    voice.unduck()
    assert "duck 12" not in sink.log
    with pytest.raises(ValueError, match="not between"):
        voice.duck(50)


async def test_a_duck_ends_with_the_speech() -> None:
    sink = FakeSink()
    voice = speaker(sink)
    sound = voice.play(np.full(3200, 500, np.int16), 8000)
    await settle()
    voice.duck(12)
    assert sink.log[-1] == "duck 12"
    await sink.play_all()
    await sound.played()
    await settle()
    assert sink.log[-1] == "duck 0"
    assert not voice.speaking


async def test_between_two_utterances_it_stays() -> None:
    sink = FakeSink()
    voice = speaker(sink)
    first = voice.play(np.full(1600, 500, np.int16), 8000)
    second = voice.play(np.full(1600, 500, np.int16), 8000)
    await settle()
    voice.duck(12)
    await sink.play(10)
    await first.played()
    assert "duck 0" not in sink.log
    await settle()
    await sink.play_all()
    await second.played()
    await settle()
    assert sink.log[-1] == "duck 0"


async def test_live_sound_is_not_lowered() -> None:
    sink = FakeSink()
    voice = speaker(sink)
    live = voice.live(gives_way=False)
    await live.push(np.full(1600, 500, np.int16), 8000)
    waiting = voice.play(np.full(1600, 500, np.int16), 8000)
    await settle()
    voice.duck(12)
    assert "duck 12" not in sink.log
    live.close()
    await settle()
    voice.duck(12)
    assert "duck 12" in sink.log
    voice.interrupt()
    await asyncio.gather(waiting.settled(), return_exceptions=True)


async def test_what_was_interrupted_is_no_speech() -> None:
    sink = FakeSink()
    voice = speaker(sink)
    voice.play(np.full(16000, 500, np.int16), 8000)
    await settle()
    voice.interrupt()
    voice.duck(12)  # before the interruption has settled
    assert "duck 12" not in sink.log
    await settle(20)


async def test_a_typed_call_takes_it_without_effect() -> None:
    call = TypedCall(lambda text: None)
    assert call.duck() == "duck"
    call.unduck()
    with pytest.raises(ValueError, match="not between"):
        call.duck(-3)
    await call.hangup()
    assert call.duck() == "duck"
