"""Handing a call on, and being handed on: REFER (RFC 3515) in both directions."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from qwen3tts_phone.call.events import (
    CallForwarded,
    CallQueued,
    CallRinging,
    CallTransferred,
    TransferAsked,
    TransferProgress,
)
from qwen3tts_phone.errors import (
    CallError,
    CallNotAllowed,
    CallRefused,
    TransferFailed,
    WrongState,
)
from qwen3tts_phone.facts import follows
from qwen3tts_phone.sip.call.state import ReferReceived
from qwen3tts_wire.errors import log_text

if TYPE_CHECKING:
    from qwen3tts_phone.call.control import CallControl
    from qwen3tts_phone.call.phone_call import PhoneCall
    from qwen3tts_phone.phone import Phone
    from qwen3tts_phone.sip.sip_call import SipCall

logger = logging.getLogger(__name__)

DECLINED = 603
FORBIDDEN = 403
PROGRESS = {CallRinging: (180, "Ringing"), CallForwarded: (181, "Call Is Being Forwarded")}
"""What the far end is told of the call that it asked us to make."""
PROGRESS_QUEUED = (182, "Queued")
NOT_DIALLED = (CallError, OSError, ValueError)
"""What the call that they ask for may fail with: also for want of descriptors, or by a header of
theirs that cannot be sent on."""
MAX_CHAIN = 10
"""Most transfers by far ends in a row, each of the call that the one before has led to."""


class CallTransfers:
    """One call's transfers."""

    def __init__(self, phone: Phone, life: CallControl) -> None:
        self._phone = phone
        self._call = life
        self._refused = False
        """Whether the log has a refusal of theirs."""
        self._going: set[asyncio.Task[None]] = set()

    # --- ours

    async def hand_on(
        self,
        target: str,
        *,
        replaces: SipCall | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        """Ask the far end to call ``target``; returns when it has reported that it talks to it.

        Raises:
            CallNotAllowed: a rule of ours forbids that target.
            CallRefused: the far end does not take transfers.
            TransferFailed: the target was not reached; the call goes on.
        """
        self._phone.allow(target)
        transfer = await self._call.sip.refer(target, replaces=replaces, headers=headers)
        reason = ""
        async for progress in transfer.events:
            reason = progress.reason
            now = self._phone.clock.now()
            self._call.news.tell(TransferProgress(now, progress.status, progress.reason))
        status = await transfer.done()
        if status >= 300:
            raise TransferFailed(status, reason)
        self._call.facts.transferred_to = target

    # --- theirs

    def asked(self, refer: ReferReceived) -> None:
        """The far end wants us to call somebody; the phone's setting says what becomes of it."""
        policy = self._phone.settings.transfers
        # The far end must not fill the log: it is told of once.
        level = logging.DEBUG if self._refused else logging.WARNING
        if policy == "refuse":
            self._refused = True
            logger.log(
                level,
                "call %s: a transfer by the far end was refused (setting transfers)",
                log_text(self._call.id),
            )
            refer.refuse(DECLINED)
            return
        try:
            self._phone.allow(refer.target)
            if self._call.facts.handed_on >= MAX_CHAIN:
                raise CallNotAllowed(
                    f"{MAX_CHAIN} transfers led to this call already.",
                    rule="transfers",
                    remedy="Call the target directly; the transfers may be a loop.",
                )
        except CallNotAllowed as error:
            self._refused = True
            logger.log(
                level,
                "call %s: a transfer was refused: %s",
                log_text(self._call.id),
                log_text(error),
            )
            refer.refuse(FORBIDDEN)
            return
        if policy == "accept":
            # It goes on when the far end hangs up meanwhile, as many do after the 202.
            task = self._phone.handed.start(self._follow(refer), f"transfer of {self._call.id}")
            self._going.add(task)
            task.add_done_callback(self._going.discard)
            return
        self._call.news.tell(
            TransferAsked(
                self._phone.clock.now(),
                refer.target,
                refer.referred_by or "",
                accept=lambda: self._accept(refer),
                refuse=lambda: refer.refuse(DECLINED),
            )
        )

    def call_over(self) -> None:
        """We have hung up: calls that were to take this one's place are not made any more."""
        for task in list(self._going):
            task.cancel()

    async def _follow(self, refer: ReferReceived) -> None:
        try:
            new = await self._go(refer)
        except NOT_DIALLED as error:
            logger.warning(
                "call %s: a transfer by the far end failed: %s",
                log_text(self._call.id),
                log_text(error),
            )
        else:
            new.life.await_claim()
            if not self._call.body.over.is_set():
                self._call.body.start(self._call.end_handed_on(new.life.body), "hang-up")

    async def _accept(self, refer: ReferReceived) -> PhoneCall:
        """The program has decided for it, and gets the new call."""
        new = await self._go(refer)
        new.claim()
        return new

    async def _go(self, refer: ReferReceived) -> PhoneCall:
        """Make the call that is asked for; it, once it is answered."""
        if not refer.accept():
            raise WrongState("The far end no longer waits for the transfer, or it was decided.")
        succession = self._call.body.succession
        succession.begin()
        try:
            new = await self._dial(refer)
        except BaseException:
            succession.failed()
            raise
        self._call.facts.transferred_to = refer.target
        refer.notify(200, "OK")
        succession.goes_on(new)
        self._call.news.tell(CallTransferred(self._phone.clock.now(), new))
        return new

    async def _dial(self, refer: ReferReceived) -> PhoneCall:
        headers = {}
        if refer.replaces is not None:
            headers["Replaces"] = refer.replaces.value
        if refer.referred_by:
            headers["Referred-By"] = f"<{refer.referred_by}>"
        account = self._call.facts.account
        try:
            # With the account of this call, or with none: never in the name of another one.
            new = await self._phone.dial(
                refer.target,
                headers or None,
                with_account=bool(account),
                account=account or None,
                theirs=True,
            )
        except NOT_DIALLED:
            refer.notify(503, "Service Unavailable")
            raise
        follows(new.facts, self._call.facts)
        telling = asyncio.create_task(self._tell(new, refer), name="progress of a transfer")
        try:
            await new.answered()
        except CallRefused as error:
            refer.notify(error.status, error.reason)
            raise
        except (CallError, OSError):
            refer.notify(480, "Temporarily Unavailable")
            raise
        except asyncio.CancelledError:
            self._phone.handed.start(new.hangup(), f"end of {new.id}")
            raise
        finally:
            telling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await telling
        return new

    @staticmethod
    async def _tell(new: PhoneCall, refer: ReferReceived) -> None:
        async for event in new.progress():
            if isinstance(event, CallQueued):
                refer.notify(*PROGRESS_QUEUED)
            elif type(event) in PROGRESS:
                refer.notify(*PROGRESS[type(event)])
