"""Calls over media streams: the caller's side on a fake clock, and a real agent of ours."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone.audio.frames import HeardFrame, KeyPressed, SentFrame
from qwen3tts_phone.errors import CalleeUnreachable, NotPossible
from qwen3tts_phone.streams.carriers.http import CarrierRequest
from qwen3tts_phone.streams.carriers.twilio import TwilioSignature
from qwen3tts_phone.streams.server import Streams
from qwen3tts_phone.streams.settings import StreamSettings
from qwen3tts_rehearsal.carrier_dialects import DIALECTS, FRAME_SAMPLES
from qwen3tts_rehearsal.carrier_end import CarrierEnd
from qwen3tts_rehearsal.carrier_line import (
    CarrierCall,
    CarrierLine,
    DelayLine,
    signature_headers,
)
from qwen3tts_rehearsal.lines import CallEnd
from qwen3tts_rehearsal.scenario import LineSettings
from qwen3tts_server.run import running_server
from qwen3tts_wire.errors import BadRequest
from tests.fakes import FakeClock, settle
from tests.streams.far_end import FakeWire

SOUND = {"event": "media", "media": {"payload": base64.b64encode(bytes(160)).decode()}}
"""160 bytes of PCMU, loud."""


@dataclass
class Hums:
    """A caller who hums, and keeps what happens."""

    heard_frames: list[HeardFrame] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    sent_frames: list[SentFrame] = field(default_factory=list)

    def frame(self, at: float) -> NDArray[np.int16]:
        return np.full(FRAME_SAMPLES, 1000, np.int16)

    def sent(self, frame: SentFrame) -> None:
        self.sent_frames.append(frame)

    def heard(self, frame: HeardFrame) -> None:
        self.heard_frames.append(frame)
        self.came.set()

    async def hears(self, frames: int) -> None:
        """Wait for so many frames with sound."""
        while len(self.loud_frames) < frames:
            self.came.clear()
            await self.came.wait()

    def key(self, key: KeyPressed) -> None: ...

    @property
    def loud_frames(self) -> list[int]:
        return [
            number for number, each in enumerate(self.heard_frames) if np.abs(each.samples).max()
        ]


def sent_events(wire: FakeWire) -> list[dict[str, Any]]:
    return [json.loads(each) for each in wire.messages]


@pytest.fixture
async def stream() -> tuple[FakeClock, FakeWire, CarrierCall, Hums, asyncio.Task[CallEnd]]:
    clock = FakeClock()
    wire = FakeWire(clock)
    call = CarrierCall(wire, CarrierEnd("twilio"), clock=clock)
    party = Hums()
    talking = asyncio.create_task(call.talk(party))
    await settle()
    return clock, wire, call, party, talking


Stream = tuple[FakeClock, FakeWire, CarrierCall, Hums, "asyncio.Task[CallEnd]"]


async def test_sound_leaves_every_20_ms_after_the_start(stream: Stream) -> None:
    clock, wire, call, party, talking = stream
    await clock.advance(1.0)
    events = sent_events(wire)
    assert [each["event"] for each in events[:2]] == ["connected", "start"]
    assert [each["event"] for each in events[2:]] == ["media"] * 51
    assert [each["media"]["timestamp"] for each in events[2:5]] == ["0", "20", "40"]
    assert np.diff([at for at, _ in wire.sent][2:]) == pytest.approx(0.02)
    assert len(party.sent_frames) == len(party.heard_frames) == 51
    await call.hang_up()
    await clock.advance(0.02)
    assert (await talking).by == "caller"
    assert sent_events(wire)[-1]["event"] == "stop"


async def test_the_agents_sound_is_played_in_real_time(stream: Stream) -> None:
    clock, wire, _, party, talking = stream
    wire.comes(*[json.dumps(SOUND)] * 10)
    await clock.advance(1.0)
    assert party.loud_frames == list(range(party.loud_frames[0], party.loud_frames[0] + 10))
    wire.breaks()
    await clock.advance(0.02)
    end = await talking
    assert (end.by, end.cause) == ("agent", "the agent closed the stream")
    assert wire.closed_with == 1000


async def test_a_stream_that_breaks_is_the_lines_fault(stream: Stream) -> None:
    clock, wire, call, _, talking = stream
    wire.breaks("the connection broke")
    await clock.advance(0.02)
    end = await talking
    assert (end.by, end.cause) == ("line", "the connection broke")
    await call.hang_up()


async def test_keys_and_a_second_hang_up(stream: Stream) -> None:
    clock, wire, call, _, talking = stream
    pressing = asyncio.create_task(call.press("1#"))
    await clock.advance(0.5)
    await pressing
    assert [e["dtmf"]["digit"] for e in sent_events(wire) if e["event"] == "dtmf"] == ["1", "#"]
    await call.hang_up()
    await call.hang_up()
    await clock.advance(0.02)
    assert (await talking).by == "caller"


async def test_jitter_keeps_the_order_and_every_frame() -> None:
    clock = FakeClock()
    wire = FakeWire(clock)
    call = CarrierCall(wire, CarrierEnd("twilio"), jitter_ms=100, clock=clock)
    party = Hums()
    talking = asyncio.create_task(call.talk(party))
    await clock.advance(2.0)
    media = [each for each in sent_events(wire) if each["event"] == "media"]
    assert [each["media"]["timestamp"] for each in media] == [
        str(20 * number) for number in range(len(media))
    ]
    assert 90 <= len(media) <= 101
    gaps = np.diff([at for at, each in wire.sent if '"media"' in str(each)])
    assert gaps.max() > 0.03
    await call.hang_up()
    await clock.advance(0.02)
    await talking


@given(st.integers(), st.floats(0, 0.4), st.lists(st.floats(0, 0.1), max_size=50))
def test_a_delay_line_loses_nothing_and_waits_no_longer_than_its_jitter(
    seed: int, jitter_s: float, steps: list[float]
) -> None:
    line = DelayLine(jitter_s, random.Random(seed))
    now, came = 0.0, list[str]()
    for number, step in enumerate(steps):
        line.push(str(number), now)
        now += step
        came += [str(each) for each in line.due(now)]
        waiting = number + 1 - len(came)
        if jitter_s == 0:
            assert waiting == 0
    came += [str(each) for each in line.due(now + jitter_s)]
    assert came == [str(number) for number in range(len(steps))]


async def test_a_line_refuses_what_tcp_cannot_have() -> None:
    line = CarrierLine("twilio", "ws://user:secret@127.0.0.1:9/twilio?token=secret")
    with pytest.raises(NotPossible, match="Loss of packets"):
        await line.connect(LineSettings(loss=1.0), 1)
    with pytest.raises(NotPossible, match="opus"):
        await line.connect(LineSettings(codec="opus"), 1)
    assert line.target == "twilio:ws://127.0.0.1:9/twilio"


@pytest.mark.parametrize(
    ("carrier", "url"),
    [
        ("acme", "ws://h/"),
        ("twilio", "http://h/"),
        ("twilio", ""),
        ("twilio", "ws://"),
        ("twilio", "ws://[::1"),
        ("twilio", "ws://h:99999/"),
    ],
)
def test_an_unknown_carrier_or_address(carrier: str, url: str) -> None:
    with pytest.raises(BadRequest):
        CarrierLine(carrier, url)


def test_the_handshake_is_signed_as_twilio_signs_it() -> None:
    url = "wss://agent.example/twilio"
    headers = signature_headers("twilio", url, {"TWILIO_AUTH_TOKEN": "secret"})
    lower = {name.lower(): value for name, value in headers.items()}
    request = CarrierRequest(url, lower)
    assert TwilioSignature("secret").check(request, 0.0)
    assert signature_headers("twilio", url, {}) == {}
    assert signature_headers("vonage", url, {"TWILIO_AUTH_TOKEN": "secret"}) == {}


@pytest.mark.network
async def test_nothing_listens_there() -> None:
    with pytest.raises(CalleeUnreachable):
        await CarrierLine("twilio", "ws://127.0.0.1:9/").connect(LineSettings(), 1)


@pytest.mark.network
async def test_calls_of_each_carrier_reach_an_agent_of_ours() -> None:
    """It says two words, gets a key and hangs up; the caller has it all."""
    kinds = tuple(DIALECTS)
    async with (
        asyncio.timeout(30),
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        Streams(
            StreamSettings(kinds=kinds, server_url=server.url, insecure=True), announce=None
        ) as streams,
    ):

        async def answers() -> None:
            for _ in kinds:
                call = await anext(aiter(streams))
                talks.append(asyncio.create_task(talk(call)))

        async def talk(call: Any) -> None:
            await call.answer()
            await call.say("Good morning.")
            keys.append(await call.dtmf.collect(1))
            await call.hangup()

        talks: list[asyncio.Task[None]] = []
        keys: list[Any] = []
        answering = asyncio.create_task(answers())

        async def calls(carrier: str) -> tuple[str, CallEnd, Hums]:
            line = CarrierLine(carrier, f"ws://127.0.0.1:{streams.port}/{carrier}")
            call = await line.connect(LineSettings(jitter_ms=20), 1)
            party = Hums()
            talking = asyncio.create_task(call.talk(party))
            await party.hears(20)
            await call.press("7")
            return carrier, await talking, party

        for carrier, end, party in await asyncio.gather(*map(calls, kinds)):
            assert end.by == "agent", carrier
            assert len(party.loud_frames) >= 20, carrier
        await answering
        await asyncio.gather(*talks)
        assert [str(each) for each in keys] == ["7"] * len(kinds)
