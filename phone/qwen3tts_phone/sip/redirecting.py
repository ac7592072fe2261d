"""Calls of ours that are redirected: the shell that locates each next address."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from qwen3tts_phone.errors import CallError
from qwen3tts_phone.sip.account import Account
from qwen3tts_phone.sip.lines import Lines
from qwen3tts_phone.sip.outgoing import OutgoingCall
from qwen3tts_phone.sip.redirection import RedirectTarget
from qwen3tts_phone.sip.ways import Ways

Check = Callable[[str], None]
"""Raises CallError for an address that may not be called."""


class RedirectFollower:
    """Makes the calls of an endpoint follow 3xx answers."""

    def __init__(
        self,
        ways: Ways,
        lines: Lines,
        *,
        now: Callable[[], float],
        run: Callable[[Coroutine[Any, Any, None]], None],
        flush: Callable[[], None],
    ) -> None:
        self._ways = ways
        self._lines = lines
        self._now = now
        self._run = run
        self._flush = flush

    def attach(self, call: OutgoingCall, account: Account | None, check: Check) -> None:
        """Have a call follow, within the rules that ``check`` knows."""

        def locate(target: RedirectTarget) -> None:
            self._run(self._locate(call, account, check, target))

        call.redirection.locate = locate

    async def _locate(
        self, call: OutgoingCall, account: Account | None, check: Check, target: RedirectTarget
    ) -> None:
        try:
            for callee in target.callees:
                check(callee)
            if account is not None and not target.proxy and self._lines.serves(account, target.uri):
                # An outbound proxy is on the way to every address.
                target = replace(target, proxy=account.proxy)
                hop = await self._ways.find(target.uri, account, theirs=True)
            else:
                hop = await self._ways.find(target.proxy or target.uri, None, theirs=True)
            # Each request is looked at by itself: a stranger gets no password, and none of the
            # addresses that he sends the call to, the account's servers included.
            digest = None
            if call.digest is not None:
                digest = self._lines.digest_towards(account, hop)
            ours = account is not None and self._lines.has_server(hop.host)
            leave_out = () if ours or account is None else tuple(account.headers)
            call.redirection.found(target, hop, digest, leave_out, self._now())
        except CallError as error:
            call.redirection.not_found(error, self._now())
        self._flush()
