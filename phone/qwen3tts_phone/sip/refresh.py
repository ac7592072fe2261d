"""Refreshing a session (RFC 4028): by an UPDATE without a body where they know it (section 7.4),
else by sending the session once more in a re-INVITE."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from qwen3tts_phone.errors import BadSip, CalleeUnreachable
from qwen3tts_phone.sip.asked import Asked
from qwen3tts_phone.sip.message import Response
from qwen3tts_phone.sip.refused import refused
from qwen3tts_phone.sip.transaction import Failure

if TYPE_CHECKING:
    from qwen3tts_phone.sip.call import Call

UNKNOWN = (405, 420, 501)
"""Answers to an UPDATE that say that it is not known after all."""


class UpdateRefresh:
    """The refreshes of one call."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._refused = False
        self._under_way = False

    def send(self, now: float) -> None:
        """Refresh the session."""
        call = self._call
        if self._refused or not call.says_it_allows("UPDATE"):
            call.modification.refresh(now)
            return
        dialog = call.dialog
        if dialog is None or self._under_way:
            call.timer.refresh_failed(now)
            return
        request = dialog.request("UPDATE")
        call.agent.describe(request)
        call.timer.ask(request)
        self._under_way = True
        call.send_inside(request, Asked(self._done), now)

    def _done(self, outcome: Response | Failure, now: float) -> None:
        call = self._call
        self._under_way = False
        if isinstance(outcome, Failure):
            error = CalleeUnreachable(
                "The far end no longer answers.",
                remedy="Check the network, then call again.",
                why="session",
            )
            call.lost(now, error)
        elif outcome.status < 300:
            with contextlib.suppress(BadSip):
                if call.dialog is not None:
                    call.refresh_target(call.dialog, outcome)
            call.learn(outcome)
            call.timer.answered(outcome, now)
        elif outcome.status in UNKNOWN:
            self._refused = True
            call.modification.refresh(now)
        elif outcome.status in (408, 481):
            call.lost(now, refused(outcome, call.digest, what="refresh of the session"))
        else:
            call.timer.refresh_failed(now)
