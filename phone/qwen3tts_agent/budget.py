"""Budgets of model requests, per call and per process (pure).

Callers' keys and speech must not decide the cost. A limit holds in a sliding window of 60 s.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final

WINDOW_S: Final = 60.0
NEVER: Final = math.inf


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits of one meter; 0 = no limit."""

    requests_minute: int = 0
    requests: int = 0
    chars_minute: int = 0
    """Characters of prompt: messages, tool calls and descriptions of tools."""
    chars: int = 0


class RequestMeter:
    """Meter of requests; monotonic seconds."""

    def __init__(self) -> None:
        self.requests = 0
        self.chars = 0
        self._recent: deque[tuple[float, int]] = deque()
        self._recent_chars = 0
        self._now = -math.inf

    def earliest(self, chars: int, limits: RequestLimits, now: float) -> float:
        now = self._advance(now)
        if limits.requests and self.requests >= limits.requests:
            return NEVER
        if limits.chars and self.chars + chars > limits.chars:
            return NEVER
        if limits.chars_minute and chars > limits.chars_minute:
            return NEVER
        at = now
        excess = len(self._recent) + 1 - limits.requests_minute
        if limits.requests_minute and excess > 0:
            at = self._recent[excess - 1][0] + WINDOW_S
        excess_chars = self._recent_chars + chars - limits.chars_minute
        if limits.chars_minute:
            for when, size in self._recent:
                if excess_chars <= 0:
                    break
                excess_chars -= size
                at = max(at, when + WINDOW_S)
        return at

    def spend(self, chars: int, now: float) -> None:
        now = self._advance(now)
        self.requests += 1
        self.chars += chars
        self._recent.append((now, chars))
        self._recent_chars += chars

    def _advance(self, now: float) -> float:
        self._now = max(self._now, now)
        while self._recent and self._recent[0][0] + WINDOW_S <= self._now:
            self._recent_chars -= self._recent.popleft()[1]
        return self._now


class CallBudget:
    """Budget of one call within that of its process."""

    def __init__(
        self,
        limits: RequestLimits,
        process_limits: RequestLimits | None = None,
        process: RequestMeter | None = None,
    ) -> None:
        self._meters = [(RequestMeter(), limits)]
        if process is not None:
            self._meters.append((process, process_limits or RequestLimits()))

    def take(self, chars: int, now: float) -> float:
        """Count a request and return ``now``, or the time of admission, or `NEVER`."""
        at = max(meter.earliest(chars, limits, now) for meter, limits in self._meters)
        if at > now:
            return at
        for meter, _ in self._meters:
            meter.spend(chars, now)
        return now
