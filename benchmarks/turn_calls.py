"""Calls of `turns.py`: a caller with a script, and what the wire shows of the agent's answers.

The caller's signalling is a SIP endpoint of this process, his sound a `talker` of its own process.
All times are seconds of this machine's monotonic clock. A sample that the caller says counts from
when it was spoken, which is up to one packet before it left.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from line_sounds import at_level, noise, on_the_line, voiced_from_to
from numpy.typing import NDArray
from talker import FRAME, FRAME_NS, Came, Line

from qwen3tts_phone.call.call import Call
from qwen3tts_phone.phone import Phone
from qwen3tts_phone.sdp.session import SdpSession
from qwen3tts_phone.sip.core.settings import SipSettings
from qwen3tts_phone.sip.endpoint import SipEndpoint

RATE_HZ = 8000
BREAK_S = 0.45
"""Pause after which the agent counts as silent: its pauses between clauses are shorter.
"""


@dataclass(frozen=True)
class Place:
    """Acoustics of a caller."""

    level_dbfs: float
    noise: str = ""
    """A kind of `line_sounds.NOISES`; empty = none."""
    snr_db: float = 0.0
    echo: tuple[float, float] | None = None
    """Echo of the agent: dB below, ms later."""

    @property
    def name(self) -> str:
        """For the tables."""
        what = f"{self.noise} {self.snr_db:g} dB" if self.noise else "quiet"
        return f"{self.level_dbfs:g} dBFS, {what}"


@dataclass(frozen=True)
class Phrase:
    """Something that the caller says, once it was said."""

    onset: float
    """Its first voiced sample."""
    end: float
    """Its last."""


@dataclass(frozen=True)
class Run:
    """Sound of the agent without a break."""

    begin: float
    """Arrival of the first packet with audio."""
    end: float
    """Arrival of the last one."""
    frames: int
    """From the first sounding packet to the last, both counted, without a fade at the end."""


@dataclass
class Caller:
    """The caller's side of one call."""

    line: Line
    place: Place
    call: Call
    """The agent's side."""
    phrases: list[Phrase] = field(default_factory=list)

    async def say(self, sound: NDArray[np.float64]) -> Phrase:
        """Say this; returns when it has been said."""
        loud = at_level(sound, self.place.level_dbfs)
        first, last = voiced_from_to(loud)
        at = (await self.line.say(on_the_line(loud)) - FRAME_NS) / 1e9
        phrase = Phrase(at + first / RATE_HZ, at + last / RATE_HZ)
        self.phrases.append(phrase)
        return phrase

    async def hears(self, after: float) -> float:
        """Wait for the agent's first sound after then; when it came."""
        found: list[float] = []

        def sound(packets: Sequence[Came]) -> bool:
            found[:] = [each.at / 1e9 for each in packets[-400:] if each.first >= 0]
            found[:] = [at for at in found if at > after]
            return bool(found)

        await self.line.came(sound)
        return found[0]

    async def hears_no_more(self, after: float) -> float:
        """Wait until the agent has been silent for `BREAK_S`; when its last sound came."""
        last = after

        def silent(packets: Sequence[Came]) -> bool:
            nonlocal last
            last = max([each.at / 1e9 for each in packets[-400:] if each.first >= 0] + [after])
            return bool(packets) and packets[-1].at / 1e9 - last > BREAK_S

        await self.line.came(silent)
        return last

    def runs(self) -> list[Run]:
        """The agent's sound, run by run."""
        return runs_of(self.line.packets)


def runs_of(packets: Sequence[Came]) -> list[Run]:
    """Sound between breaks of at least `BREAK_S`."""
    sounding = [each for each in packets if each.first >= 0]
    if not sounding:
        return []
    cuts = [0]
    for place, (before, after) in enumerate(pairwise(sounding), start=1):
        if (after.at - before.at) / 1e9 >= BREAK_S:
            cuts.append(place)
    runs = []
    for start, stop in pairwise([*cuts, len(sounding)]):
        begin, end = sounding[start], sounding[stop - 1]
        frames = (end.timestamp - begin.timestamp) % (1 << 32) // FRAME
        frames += 0 if end.last < FADE_SAMPLES else 1
        runs.append(Run(begin.at / 1e9, end.at / 1e9, frames))
    return runs


FADE_SAMPLES = 40
"""A packet whose sound ends within 5 ms is the fade after an interruption, and nothing more."""


class Callers:
    """Places calls to an agent's phone."""

    def __init__(self, phone: Phone) -> None:
        self._phone = phone
        self._endpoint = SipEndpoint(SipSettings())
        self._waiting: dict[str, asyncio.Future[Call]] = {}
        self._taking: asyncio.Task[None]

    async def __aenter__(self) -> Callers:
        await self._endpoint.start()
        self._taking = asyncio.create_task(self._take())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._taking.cancel()
        await asyncio.gather(self._taking, return_exceptions=True)
        await self._endpoint.close()

    async def _take(self) -> None:
        async for call in self._phone.incoming():
            self._waiting[call.id].set_result(call)

    @contextlib.asynccontextmanager
    async def calling(self, place: Place, seed: int = 1) -> AsyncIterator[Caller]:
        """One call, not yet answered; it is over with the block."""
        async with Line.open() as line:
            offer = SdpSession("127.0.0.1", line.port).offer()
            sip = await self._endpoint.place(self._phone.uri, offer)
            come = self._waiting[sip.call_id] = asyncio.get_running_loop().create_future()
            call = await come
            local = call.facts.media.local
            assert local is not None
            if place.noise:
                chance = np.random.default_rng(seed)
                level = 10 ** ((place.level_dbfs - place.snr_db) / 20)
                line.noise(on_the_line(noise(place.noise, 30.0, chance, BABBLE.sound) * level))
            if place.echo is not None:
                line.echo(*place.echo)
            line.talk_to(local[1])
            try:
                yield Caller(line, place, call)
            finally:
                await call.hangup()


class Babble:
    """Eight people together, made when it is known what they say."""

    sound: NDArray[np.float64] | None = None


BABBLE = Babble()
