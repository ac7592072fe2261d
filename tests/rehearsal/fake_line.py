"""A line without sockets: an agent that answers every turn, at a speed that tests can stand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from qwen3tts_phone.audio.frames import HeardFrame, KeyPressed, SentFrame
from qwen3tts_phone.errors import CallRefused, NotPossible
from qwen3tts_rehearsal.lines import CallEnd, Party
from qwen3tts_rehearsal.scenario import LineSettings
from tests.rehearsal.callers import RATE_HZ, SILENCE, tone

FRAME_S = 0.02


class EchoAgent:
    """Says a tone of 0.6 s when the call begins, and 0.5 s after each turn of the caller."""

    greets = True
    hangs_up_after_s = 1e9

    def __init__(self) -> None:
        self._speaks: list[tuple[float, float]] = [(0.3, 0.9)] if self.greets else []
        self._heard_at: float | None = None

    def step(self, since: float, loud: bool) -> bool:
        """Take whether the caller sounds; return whether the agent does."""
        if loud:
            self._heard_at = since
        elif self._heard_at is not None and since - self._heard_at >= 0.5:
            self._speaks.append((since, since + 0.6))
            self._heard_at = None
        return any(begin <= since < end for begin, end in self._speaks)


class Deaf(EchoAgent):
    def step(self, since: float, loud: bool) -> bool:
        return super().step(since, False)


class Silent(EchoAgent):
    greets = False

    def step(self, since: float, loud: bool) -> bool:
        return False


class HangsUp(EchoAgent):
    hangs_up_after_s = 1.5


@dataclass
class FakeCall:
    """A call whose time is that of its frames."""

    agent: EchoAgent
    codec: str = "PCMU"
    rate_hz: int = RATE_HZ
    answered_at: float = field(default_factory=time.monotonic)
    pressed: list[str] = field(default_factory=list)
    now: float = 0.0
    _hung_up: bool = False
    _end: CallEnd | None = None

    async def talk(self, party: Party) -> CallEnd:
        now = self.answered_at
        while self._end is None:
            since = now - self.answered_at
            frame = party.frame(now)
            party.sent(SentFrame(frame, self.rate_hz, now))
            loud = int(np.abs(frame.astype(np.int32)).max()) > 500
            speaks = self.agent.step(since, loud)
            party.heard(HeardFrame(tone(FRAME_S) if speaks else SILENCE, now, False, RATE_HZ))
            now += FRAME_S
            self.now = now
            if self._hung_up:
                self._end = CallEnd("caller", now, "we hung up")
            elif since >= self.agent.hangs_up_after_s:
                self._end = CallEnd("agent", now, "the far end hung up")
            await asyncio.sleep(0.0002)
        party.key(KeyPressed(now, "5", 100))
        return self._end

    async def press(self, keys: str) -> None:
        if "D" in keys:
            raise NotPossible("Pressing keys", "fake")
        self.pressed.append(keys)

    async def hang_up(self) -> None:
        self._hung_up = True


class FakeLine:
    target = "fake:agent"

    def __init__(self, agent: Callable[[], EchoAgent] = EchoAgent, *, busy: int = 0) -> None:
        self._agent = agent
        self._busy = busy
        """Calls that are refused first."""
        self.settings: list[tuple[LineSettings, int]] = []
        self.calls: list[FakeCall] = []
        self.most = 0
        """Most calls at a time."""

    async def connect(self, settings: LineSettings, seed: int) -> FakeCall:
        self.settings.append((settings, seed))
        if self._busy:
            self._busy -= 1
            raise CallRefused(486, "Busy Here")
        call = FakeCall(self._agent())
        self.calls.append(call)
        self.most = max(self.most, sum(each._end is None for each in self.calls))
        return call
