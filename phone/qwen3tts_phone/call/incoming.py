"""Incoming calls without a program: replacements (RFC 3891), speech server outages."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from qwen3tts_phone.audio.wav import Announcement, read_announcement
from qwen3tts_phone.call.core import BackgroundTasks
from qwen3tts_phone.call.phone_call import PhoneCall
from qwen3tts_phone.errors import CallError
from qwen3tts_phone.sip.sip_call import SipCall
from qwen3tts_speech.link import SpeechLink
from qwen3tts_wire.errors import SpeechError, log_text

logger = logging.getLogger(__name__)

RETRY_AFTER_S = 10
"""Retry-After of a 503."""


async def refuse_with_retry_after(sip: SipCall) -> None:
    """Answer 503 with Retry-After; no effect on a call that is over."""
    with contextlib.suppress(CallError):
        await sip.reject(503, headers={"Retry-After": str(RETRY_AFTER_S)})


class Replacements:
    def __init__(
        self,
        call_of: Callable[[SipCall | None], PhoneCall | None],
        receive: Callable[[SipCall], Awaitable[PhoneCall]],
        tasks: BackgroundTasks,
    ) -> None:
        self._call_of = call_of
        self._receive = receive
        self._tasks = tasks

    def accept(self, sip: SipCall) -> bool:
        """Answer a call with Replaces for an awaited successor; False: none is awaited."""
        old = self._call_of(sip.replaces)
        if old is None or not old.succession_awaited:
            return False
        self._tasks.start(self._answer(sip), f"answer to {sip.call_id}")
        return True

    async def _answer(self, sip: SipCall) -> None:
        try:
            call = await self._receive(sip)
            await call.take()
        except (CallError, OSError) as error:
            logger.warning(
                "call %s: it could not replace another one: %s",
                log_text(sip.call_id),
                log_text(error),
            )
            await refuse_with_retry_after(sip)
        else:
            call.await_claim()


class SpeechOutages:
    def __init__(self, link: SpeechLink, file: Path | None) -> None:
        self.announcement = read_announcement(file) if file is not None else None
        self._link = link
        self._turned_away = 0

    async def now(self) -> SpeechError | None:
        outage = await self._link.outage()
        if outage is None and self._turned_away:
            logger.warning("the speech server is back; %d callers missed it", self._turned_away)
            self._turned_away = 0
        return outage

    def turned_away(self, outage: SpeechError) -> None:
        self._turned_away += 1
        if self._turned_away == 1:
            logger.warning("callers are turned away: %s", log_text(outage))


class OutageHandler:
    def __init__(
        self,
        outages: SpeechOutages,
        receive: Callable[[SipCall], Awaitable[PhoneCall]],
        tasks: BackgroundTasks,
    ) -> None:
        self._outages = outages
        self._receive = receive
        self._tasks = tasks

    async def handle(self, sip: SipCall) -> bool:
        """Start turning a call away; False: no outage."""
        outage = await self._outages.now()
        if outage is None:
            return False
        self._tasks.start(self._turn_away(sip, outage), f"refusal of {sip.call_id}")
        return True

    async def _turn_away(self, sip: SipCall, outage: SpeechError) -> None:
        self._outages.turned_away(outage)
        try:
            if self._outages.announcement is None:
                await refuse_with_retry_after(sip)
            else:
                await self._announce(sip, self._outages.announcement, outage)
        except (CallError, OSError) as error:
            logger.info(
                "call %s did not hear the announcement: %s", log_text(sip.call_id), log_text(error)
            )
            await refuse_with_retry_after(sip)

    async def _announce(self, sip: SipCall, said: Announcement, outage: SpeechError) -> None:
        call = await self._receive(sip)
        try:
            await call.answer()
            await call.play(said.samples, said.rate_hz)
            call.failed(outage)
        finally:
            await call.hangup()
