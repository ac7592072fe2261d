"""DTMF of a call, both ways: RFC 4733 or SIP INFO."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Callable

from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.audio.frames import KeyPressed
from qwen3tts_phone.errors import CallError, WrongState
from qwen3tts_phone.facts import CallFacts
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.sip.sip_call import SipCall

KEYS = "0123456789*#ABCD"
UNREAD_KEYS = 64
"""Keys that wait for a reader; the oldest are dropped."""


METHODS = ("auto", "rfc4733", "info")
DUPLICATE_WINDOW_S = 0.5
"""Some phones send each key by both ways; the same one within this time is one press."""


def validated_keys(keys: str) -> str:
    wrong = next((key for key in keys.upper() if key not in KEYS), None)
    if wrong is not None or not keys:
        raise CallError(
            f"{wrong!r} is no key of a telephone." if wrong else "No keys were given.",
            remedy=f"Give some of {KEYS}.",
        )
    return keys.upper()


class Keypad:
    """Keys of the far end, for any number of readers.

    Keys pressed while there is no reader wait for the next one: a caller may type ahead.

    >>> async for key in call.dtmf: ...              # KeyPressed
    >>> pin = await call.dtmf.collect(most=4)        # "1234"
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._unread: deque[KeyPressed] = deque(maxlen=UNREAD_KEYS)
        self._readers: list[_KeyReader] = []
        self._over = False

    def __aiter__(self) -> AsyncIterator[KeyPressed]:
        return self._all()

    def __call__(self) -> AsyncIterator[KeyPressed]:
        return self._all()

    async def collect(
        self,
        most: int | None = None,
        *,
        until: str = "#",
        pause_s: float = 3.0,
        first_s: float | None = 10.0,
        on_key: Callable[[KeyPressed], None] | None = None,
    ) -> str:
        """Collect the keys of one answer, such as a number.

        It is complete with ``most`` keys, with a key of ``until`` (no part of it; empty = none),
        after ``pause_s`` seconds without a further key, after ``first_s`` seconds without any (None
        = no limit), or at the call's end. Keys that wait count; :meth:`clear` drops them.
        ``on_key`` gets each key.

        Returns the keys, empty without any. Raises ValueError for arguments out of bounds.
        """
        if most is not None and most < 1:
            raise ValueError(f"most={most}: at least 1 key, or None for any number")
        wrong = next((key for key in until if key not in KEYS), None)
        if wrong is not None:
            raise ValueError(f"until={until!r}: {wrong!r} is no key; give some of {KEYS}")
        for name, seconds in (("pause_s", pause_s), ("first_s", first_s)):
            if seconds is not None and not (math.isfinite(seconds) and seconds > 0):
                raise ValueError(f"{name}={seconds} must be seconds above 0")
        keys = ""
        reader = self._open()
        try:
            while most is None or len(keys) < most:
                key = await self._next(reader, pause_s if keys else first_s)
                if key is not None and on_key is not None:
                    on_key(key)
                if key is None or key.digit in until:
                    break
                keys += key.digit
        finally:
            self._close(reader)
        return keys

    def clear(self) -> None:
        self._unread.clear()

    @property
    def unread(self) -> str:
        return "".join(key.digit for key in self._unread)

    # --- for the call

    def pressed(self, key: KeyPressed) -> None:
        if not self._readers:
            self._unread.append(key)
        for reader in self._readers:
            reader.put(key)

    def close(self) -> None:
        self._over = True
        for reader in self._readers:
            reader.news.set()

    # --- inside

    async def _all(self) -> AsyncIterator[KeyPressed]:
        reader = self._open()
        try:
            while (key := await self._next(reader, None)) is not None:
                yield key
        finally:
            self._close(reader)

    def _open(self) -> _KeyReader:
        reader = _KeyReader(self._unread)
        self._unread.clear()
        self._readers.append(reader)
        return reader

    def _close(self, reader: _KeyReader) -> None:
        self._readers.remove(reader)
        if not self._readers:  # what it left is the next reader's
            self._unread.extend(reader.keys)

    async def _next(self, reader: _KeyReader, within_s: float | None) -> KeyPressed | None:
        if within_s is None:
            await self._news(reader)
        elif not (reader.keys or self._over):
            waiting = asyncio.ensure_future(self._news(reader))
            until = asyncio.ensure_future(self._clock.sleep_until(self._clock.now() + within_s))
            try:
                await asyncio.wait((waiting, until), return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiting.cancel()
                until.cancel()
        return reader.keys.popleft() if reader.keys else None

    async def _news(self, reader: _KeyReader) -> None:
        while not (reader.keys or self._over):
            reader.news.clear()
            await reader.news.wait()


class _KeyReader:
    def __init__(self, waiting: deque[KeyPressed]) -> None:
        self.keys = deque(waiting, maxlen=UNREAD_KEYS)
        self.news = asyncio.Event()

    def put(self, key: KeyPressed) -> None:
        self.keys.append(key)
        self.news.set()


class DtmfExchange:
    def __init__(self, leg: MediaLeg, sip: SipCall, clock: Clock, facts: CallFacts) -> None:
        self._leg = leg
        self._sip = sip
        self._clock = clock
        self._facts = facts
        self._last: tuple[str, str, float] | None = None

    def received(self, digit: str, duration_ms: int, by: str, at: float) -> KeyPressed | None:
        """Return a key of the far end; None: a duplicate by the other transport."""
        if self._last is not None:
            known, way, before = self._last
            if known == digit and way != by and at - before < DUPLICATE_WINDOW_S:
                self._last = None
                return None
        self._last = (digit, by, at)
        return KeyPressed(at, digit, duration_ms, by)

    async def press(self, keys: str, method: str, duration_ms: int, gap_ms: int) -> None:
        """Send keys; ``auto``: RFC 4733 where the far end takes that, else INFO.

        Raises WrongState (no media yet), CallError (the far end takes neither, or unknown keys),
        ValueError (unknown method).
        """
        if method not in METHODS:
            raise ValueError(f"method={method!r}: {', '.join(METHODS)}")
        keys = validated_keys(keys)
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
