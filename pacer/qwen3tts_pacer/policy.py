"""Filling policy: when it is safe to start playout, learnt from past arrivals.

The *relative delay* of a frame is its arrival minus its place in the media. Playout that begins at
P underruns unless P is at least the relative delay of every frame to come: the *need* of an
utterance, known afterwards, is its greatest relative delay minus its first. The greatest *rise* of
the relative delay above its minimum so far is the longest hole that the queue must outlast. Both
are kept as forgetting histograms for each voice and server. Playout starts when either holds:

* the wait since the first frame reaches the need, or
* the queue would outlast the rise (a burst may start immediately).

One slow utterance in ten is no reason to delay the other nine: the wait is at most ``excess_s``
above what most utterances need. One that needs more underruns once, is known to be slow, and is
filled up to what slow ones need.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

BIN_S = 0.01
BINS = 100  # the last one holds whatever is a second or more
PAUSE_S = 0.25  # a gap in the arrivals of this length, and three times what comes in one batch
ENOUGH_S = 0.5  # of media, before a rate is taken from it
KNOWN = 10  # utterances, before what slow ones need is believed to be known
KEYS_KEPT = 32  # voice and server pairs remembered by one policy
LIVE_KEY: Final = "live"
"""Key of live sound: its source lets `LIVE_LEAD_S` wait for playout, and drops what is more."""
LIVE_LEAD_S: Final = 0.1


class Filling(Protocol):
    """Policy that the core asks; times in seconds, ``first`` and ``count`` in frames."""

    def begin(self, context: int, key: str) -> None:
        """Begin an utterance of this voice and server (``key``)."""
        ...

    def arrived(self, context: int, first: int, count: int, now: float) -> None:
        """Note frames ``first`` to ``first + count - 1``, which came together."""
        ...

    def start_at(self, context: int) -> float:
        """Return when playout may start, given what has arrived."""
        ...

    def starved(self, context: int) -> None:
        """Note an underrun before the context was finished."""
        ...

    def resume_at(self, context: int, queued_s: float, now: float) -> float:
        """Return when playout may resume after an underrun; asked at each arrival."""
        ...

    def end(self, context: int) -> None: ...


@dataclass(frozen=True)
class FillingSettings:
    """Bounds of the wait; all times in seconds."""

    ceiling_s: float = 0.2
    """Longest wait before the first frame of an utterance."""
    cold_s: float = 0.06
    """Need and rise assumed of an unknown voice and server."""
    quantile: float = 0.98
    """Share of utterances that should not underrun."""
    forgetting: float = 0.97
    """Weight of an utterance relative to the one after it."""
    margin_s: float = 0.03
    """Added to a need above 0. ``benchmarks/pacer_traces.py``: 20 ms leave 3 holes in 2600
    utterances, 30 ms one, 50 ms one."""
    excess_s: float = 0.06
    """Bound of the wait above what nearly every utterance needs; without it the mean wait is up to
    135 ms too long (``benchmarks/pacer_traces.py``)."""
    spared: float = 0.05
    """Share of utterances that may wait longer than that: 17 of 4000 do, by 20 ms; 0.02 leaves 8
    and underruns 272 times instead of 216, 0.0 leaves none and underruns 461 times."""
    rebuffer_s: float = 0.06
    """Least audio in the queue after an underrun."""
    play_on_s: float = 4.0
    """Wanted duration of speech after an underrun where arrivals are slower than real time."""
    rebuffer_growth: float = 1.5
    """Factor of each further underrun of such an utterance."""
    rebuffer_most_s: float = 2.0
    lead_s: float | None = None
    """Greatest lead of the server over the playout; more is never waited for."""
    pinned_s: float | None = None
    """Fixed wait after the first frame; nothing is adapted then."""

    def __post_init__(self) -> None:
        if not 0.0 < self.quantile <= 1.0 or not 0.0 < self.forgetting <= 1.0:
            raise ValueError(
                f"quantile={self.quantile} and forgetting={self.forgetting} must be above 0 and at"
                " most 1"
            )
        if not 0.0 <= self.spared <= 1.0:
            raise ValueError(f"spared={self.spared} is not between 0 and 1")
        if not 1.0 <= self.rebuffer_growth <= 10.0:
            raise ValueError(f"rebuffer_growth={self.rebuffer_growth} is not between 1 and 10")
        for name, value in vars(self).items():
            if name.endswith("_s") and value is not None and not 0.0 <= value <= 60.0:
                raise ValueError(f"{name}={value} is not between 0 and 60 seconds")


class _Histogram:
    __slots__ = ("weights",)

    def __init__(self) -> None:
        self.weights = [0.0] * BINS

    def add(self, value_s: float, forgetting: float) -> None:
        self.weights = [weight * forgetting for weight in self.weights]
        self.weights[min(BINS - 1, max(0, int(value_s / BIN_S + 0.999999)))] += 1.0

    def quantile(self, share: float, up_to: int = BINS) -> float:
        """Return the upper edge (seconds) of the bin with the share of the first ``up_to``."""
        weights = self.weights[:up_to]
        left = sum(weights) * share
        for index, weight in enumerate(weights):
            left -= weight
            if left <= 1e-9:
                return index * BIN_S
        return (len(weights) - 1) * BIN_S


class _History:
    __slots__ = ("need", "refill_need_s", "rise", "seen", "wait_need_s", "wait_rise_s")

    def __init__(self, cold_s: float) -> None:
        self.need = _Histogram()
        self.rise = _Histogram()
        self.seen = 0
        self.wait_need_s = cold_s
        self.wait_rise_s = cold_s
        self.refill_need_s = 0.0  # what a slow utterance needs

    def learn(self, need_s: float, rise_s: float, settings: FillingSettings) -> None:
        self.need.add(need_s, settings.forgetting)
        self.rise.add(rise_s, settings.forgetting)
        self.seen += 1
        self.settle(settings)

    def settle(self, settings: FillingSettings) -> None:
        # An utterance that no permitted wait would have saved is no reason to wait, unless most
        # are so: then at least the first hole comes later.
        useful = min(BINS, int(settings.ceiling_s / BIN_S + 1e-6) + 1)
        weights = self.need.weights
        if sum(weights[:useful]) < sum(weights[useful:]):
            slow = settings.ceiling_s
        else:
            need = self.need.quantile(settings.quantile, useful)
            slow = need + settings.margin_s if need > 0.0 else 0.0
        self.refill_need_s = min(slow, settings.ceiling_s)
        usual = self.need.quantile(settings.spared)
        self.wait_need_s = min(self.refill_need_s, usual + settings.excess_s)
        self.wait_rise_s = self.rise.quantile(settings.quantile) + settings.margin_s


class _Arrivals:
    __slots__ = (
        "base",
        "batch",
        "began",
        "frames",
        "history",
        "last",
        "lead_s",
        "least",
        "least_of_all",
        "need",
        "need_between",
        "paused",
        "refill",
        "rise",
        "rise_between",
        "underruns",
    )

    def __init__(self, history: _History, lead_s: float) -> None:
        self.history = history
        self.lead_s = lead_s  # of the source over the playout, at most
        self.began = 0.0  # first arrival
        self.base = 0.0  # the relative delay that the need between pauses counts from
        self.last = 0.0  # arrival
        self.batch = 0  # most frames that came together
        self.paused = 0.0  # how long nothing came, in gaps too long to be a rate
        self.least = 0.0  # relative delay, since the last pause
        self.least_of_all = 0.0
        self.need = 0.0
        self.rise = 0.0
        self.need_between = 0.0  # these two count between pauses
        self.rise_between = 0.0
        self.frames = 0
        self.underruns = 0
        self.refill: float | None = None


class FillingPolicy:
    """Adaptive policy of one call."""

    def __init__(
        self,
        settings: FillingSettings | None = None,
        *,
        ptime_s: float = 0.02,
        learnt: Mapping[str, Any] | None = None,
    ) -> None:
        self.settings = settings or FillingSettings()
        self.ptime_s = ptime_s
        """Duration of a frame; may change between utterances."""
        self._histories: dict[str, _History] = {}
        self._open: dict[int, _Arrivals] = {}
        if learnt is not None:
            self._restore(learnt)

    def begin(self, context: int, key: str) -> None:
        history = self._histories.pop(key, None)
        if history is None:
            history = _History(self.settings.cold_s)
            if len(self._histories) >= KEYS_KEPT:
                del self._histories[next(iter(self._histories))]
        self._histories[key] = history  # last used is last
        lead_s = math.inf if self.settings.lead_s is None else self.settings.lead_s
        if key == LIVE_KEY:
            lead_s = min(lead_s, LIVE_LEAD_S)
        self._open[context] = _Arrivals(history, lead_s)

    def arrived(self, context: int, first: int, count: int, now: float) -> None:
        seen = self._open[context]
        delay = now - first * self.ptime_s
        if seen.frames == 0:
            seen.began = seen.base = seen.least = seen.least_of_all = delay
        else:
            gap = now - seen.last
            if delay - seen.began > seen.need:
                seen.need = delay - seen.began
            if delay - seen.least_of_all > seen.rise:
                seen.rise = delay - seen.least_of_all
            if gap > PAUSE_S and gap > 3 * seen.batch * self.ptime_s:
                # Not jitter but a pause, of the text or the network, that no wait may bridge:
                # count from here.
                seen.paused += gap
                seen.base = max(seen.base, delay)
                seen.least = delay
            elif delay > seen.least:
                seen.rise_between = max(seen.rise_between, delay - seen.least)
                seen.need_between = max(seen.need_between, delay - seen.base)
        seen.last = now
        if count > seen.batch:
            seen.batch = count
        seen.frames = first + count
        last_delay = delay - (count - 1) * self.ptime_s
        if last_delay < seen.least:
            seen.least = last_delay
        if seen.least < seen.least_of_all:
            seen.least_of_all = seen.least
        if seen.underruns and seen.refill is None:
            seen.refill = now

    def start_at(self, context: int) -> float:
        seen = self._open[context]
        settings = self.settings
        if settings.pinned_s is not None:
            return seen.began + settings.pinned_s
        need = min(seen.history.wait_need_s, settings.ceiling_s)
        rise = min(seen.history.wait_rise_s, seen.lead_s)
        return min(seen.began + need, seen.least + rise)

    def starved(self, context: int) -> None:
        seen = self._open[context]
        seen.underruns += 1
        seen.refill = None

    def resume_at(self, context: int, queued_s: float, now: float) -> float:
        """Return when playout may resume.

        Arrivals at 1/r of real time let a queue of q seconds last q / (1 - 1/r): a slow server
        gives a few long holes rather than many short ones. Pauses (a stall, text still to come) are
        not slowness. The wait is bounded, so that a server that stopped does not keep back what it
        sent.
        """
        seen = self._open[context]
        settings = self.settings
        wanted = settings.rebuffer_s
        media = seen.frames * self.ptime_s
        slowness = (seen.last - seen.began - seen.paused) / media
        if media >= ENOUGH_S and slowness > 1.0:
            growth = settings.rebuffer_growth ** min(max(seen.underruns - 1, 0), 16)
            wanted = max(wanted, growth * settings.play_on_s * (1.0 - 1.0 / slowness))
        if seen.rise_between <= settings.ceiling_s:
            wanted = max(wanted, seen.rise_between)  # what came late so far may come as late again
        wanted = min(wanted, settings.rebuffer_most_s, seen.lead_s)
        if seen.refill is None:
            seen.refill = now
        ready_at = now if queued_s >= wanted - 1e-9 else seen.refill + 2.0 * wanted
        history = seen.history
        need = lasts_s = settings.ceiling_s
        if history.seen >= KNOWN:
            need = min(need, max(history.refill_need_s, seen.need + settings.margin_s))
            lasts_s = max(history.wait_rise_s, seen.rise_between + settings.margin_s)
        if settings.pinned_s is None and queued_s < min(lasts_s, seen.lead_s):
            # This is a slow utterance: go on as one that had waited for what those need.
            safe_at = seen.began + need + media - queued_s
            ready_at = max(ready_at, min(safe_at, seen.refill + settings.ceiling_s))
        return ready_at

    def end(self, context: int) -> None:
        seen = self._open.pop(context, None)
        if seen is not None and seen.frames:
            # A stall in the middle, however long, counts where a permitted wait would bridge it.
            if seen.need <= self.settings.ceiling_s:
                seen.history.learn(seen.need, seen.rise, self.settings)
            else:
                seen.history.learn(seen.need_between, seen.rise_between, self.settings)

    def export(self) -> dict[str, Any]:
        """Return what was learnt as plain data, some hundred bytes a key.

        ``learnt`` of a later call.
        """
        return {
            key: {
                "seen": history.seen,
                "need": _sparse(history.need),
                "rise": _sparse(history.rise),
            }
            for key, history in self._histories.items()
            if history.seen
        }

    def _restore(self, learnt: Mapping[str, Any]) -> None:
        for key, state in list(learnt.items())[-KEYS_KEPT:]:
            history = _History(self.settings.cold_s)
            try:
                history.seen = int(state["seen"])
                _fill(history.need, state["need"])
                _fill(history.rise, state["rise"])
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise ValueError(
                    f"learnt state of {key!r} is not what export() gives ({error!r}); leave it out"
                ) from error
            if history.seen > 0:
                history.settle(self.settings)
                self._histories[key] = history


def _sparse(histogram: _Histogram) -> dict[str, float]:
    return {str(index): round(w, 4) for index, w in enumerate(histogram.weights) if w >= 0.001}


def _fill(histogram: _Histogram, weights: Mapping[str, float]) -> None:
    for index, weight in weights.items():
        if not 0 <= int(index) < BINS or not 0.0 <= float(weight) < 1e6:
            raise ValueError(f"bin {index}: {weight}")
        histogram.weights[int(index)] = float(weight)
