"""Line over a media stream: the rehearsal is the carrier and connects to the agent's WebSocket."""

from __future__ import annotations

import asyncio
import base64
import hmac
import os
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from websockets.exceptions import InvalidURI
from websockets.uri import parse_uri

from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_phone.audio.frames import HeardFrame, SentFrame
from qwen3tts_phone.errors import NotPossible
from qwen3tts_phone.streams.carriers.adapter import Message, StreamAdapter, StreamKind
from qwen3tts_phone.streams.carriers.authentication import encoded
from qwen3tts_phone.streams.connection import (
    StreamConnection,
    WebSocketConnection,
    open_websocket,
)
from qwen3tts_phone.streams.settings import StreamSettings
from qwen3tts_rehearsal.carrier_dialects import DIALECTS, FRAME_SAMPLES, RATE_HZ
from qwen3tts_rehearsal.carrier_end import CarrierEnd
from qwen3tts_rehearsal.lines import FRAME_S, CallEnd, Party
from qwen3tts_rehearsal.scenario import LineSettings
from qwen3tts_wire.errors import BadRequest

KEY_MS: Final = 160
"""Time between two keys."""
SIGNED_WITH: Final = {"twilio": "TWILIO_AUTH_TOKEN"}
"""Variable of the environment with the key that signs the handshake."""


@dataclass(slots=True)
class DelayLine:
    """Messages delayed by 0 to ``jitter_s``, in order, as over TCP (pure)."""

    jitter_s: float
    chance: random.Random
    _waiting: deque[tuple[float, Message]] = field(default_factory=deque)
    _last: float = 0.0

    def push(self, message: Message, now: float) -> None:
        delay = self.chance.uniform(0.0, self.jitter_s) if self.jitter_s else 0.0
        self._last = max(self._last, now + delay)
        self._waiting.append((self._last, message))

    def due(self, now: float) -> list[Message]:
        ready = []
        while self._waiting and self._waiting[0][0] <= now + 1e-9:
            ready.append(self._waiting.popleft()[1])
        return ready


class CarrierCall:
    """One call over a connected stream; a `CallerCall`.

    Its sound begins with :meth:`talk`, where the carrier's start has been sent before.
    """

    rate_hz = RATE_HZ

    def __init__(
        self,
        wire: StreamConnection,
        end: CarrierEnd,
        *,
        jitter_ms: int = 0,
        seed: int = 1,
        clock: Clock | None = None,
    ) -> None:
        self.end = end
        self._wire = wire
        self._clock: Clock = clock or LoopClock()
        self._out = DelayLine(jitter_ms / 1000, random.Random(f"{seed} out"))
        self._in = DelayLine(jitter_ms / 1000, random.Random(f"{seed} in"))
        self._over: CallEnd | None = None
        wire.send_now(end.begin())
        self.answered_at = self._clock.now()

    @property
    def codec(self) -> str:
        return self.end.dialect.payload.name

    async def talk(self, party: Party) -> CallEnd:
        reading = asyncio.create_task(self._read())
        try:
            number = 0
            begun = self._clock.now()
            while self._over is None:
                at = begun + number * FRAME_S
                await self._clock.sleep_until(at)
                self._tick(party, at, number)
                number += 1
            return self._over
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await self._wire.close()

    async def press(self, keys: str) -> None:
        """Press keys; returns after the last. Raises ValueError for what is no key."""
        for digit in keys:
            self._out.push(self.end.key(digit), self._clock.now())
            await self._clock.sleep_until(self._clock.now() + KEY_MS / 1000)

    async def hang_up(self) -> None:
        if self._over is None:
            now = self._clock.now()
            self._over = CallEnd("caller", now, "the caller hung up")
            self._wire.send_now([*self._out.due(now), *self.end.stop()])
            await self._wire.close()

    def _tick(self, party: Party, at: float, number: int) -> None:
        if self._over is not None:
            return
        for message in self._in.due(at):
            for answer in self.end.receive(message):
                self._out.push(answer, at)
        if self.end.hung_up:
            self._over = CallEnd("agent", at, "the agent ended the call")
            return
        played, marks = self.end.play()
        for each in marks:
            self._out.push(each, at)
        spoken = party.frame(at)
        self._out.push(self.end.audio(spoken), at)
        self._wire.send_now(self._out.due(at))
        party.sent(SentFrame(spoken, RATE_HZ, at))
        party.heard(HeardFrame(played, at, False, RATE_HZ, timestamp=number * FRAME_SAMPLES))

    async def _read(self) -> None:
        while (message := await self._wire.receive()) is not None:
            self._in.push(message, self._clock.now())
        if self._over is None:
            lost = self._wire.lost
            by_agent = not lost or lost.startswith("closed by")
            cause = lost or "the agent closed the stream"
            self._over = CallEnd("agent" if by_agent else "line", self._clock.now(), cause)


class CarrierLine:
    """Calls to an agent's WebSocket in a carrier's protocol; a `Line`.

    The handshake is signed where the carrier signs it and the key is in the environment
    (`SIGNED_WITH`).

    Raises BadRequest: an unknown carrier, or no address of a WebSocket.
    """

    def __init__(
        self, carrier: str, url: str, *, from_number: str = "", to_number: str = ""
    ) -> None:
        if carrier not in DIALECTS:
            raise BadRequest(
                f"{carrier[:40]!r} is no carrier that a caller can come from.",
                remedy=f"Known are {', '.join(DIALECTS)}.",
            )
        try:
            parse_uri(url)
        except (InvalidURI, ValueError) as error:
            raise BadRequest(
                f"{url[:80]!r} is no address of a media stream.",
                remedy="Write it as ws://HOST:PORT/PATH or wss://…: ws://127.0.0.1:8080/twilio.",
            ) from error
        self.carrier, self.url = carrier, url
        self._from, self._to = from_number, to_number

    @property
    def target(self) -> str:
        scheme, _, rest = self.url.partition("?")[0].partition("://")
        return f"{self.carrier}:{scheme}://{rest.rpartition('@')[2]}"

    async def connect(self, settings: LineSettings, seed: int) -> CarrierCall:
        """Open a stream. Raises CalleeUnreachable, CallError or NotPossible."""
        end = CarrierEnd(self.carrier, from_number=self._from, to_number=self._to)
        if settings.loss:
            raise NotPossible(
                "Loss of packets", self.carrier, remedy="TCP loses none: set loss to 0."
            )
        if settings.codec not in ("any", end.dialect.payload.name):
            raise NotPossible(
                f"The codec {settings.codec}",
                self.carrier,
                remedy=f"Set codec to any, or {end.dialect.payload.name}.",
            )
        subprotocols = (end.dialect.subprotocol,) if end.dialect.subprotocol else ()
        kind = StreamKind(self.carrier, _no_adapter, subprotocols=subprotocols)
        headers = signature_headers(self.carrier, self.url, os.environ)
        connection = await open_websocket(self.url, kind, StreamSettings(), headers, None)
        return CarrierCall(
            WebSocketConnection(connection), end, jitter_ms=settings.jitter_ms, seed=seed
        )


def signature_headers(carrier: str, url: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return headers that show the handshake to be the carrier's; empty without its key.

    ``X-Twilio-Signature``: HMAC-SHA1 of the URL (twilio.com/docs/usage/security).
    """
    key = environ.get(SIGNED_WITH.get(carrier, ""))
    if not key:
        return {}
    digest = hmac.digest(key.encode(), encoded(url), "sha1")
    return {"X-Twilio-Signature": base64.b64encode(digest).decode("ascii")}


def _no_adapter(_: object) -> StreamAdapter:
    raise AssertionError("a caller needs no adapter")
