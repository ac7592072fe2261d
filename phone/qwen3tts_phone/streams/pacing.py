"""How punctual this process's event loop is: streams are paced in it, and agents run there."""

from __future__ import annotations

import logging

from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.media.admission import Pacing
from qwen3tts_phone.media.load import LoadMeter, MediaLoad
from qwen3tts_phone.streams.gate import StreamGate

logger = logging.getLogger(__name__)

TICK_S = 0.02
"""A frame. What the loop owes every call at this interval it is asked for once here: a far end that
takes frames slowly makes its own pacer late, and not this."""
SKIPPED_S = 0.1
"""A tick that comes later is a skipped one: no far end has so much queued for certain."""
REPORT_S = 1.0


async def watch_pacing(gate: StreamGate, clock: Clock) -> None:
    """Tell the gate every second how late the loop runs, until cancelled."""
    meter = LoadMeter(_ns(clock.now()))
    skipped = 0
    at = clock.now()
    report_at = at + REPORT_S
    while True:
        at += TICK_S
        await clock.sleep_until(at)
        now = clock.now()
        late_s = now - at
        if late_s > TICK_S:
            at = now
        if late_s > SKIPPED_S:
            skipped += int(late_s / TICK_S)
        meter.served(1, _ns(max(0.0, late_s - TICK_S)), skipped)
        if now >= report_at:
            report_at = now + REPORT_S
            _report(gate, MediaLoad(**meter.report(_ns(now), gate.open)))


def _report(gate: StreamGate, load: MediaLoad) -> None:
    if not gate.pacing.report(load):
        return
    if gate.pacing.state is Pacing.FULL:
        logger.warning("no further stream is taken: %s", gate.pacing.figures)
    else:
        logger.info("streams are taken again: %s", gate.pacing.figures)


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
