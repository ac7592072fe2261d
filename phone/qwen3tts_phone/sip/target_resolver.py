"""Server of a request, redirections included."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from qwen3tts_phone.errors import CallError
from qwen3tts_phone.sip.call.outgoing import OutgoingCall
from qwen3tts_phone.sip.call.redirection import RedirectTarget
from qwen3tts_phone.sip.core.account import Account
from qwen3tts_phone.sip.core.failure import host_not_found
from qwen3tts_phone.sip.core.ua_core import UserAgentCore
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.registration.lines import AccountLines, target_uri
from qwen3tts_phone.sip.transport.listeners import Listeners
from qwen3tts_phone.sip.transport.locator import Locator


class TargetResolver:
    """Server look-up for requests outside dialogs."""

    def __init__(
        self,
        agent: UserAgentCore,
        lines: AccountLines,
        locator: Locator,
        listeners: Listeners,
        now: Callable[[], float],
    ) -> None:
        self._agent = agent
        self._lines = lines
        self._locator = locator
        self._listeners = listeners
        self._now = now

    async def find(self, target: str, account: Account | None, *, theirs: bool = False) -> Hop:
        """Return the first server, which knows the others; ``theirs``: see `Locator.locate`.

        Raises:
            BadSip, CalleeUnreachable: none.
        """
        if account is not None and self._lines.serves(account, target):
            return await self._of_account(account)
        hop = self._agent.hop(target, transport=account.transport if account is not None else "")
        try:
            hops = await self._locator.locate(hop, self._agent.settings.enabled, theirs=theirs)
        except OSError as error:
            raise host_not_found(target, error) from error
        return self._agent.health.first(hops, self._now())

    async def _of_account(self, account: Account) -> Hop:
        try:
            hops = await self._lines.servers(account)
        except OSError as error:
            raise host_not_found(account.servers[0], error) from error
        line = self._lines.all.get(account.name)
        used = line.core.hop if line is not None and line.core is not None else None
        return self._agent.health.first(hops, self._now(), prefer=used)

    def address_for(self, uri: str, account: Account | None) -> str:
        target = target_uri(uri, account)
        if account is not None and self._lines.serves(account, target):
            line = self._lines.all.get(account.name)
            if line is not None and line.hop is not None:
                return self._listeners.local(line.hop)[0]
            target = account.servers[0]
        hop = self._agent.hop(target, transport=account.transport if account is not None else "")
        return self._listeners.local(self._locator.current(hop) or hop)[0]


CheckTarget = Callable[[str], None]
"""Raises CallError for a forbidden address."""


class RedirectFollower:
    """Follows 3xx responses of an endpoint's calls."""

    def __init__(
        self,
        ways: TargetResolver,
        lines: AccountLines,
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

    def attach(self, call: OutgoingCall, account: Account | None, check: CheckTarget) -> None:
        def locate(target: RedirectTarget) -> None:
            self._run(self._locate(call, account, check, target))

        call.redirection.locate = locate

    async def _locate(
        self,
        call: OutgoingCall,
        account: Account | None,
        check: CheckTarget,
        target: RedirectTarget,
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
            # Credentials are decided for each target: a stranger gets no password, nor do the
            # targets that it redirects to, the account's servers included.
            digest = None
            if call.digest is not None:
                digest = self._lines.digest_towards(account, hop)
            ours = account is not None and self._lines.has_server(hop.host)
            leave_out = () if ours or account is None else tuple(account.headers)
            call.redirection.found(target, hop, digest, leave_out, self._now())
        except CallError as error:
            call.redirection.not_found(error, self._now())
        self._flush()
