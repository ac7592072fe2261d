"""Transfers by REFER (RFC 3515) in both directions."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Protocol

from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.call.call import Call, CallTransferred, TransferAsked
from qwen3tts_phone.call.core import BackgroundTasks, CallCore
from qwen3tts_phone.call.events import CallForwarded, CallQueued, CallRinging, TransferProgress
from qwen3tts_phone.errors import (
    CallError,
    CallNotAllowed,
    CallRefused,
    TransferFailed,
    WrongState,
)
from qwen3tts_phone.facts import CallFacts, link_successor
from qwen3tts_phone.settings.phone import PhoneSettings
from qwen3tts_phone.sip.call.state import ReferReceived
from qwen3tts_phone.sip.sip_call import SipCall
from qwen3tts_wire.errors import log_text

logger = logging.getLogger(__name__)

DECLINED = 603
FORBIDDEN = 403
PROGRESS = {CallRinging: (180, "Ringing"), CallForwarded: (181, "Call Is Being Forwarded")}
"""NOTIFY of a transfer's progress (RFC 3515)."""
PROGRESS_QUEUED = (182, "Queued")
NOT_DIALLED = (CallError, OSError, ValueError)
"""Errors of the call that they ask for: also for want of descriptors, or by a header of
theirs that cannot be sent on."""
MAX_CHAIN = 10
"""Most transfers by far ends in a row, each of the call that the one before has led to."""


HANDED_ON_S = 5.0
"""Time after which the call of a far end that transferred us is ended."""


class CallHost(Protocol):
    clock: Clock
    settings: PhoneSettings
    tasks: BackgroundTasks

    def allow(self, target: str) -> None: ...
    def address_of(self, target: str, account: str) -> str: ...
    def trusts_media_of(self, host: str) -> bool: ...
    def call_of(self, sip: SipCall | None) -> Call | None: ...
    def forget(self, facts: CallFacts) -> None: ...
    async def dial(
        self,
        uri: str,
        headers: dict[str, str] | None = None,
        *,
        with_account: bool = True,
        account: str | None = None,
        theirs: bool = False,
    ) -> Call: ...


class CallTransfers:
    def __init__(self, phone: CallHost, sip: SipCall, core: CallCore) -> None:
        self._phone = phone
        self._sip = sip
        self._core = core
        self._refused = False
        """True if the log has a refusal of theirs."""
        self._under_way: set[asyncio.Task[None]] = set()

    # --- ours

    async def transfer(
        self,
        target: str,
        *,
        replaces: SipCall | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        self._phone.allow(target)
        transfer = await self._sip.refer(target, replaces=replaces, headers=headers)
        reason = ""
        async for progress in transfer.events:
            reason = progress.reason
            now = self._phone.clock.now()
            self._core.publish(TransferProgress(now, progress.status, progress.reason))
        status = await transfer.done()
        if status >= 300:
            raise TransferFailed(status, reason)
        self._core.facts.transferred_to = target

    # --- theirs

    def on_refer(self, refer: ReferReceived) -> None:
        policy = self._phone.settings.transfers
        # Once: the far end must not fill the log.
        level = logging.DEBUG if self._refused else logging.WARNING
        if policy == "refuse":
            self._refused = True
            logger.log(
                level,
                "call %s: a transfer by the far end was refused (setting transfers)",
                log_text(self._sip.call_id),
            )
            refer.refuse(DECLINED)
            return
        try:
            self._phone.allow(refer.target)
            if self._core.facts.handed_on >= MAX_CHAIN:
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
                log_text(self._sip.call_id),
                log_text(error),
            )
            refer.refuse(FORBIDDEN)
            return
        if policy == "accept":
            # It goes on when the far end hangs up meanwhile, as many do after the 202.
            task = self._phone.tasks.start(self._follow(refer), f"transfer of {self._sip.call_id}")
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            return
        self._core.publish(
            TransferAsked(
                self._phone.clock.now(),
                refer.target,
                refer.referred_by or "",
                accept=lambda: self._accept(refer),
                refuse=lambda: refer.refuse(DECLINED),
            )
        )

    def call_over(self) -> None:
        for task in list(self._under_way):
            task.cancel()

    async def _follow(self, refer: ReferReceived) -> None:
        try:
            new = await self._complete(refer)
        except NOT_DIALLED as error:
            logger.warning(
                "call %s: a transfer by the far end failed: %s",
                log_text(self._sip.call_id),
                log_text(error),
            )
        else:
            new.await_claim()
            if not self._core.over.is_set():
                self._core.start(self._end_handed_on(new), "hang-up")

    async def _end_handed_on(self, new: Call) -> None:
        """End this call where the far end, having transferred us, does not (RFC 5589 6.1)."""
        await new.claimed()
        await self._phone.clock.sleep_until(self._phone.clock.now() + HANDED_ON_S)
        await self._core.hang_up()

    async def _accept(self, refer: ReferReceived) -> Call:
        new = await self._complete(refer)
        new.claim()
        return new

    async def _complete(self, refer: ReferReceived) -> Call:
        if not refer.accept():
            raise WrongState("The far end no longer waits for the transfer, or it was decided.")
        succession = self._core.succession
        succession.begin()
        try:
            new = await self._dial(refer)
        except BaseException:
            succession.failed()
            raise
        self._core.facts.transferred_to = refer.target
        refer.notify(200, "OK")
        succession.goes_on(new)
        self._core.publish(CallTransferred(self._phone.clock.now(), new))
        return new

    async def _dial(self, refer: ReferReceived) -> Call:
        headers = {}
        if refer.replaces is not None:
            headers["Replaces"] = refer.replaces.value
        if refer.referred_by:
            headers["Referred-By"] = f"<{refer.referred_by}>"
        account = self._core.facts.account
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
        link_successor(new.facts, self._core.facts)
        telling = asyncio.create_task(
            self._notify_progress(new, refer), name="progress of a transfer"
        )
        try:
            await new.answered()
        except CallRefused as error:
            refer.notify(error.status, error.reason)
            raise
        except (CallError, OSError):
            refer.notify(480, "Temporarily Unavailable")
            raise
        except asyncio.CancelledError:
            self._phone.tasks.start(new.hangup(), f"end of {new.id}")
            raise
        finally:
            telling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await telling
        return new

    @staticmethod
    async def _notify_progress(new: Call, refer: ReferReceived) -> None:
        async for event in new.progress():
            if isinstance(event, CallQueued):
                refer.notify(*PROGRESS_QUEUED)
            elif type(event) in PROGRESS:
                refer.notify(*PROGRESS[type(event)])
