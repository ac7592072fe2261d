"""Calls with a browser for tests: real ones over loopback, and ones without a network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_phone.call.call import CallEvent
from qwen3tts_phone.call.core import CallCore, CallVoice
from qwen3tts_phone.records.store import CallStore
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_phone.softphone.webrtc import peer
from qwen3tts_phone.softphone.webrtc.call import ArrivalHistory, WebCall, web_call_facts
from qwen3tts_phone.softphone.webrtc.media import AudioPacket
from qwen3tts_phone.softphone.webrtc.offer import CodecChoice, Offer, OfferedCodec
from qwen3tts_phone.softphone.webrtc.peer import PacketTrack, Reporter
from qwen3tts_phone.softphone.webrtc.settings import WebRtcSettings
from qwen3tts_phone.softphone.webrtc.statistics import RemoteStatistics
from qwen3tts_speech.link import SpeechLink, VoiceOptions
from tests.fakes import FakeClock, settle
from tests.softphone.far_browser import FarBrowser, far_browser
from tests.speech.fakes import FakeClient
from tests.streams.calls import fake_link

OFFER = "\r\n".join(
    (
        "v=0",
        "o=- 46117327 2 IN IP4 127.0.0.1",
        "s=-",
        "t=0 0",
        "a=group:BUNDLE 0",
        "m=audio 54321 UDP/TLS/RTP/SAVPF 111 63 9 0 8 13 110",
        "c=IN IP4 192.0.2.9",
        "a=rtcp:9 IN IP4 0.0.0.0",
        "a=candidate:1 1 udp 2122260223 192.0.2.9 54321 typ host generation 0",
        "a=ice-ufrag:EsAw",
        "a=ice-pwd:P2uYro0UCOQ4zxjKXaWCBui1",
        "a=fingerprint:sha-256 " + ":".join(["AB"] * 32),
        "a=setup:actpass",
        "a=mid:0",
        "a=sendrecv",
        "a=rtcp-mux",
        "a=rtpmap:111 opus/48000/2",
        "a=fmtp:111 minptime=10;useinbandfec=1",
        "a=rtpmap:63 red/48000/2",
        "a=rtpmap:9 G722/8000",
        "a=rtpmap:0 PCMU/8000",
        "a=rtpmap:8 PCMA/8000",
        "a=rtpmap:13 CN/8000",
        "a=rtpmap:110 telephone-event/48000",
        "",
    )
)
"""As Chromium 156 writes it, but for what is different each time."""


def new_body(clock: Clock, link: SpeechLink) -> CallCore:
    files = CallStore(RecordSettings(), None, clock)
    return CallCore(web_call_facts(clock), clock, CallVoice(link, VoiceOptions()), files)


@asynccontextmanager
async def web_call(
    link: SpeechLink,
    *,
    codec: CodecChoice = "auto",
    microphone: bool = True,
    settings: WebRtcSettings | None = None,
    learnt: ArrivalHistory | None = None,
) -> AsyncIterator[tuple[WebCall, FarBrowser]]:
    """A call that is connecting, and its other end."""
    async with far_browser(microphone=microphone) as far:
        call, answer = await WebCall.made(
            new_body(LoopClock(), link),
            await far.offer(),
            codec=codec,
            settings=settings,
            learnt=learnt,
        )
        far.call = call
        await far.connect(answer)
        async with call:
            yield call, far


@dataclass
class FakePeer:
    """A connection that a test drives."""

    track: PacketTrack
    take: Callable[[AudioPacket], None]
    report: Reporter
    changed: Callable[[str], None]
    answer_sdp: str = "v=0\r\n"
    now: RemoteStatistics = field(default_factory=RemoteStatistics)
    closed: int = 0

    async def figures(self) -> RemoteStatistics:
        return self.now

    async def close(self) -> None:
        self.closed += 1
        self.track.stop()
        self.changed("closed")


class Faked:
    """A call without a network: its browser, its clock, its speech server."""

    def __init__(self, call: WebCall, peer: FakePeer, clock: FakeClock, client: FakeClient) -> None:
        self.call, self.peer, self.clock, self.client = call, peer, clock, client
        self.events: list[CallEvent] = []
        self._sent = 0
        self._following = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        async for event in self.call.events:
            self.events.append(event)

    async def up(self) -> None:
        self.peer.changed("connected")
        await self.call.answer()
        await settle()

    def sounds(self, payload: bytes = b"\x00" * 160) -> None:
        """The browser sends a packet of PCMU."""
        self._sent += 1
        self.peer.take(AudioPacket(7, self._sent, self._sent * 160, 0, payload))

    async def runs(self, seconds: float, *, sound: bool = True) -> None:
        for _ in range(round(seconds / 0.02)):
            if sound:
                self.sounds()
                self.peer.now = RemoteStatistics(packets=self._sent)
            await self.clock.advance(0.02)

    async def over(self) -> str:
        """Its end, however long it takes on the fake clock."""
        ended = asyncio.ensure_future(self.call.ended())
        for _ in range(100):
            if ended.done():
                break
            await self.clock.advance(0.1)
            await asyncio.sleep(0.001)  # threads of the record's file
        return await ended


@asynccontextmanager
async def faked(
    monkeypatch: pytest.MonkeyPatch, *, offer: str = OFFER, settings: WebRtcSettings | None = None
) -> AsyncIterator[Faked]:
    clock, client, made = FakeClock(), FakeClient(), list[FakePeer]()

    async def answering(
        offer: Offer,
        codec: OfferedCodec,
        track: PacketTrack,
        settings: WebRtcSettings,
        *,
        take: Callable[[AudioPacket], None],
        report: Reporter,
        changed: Callable[[str], None],
    ) -> FakePeer:
        made.append(FakePeer(track, take, report, changed))
        return made[-1]

    monkeypatch.setattr(peer.Peer, "answering", answering)
    call, _ = await WebCall.made(
        new_body(clock, fake_link(client)), offer, codec="PCMU", settings=settings
    )
    side = Faked(call, made[0], clock, client)
    yield side
    call.far_end_left()
    await side.over()
    await side._following
