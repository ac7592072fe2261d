"""Parent's side of one call's media: speech out, frames in, events, playout."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, Protocol

from qwen3tts_pacer.gain import GainReader
from qwen3tts_pacer.memory import (
    CONTEXTS,
    CallMemory,
    ContextSent,
    ContextTable,
    ParentWord,
    Want,
)
from qwen3tts_pacer.ring import InboundFrame, InboundReader, Outbound, key_number
from qwen3tts_pacer.slot import Frame
from qwen3tts_phone.media.control import LegClosed, MediaLost, MediaRefused
from qwen3tts_phone.media.outbound import codec_number, keeping_ptime
from qwen3tts_phone.media.stats import LegStats, leg_stats
from qwen3tts_phone.media.types import (
    EVENTS,
    FROM_FAR_END,
    ContextPlayed,
    Dropped,
    DroppedContext,
    LegSpec,
    MediaEvent,
    MediaStarted,
    RemoteMedia,
)

KEPT = 256
"""Contexts and interruptions remembered after their end."""
_OTHER_CODECS = 3
"""First number of a codec that is not G.711."""
_LAST_CODEC = 253
"""Last number; the next codec has the first one again."""
EVENTS_KEPT = 1000
"""Events that wait; further ones of the far end are dropped and counted."""


class _Open:
    __slots__ = ("end", "entry", "finished", "frames")

    def __init__(self, entry: int) -> None:
        self.entry = entry
        self.frames = 0
        self.end = 0
        self.finished = False


class LegProcess(Protocol):
    """The media process as a leg uses it: `MediaProcess`."""

    learnt: dict[str, Any]

    async def request(
        self, message: dict[str, Any], fds: Sequence[int] = (), *, limited: bool = True
    ) -> dict[str, Any]: ...

    def forget(self, leg: MediaLeg, learnt: dict[str, Any]) -> None: ...


class MediaLeg:
    """Media of one call, made by `MediaProcess.open`. RTP has ``local_port``, RTCP the one above.

    Speech goes ``begin``, ``write`` (and ``room``), ``finish``; contexts are rising numbers.
    """

    def __init__(
        self,
        process: LegProcess,
        number: int,
        spec: LegSpec,
        memory: CallMemory,
        address: tuple[str, int],
    ) -> None:
        self.number = number
        self.spec = spec
        self.local_host, self.local_port = address
        self.remote: RemoteMedia | None = None
        self.refused = 0
        self._process = process
        self._memory = memory
        self._words = memory.words
        self._out = Outbound(memory)
        self._in = InboundReader(memory)
        self._table = ContextTable(memory)
        self._gains = GainReader(memory)
        self._open: dict[int, _Open] = {}
        self._over: OrderedDict[int, ContextSent] = OrderedDict()
        self._condemned: dict[int, dict[int, _Open]] = {}
        self._facts: OrderedDict[int, Dropped] = OrderedDict()
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None], int]] = []
        self._events: asyncio.Queue[MediaEvent | None] = asyncio.Queue()
        self._begun = -1
        self._cut = -1
        self._entries = 0
        self._end: MediaLost | LegClosed | None = None
        self._last_stats: LegStats | None = None
        self._source: tuple[str, int] | None = None
        self._codec = 0
        self._dropped = 0
        self._closing: asyncio.Task[None] | None = None

    async def start(self, remote: RemoteMedia) -> None:
        codec = codec_number(remote.payload_name) or _OTHER_CODECS
        await self._process.request(
            {
                "type": "start",
                "leg": self.number,
                "remote": asdict(remote),
                "learnt": self._process.learnt or None,
                "codec": codec,
            }
        )
        self.remote, self._codec = remote, codec

    async def update(self, remote: RemoteMedia) -> int | None:
        """Apply a renegotiation (hold, resume, address, key, codec); the queue is kept.

        Between PCMU and PCMA it is transcoded. Any other change of the codec interrupts it, and
        returns the epoch, for `dropped`: encode the rest again and write it. None = not
        interrupted. The packet time changes only with such a change (ptime is a preference: RFC
        8866 section 6.4).
        """
        epoch = None
        codec = self._codec
        before = self.remote
        if before is not None:
            name = (remote.payload_name, remote.clock_hz)
            if name == (before.payload_name, before.clock_hz):
                remote = keeping_ptime(remote, before)
            elif codec_number(remote.payload_name) and codec_number(before.payload_name):
                remote = keeping_ptime(remote, before)
                codec = codec_number(remote.payload_name) or 0
            else:
                others = codec + 1 if _OTHER_CODECS <= codec < _LAST_CODEC else _OTHER_CODECS
                codec = codec_number(remote.payload_name) or others
                epoch = self.interrupt() if self._open else None
        await self._process.request(
            {"type": "update", "leg": self.number, "remote": asdict(remote), "codec": codec}
        )
        self.remote, self._codec = remote, codec
        return epoch

    def begin(self, context: int, *, key: str = "") -> None:
        """Begin an utterance; ``key`` names its voice and server for the filling policy."""
        self._check()
        if context <= self._begun:
            raise ValueError(f"context {context} follows {self._begun}: numbers must rise")
        entry = self._entries % CONTEXTS
        if any(other.entry == entry for other in self._open.values()):
            raise ValueError(f"{CONTEXTS} contexts are open: finish or interrupt some")
        self._out.begin(context, entry, key_number(key))
        self._entries += 1
        self._begun = context
        self._open[context] = _Open(entry)

    def write(self, frames: Sequence[Frame]) -> int:
        """Queue frames of the codec in use; return how many were accepted (else await `room`).

        Frames of an interrupted context are accepted and dropped.
        """
        self._check()
        if not frames:
            return 0
        context = frames[0].context
        if any(frame.context != context for frame in frames):
            raise ValueError("frames of several contexts in one write")
        if context <= self._cut:
            self.refused += len(frames)
            return len(frames)
        state = self._open.get(context)
        if state is None or state.finished:
            raise ValueError(f"context {context} was not begun, or is finished")
        count = self._out.write(frames, self._codec)
        if count:
            state.frames += count
            state.end = frames[count - 1].end
        return count

    async def room(self) -> None:
        """Wait until a good part of the ring is free. Raises MediaLost."""
        await self._wait(self._has_room, Want.ROOM)

    def finish(self, context: int) -> None:
        self._check()
        if context <= self._cut:
            return
        state = self._open.get(context)
        if state is None or state.finished:
            raise ValueError(f"context {context} was not begun, or is finished")
        self._out.finish(context)
        state.finished = True

    def interrupt(self) -> int:
        """Fall silent at the next slot and drop what was written, synchronously.

        Return the epoch for `dropped`.
        """
        self._check()
        epoch = self._out.interrupt()
        self._condemned[epoch] = self._open
        self._open = {}
        self._cut = self._begun
        return epoch

    def duck(self, attenuation: int) -> None:
        """Lower speech by so many tenths of a dB with the next slot, or hold it; 0 = neither."""
        self._check()
        self._gains.read()
        self._words[ParentWord.DUCK] = attenuation

    def attenuation(self, context: int, frame: int) -> tuple[int, int]:
        """Return at which attenuation a sent frame began and ended."""
        if self._end is None:
            self._gains.read()
        return self._gains.of(context, frame)

    async def dropped(self, epoch: int) -> Dropped:
        if epoch not in self._facts and epoch not in self._condemned:
            raise ValueError(f"no interruption has the epoch {epoch}, or it is long ago")
        await self._wait(lambda: epoch in self._facts)
        return self._facts[epoch]

    def sent(self, context: int) -> ContextSent | None:
        over = self._over.get(context)
        if over is not None:
            return over if over.frames else None
        state = self._state(context)
        if state is None or self._end is not None:
            return None
        sent = self._table.load(state.entry)
        return sent if sent.context == context and sent.frames else None

    def position(self, context: int, now: float | None = None) -> int:
        """Return the playout position, samples of the context's rate.

        The last frame counts gradually, over its duration.
        """
        sent = self.sent(context)
        if sent is None or self.remote is None:
            return 0
        elapsed = (time.monotonic() if now is None else now) - sent.last_ns / 1e9
        share = min(1.0, max(0.0, elapsed * 1000 / self.remote.ptime_ms))
        return sent.start + int((sent.end - sent.start) * share + 1e-6)

    def first_sent(self, context: int) -> float | None:
        """Return when the context's first frame was sent (CLOCK_MONOTONIC, seconds).

        None = not yet.
        """
        sent = self.sent(context)
        return sent.first_ns / 1e9 if sent is not None else None

    async def send_dtmf(self, keys: str, duration_ms: int = 160, gap_ms: int = 80) -> None:
        """Send keys (RFC 4733); return when the last is sent. Speech waits. Raises MediaRefused."""
        await self._process.request(
            {"type": "dtmf", "leg": self.number, "keys": keys}
            | {"duration_ms": duration_ms, "gap_ms": gap_ms},
            limited=False,
        )

    def read_inbound(self, limit: int = 1 << 30) -> list[InboundFrame]:
        return [] if self._end is not None else self._in.read(limit)

    async def wait_inbound(self) -> None:
        await self._wait(self._has_inbound, Want.INBOUND)

    @property
    def events(self) -> AsyncIterator[MediaEvent]:
        """Yield events until the leg is closed or the process lost."""
        return self._iterate()

    def stats(self) -> LegStats:
        if self._last_stats is not None:
            return self._last_stats
        return self._figures()

    async def measure(self) -> LegStats:
        if self._end is None:
            await self._process.request({"type": "publish", "leg": self.number})
        return self.stats()

    async def close(self) -> None:
        """Close the sockets and drop what is queued; completes even if cancelled."""
        if self._end is not None:
            return
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name=f"close leg {self.number}")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        learnt: dict[str, Any] = {}
        try:
            answer = await self._process.request({"type": "close", "leg": self.number})
            learnt = answer.get("learnt", {})
        except MediaLost:
            return
        except MediaRefused:
            pass  # it broke in the media process, which has closed it
        self._process.forget(self, learnt)
        self._finish(LegClosed("The leg was closed."))

    def message(self, kind: str, message: dict[str, Any]) -> None:
        if self._end is not None:
            return
        if kind == "flushed":
            self._flushed(message["epoch"], message["at"])
            self.noticed()
            return
        name = message.pop("name")
        if "source" in message:
            message["source"] = tuple(message["source"])
        event: MediaEvent = EVENTS[name](**message)
        if isinstance(event, ContextPlayed):
            state = self._open.pop(event.context, None)
            if state is not None:
                self._keep(event.context, state)
                self.noticed()  # its entry is free
        if name in FROM_FAR_END and self._events.qsize() >= EVENTS_KEPT:
            self._dropped += 1
        else:
            self._events.put_nowait(event)
        if isinstance(event, MediaStarted):
            self._source = event.source
        if name == "LegFailed":
            self._process.forget(self, {})
            self._finish(LegClosed("The leg broke in the media process; see the LegFailed event."))

    def noticed(self) -> None:
        if not self._waiting:
            return
        still = []
        want = 0
        for ready, waiter, wanted in self._waiting:
            if waiter.done():
                continue
            if ready():
                waiter.set_result(None)
            else:
                still.append((ready, waiter, wanted))
                want |= wanted
        self._waiting = still
        self._words[ParentWord.WANT] = want

    def gone(self, cause: MediaLost) -> None:
        self._finish(cause)

    @property
    def over(self) -> bool:
        return self._end is not None

    def check(self) -> None:
        if self._end is not None:
            raise self._end

    def _check(self) -> None:
        self.check()
        if self.remote is None:
            raise ValueError("the leg is not started")

    def _has_room(self) -> bool:
        return len(self._open) < CONTEXTS and self._out.roomy()

    def _has_inbound(self) -> bool:
        return self._in.waiting() > 0

    async def _wait(self, ready: Callable[[], bool], want: int = 0) -> None:
        self.check()
        if ready():
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((ready, waiter, want))
        self._words[ParentWord.WANT] |= want
        await waiter

    async def _iterate(self) -> AsyncIterator[MediaEvent]:
        while True:
            event = await self._events.get()
            if event is None:
                self._events.put_nowait(None)  # for the next reader
                return
            yield event

    def _figures(self) -> LegStats:
        stats = leg_stats(self._memory, self._source)
        return replace(stats, events_dropped=stats.events_dropped + self._dropped)

    def _state(self, context: int) -> _Open | None:
        state = self._open.get(context)
        if state is None:
            for condemned in self._condemned.values():
                state = condemned.get(context)
                if state is not None:
                    break
        return state

    def _keep(self, context: int, state: _Open) -> ContextSent:
        sent = self._table.load(state.entry)
        if sent.context != context:
            sent = ContextSent(context, 0, 0, 0, 0, 0)
        self._over[context] = sent
        if len(self._over) > KEPT:
            self._over.popitem(last=False)
        return sent

    def _flushed(self, applied: int, at: float) -> None:
        for epoch in [each for each in self._condemned if each <= applied]:
            contexts = []
            for context, state in self._condemned.pop(epoch).items():
                sent = self._keep(context, state)
                contexts.append(
                    DroppedContext(
                        context, state.frames - sent.frames, state.end - sent.end, sent.end
                    )
                )
            self._facts[epoch] = Dropped(epoch, at, tuple(contexts))
            if len(self._facts) > KEPT:
                self._facts.popitem(last=False)

    def _finish(self, end: MediaLost | LegClosed) -> None:
        if self._end is not None:
            return
        for contexts in (self._open, *self._condemned.values()):
            for context, state in contexts.items():
                self._keep(context, state)
        self._last_stats = self._figures()
        self._gains.read()
        self._end = end
        self._events.put_nowait(None)
        for _, waiter, _ in self._waiting:
            if not waiter.done():
                waiter.set_exception(end)
        self._waiting.clear()
        self._memory.close()
