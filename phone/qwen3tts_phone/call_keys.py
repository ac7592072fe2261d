"""Keys of the telephone on one call, both ways: RFC 4733 with the media, or SIP INFO."""

from __future__ import annotations

from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.call_events import KeyPressed
from qwen3tts_phone.call_facts import CallFacts
from qwen3tts_phone.errors import WrongState
from qwen3tts_phone.keypad import checked_keys
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.sip.sip_call import SipCall

METHODS = ("auto", "rfc4733", "info")
TWICE_S = 0.5
"""Some phones send each key by both ways; the same one within this time is one press."""


class CallKeys:
    """What is pressed on a call."""

    def __init__(self, leg: MediaLeg, sip: SipCall, clock: Clock, facts: CallFacts) -> None:
        self._leg = leg
        self._sip = sip
        self._clock = clock
        self._facts = facts
        self._last: tuple[str, str, float] | None = None

    def heard(self, digit: str, duration_ms: int, by: str, at: float) -> KeyPressed | None:
        """A key of the far end; None: it came by the other way already."""
        if self._last is not None:
            known, way, before = self._last
            if known == digit and way != by and at - before < TWICE_S:
                self._last = None
                return None
        self._last = (digit, by, at)
        return KeyPressed(at, digit, duration_ms, by)

    async def press(self, keys: str, method: str, duration_ms: int, gap_ms: int) -> None:
        """Press keys; ``auto``: with the media where the far end takes that, else by INFO.

        Raises WrongState: there is no sound yet; CallError: the far end takes neither, or these are
        no keys; ValueError for a method that is none.
        """
        if method not in METHODS:
            raise ValueError(f"method={method!r}: {', '.join(METHODS)}")
        keys = checked_keys(keys)
        remote = self._leg.remote
        if remote is None:
            raise WrongState(
                "Keys can be pressed once the call is up.",
                remedy="Await call.answer() for one that came in, call.answered() for one of ours.",
            )
        by_info = method == "info"
        if method == "auto" and remote.telephone_event_pt is None:
            by_info = self._sip.allows("INFO")
        if by_info:
            await self._press_by_info(keys, duration_ms, gap_ms)
        else:
            await self._leg.send_dtmf(keys, duration_ms, gap_ms)
        self._facts.note_keys(keys, ours=True)

    async def _press_by_info(self, keys: str, duration_ms: int, gap_ms: int) -> None:
        for key in keys:
            begun = self._clock.now()
            await self._sip.send_dtmf_info(key, duration_ms)
            await self._clock.sleep_until(begun + (duration_ms + gap_ms) / 1000)
