"""A call without a network: what goes out is kept as samples, what comes in is what a test says."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.g711 import PCMU
from qwen3tts_codecs.payload import Payload
from qwen3tts_phone.audio.frames import HeardFrame
from qwen3tts_phone.call.call import Call
from qwen3tts_phone.call.core import CallCore, CallVoice
from qwen3tts_phone.call.events import CallHeld, CallResumed
from qwen3tts_phone.facts import CallFacts, EndFacts
from qwen3tts_phone.records.store import CallStore
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_phone.softphone.webrtc.media import WebSink
from qwen3tts_speech.link import SpeechLink, VoiceOptions
from tests.fakes import FakeClock

Samples = NDArray[np.int16]
PTIME_S = 0.02

_numbers = itertools.count(1)


class PlainCall(Call):
    """One call on a fake clock; its payload is what it sends with."""

    def __init__(
        self,
        clock: FakeClock,
        payload: Payload = PCMU,
        *,
        link: SpeechLink | None = None,
        direction: Literal["in", "out"] = "in",
    ) -> None:
        facts = CallFacts(call_id=f"plain-{next(_numbers)}", line="plain", direction=direction)
        facts.started_at = clock.now()
        voice = CallVoice(link or SpeechLink("ws://127.0.0.1:1/v1/speech"), VoiceOptions())
        files = CallStore(RecordSettings(), None, clock)
        super().__init__(CallCore(facts, clock, voice, files))
        self.keys = ""
        self.payload = payload
        self._decoder = payload.decoder()
        self._out: list[Samples] = []
        self._stamp = 0
        self.web_sink = WebSink(self._put, payload, clock=clock)
        self._core.begin(payload, self.web_sink)

    def _put(self, payload: bytes, ticks: int) -> None:
        samples = self._decoder.decode(payload)
        self._out += [np.zeros_like(samples)] * max(0, ticks - 1)
        self._out.append(samples)

    # --- what a test looks at, and does

    @property
    def sent(self) -> Samples:
        """What its far end has heard since the answer, shape [n] at the payload's rate."""
        return np.concatenate([np.zeros(0, np.int16), *self._out])

    def hears(self, samples: Samples, rate_hz: int | None = None, at: float | None = None) -> None:
        """A frame comes from its far end."""
        rate_hz = rate_hz or self.payload.sample_hz
        at = self.clock.now() if at is None else at
        self._core.inbound.take(HeardFrame(samples, at, False, rate_hz, self._stamp, rate_hz))
        self._stamp += len(samples)

    def hold_comes(self, held: bool) -> None:
        """The far end puts it on hold, or takes it back."""
        self._core.held = held
        now = self.clock.now()
        self._core.publish(CallHeld(now) if held else CallResumed(now))

    async def far_end_leaves(self, end: EndFacts | None = None, cause: str = "they left") -> None:
        """The far end hangs up."""
        await self._end(end or EndFacts(by="remote"), cause)

    # --- a call

    async def answer(self, headers: Mapping[str, str] | None = None) -> None:
        self.web_sink.start()
        self._core.answered()

    async def send_dtmf(
        self, keys: str, *, method: str = "auto", duration_ms: int = 160, gap_ms: int = 80
    ) -> None:
        self.keys += keys

    async def hangup(self, headers: Mapping[str, str] | None = None) -> None:
        if not self.over:
            await self._end(EndFacts(by="local"), "we hung up")
        await self.ended()

    async def _end(self, end: EndFacts, cause: str) -> None:
        self._core.silence()
        await self._core.settle()
        await self.web_sink.close()
        await self._core.finish(end, cause)
