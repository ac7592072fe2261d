"""Accounts in use: servers, calls, credentials."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from qwen3tts_phone.errors import BadSip, WrongState
from qwen3tts_phone.sip.call.incoming import IncomingCall
from qwen3tts_phone.sip.core.account import Account, AccountCredentials, address_of_record
from qwen3tts_phone.sip.core.ua_core import UserAgentCore
from qwen3tts_phone.sip.message.fields import check_secure, is_ip, parse_uri
from qwen3tts_phone.sip.message.message import Response
from qwen3tts_phone.sip.message.network import Hop, address_of, in_networks
from qwen3tts_phone.sip.message.via import mapped_address
from qwen3tts_phone.sip.registration.keepalive import Keepalive, Located
from qwen3tts_phone.sip.registration.line import AccountEvent, Line, Registration
from qwen3tts_phone.sip.registration.registration import RegistrationCore
from qwen3tts_phone.sip.transaction.digest import Digest
from qwen3tts_phone.sip.transport.listeners import Listeners
from qwen3tts_phone.sip.transport.locator import Locator

LOOK_EVERY_S = 60.0
"""Interval of server look-ups."""
MOVED_EVERY_S = 10.0
"""Interval of checks of our own address."""
MAX_CREDENTIALS = 1000
"""Accounts not in use whose credentials are kept."""
SERVER_RANK = 1000
"""First rank of the next server; SRV records of one lie below."""

Run = Callable[[Coroutine[Any, Any, None]], None]


class AccountLines:
    """Accounts by name, in order of addition."""

    def __init__(
        self,
        agent: UserAgentCore,
        locator: Locator,
        listeners: Listeners,
        *,
        now: Callable[[], float],
        flush: Callable[[], None],
        run: Run,
        tell: Callable[[AccountEvent], None],
        trust: Callable[[str, Sequence[str]], None],
    ) -> None:
        self.all: dict[str, Line] = {}
        self._agent = agent
        self._locator = locator
        self._listeners = listeners
        self._now = now
        self._flush = flush
        self._run = run
        self._tell = tell
        self._trust = trust
        self._watch_at: float | None = None
        self._strangers: dict[Account, AccountCredentials] = {}
        """Credentials of accounts that placed calls and are not in use."""

    # Addition and removal

    async def add(self, account: Account, *, wait: bool) -> Line:
        """Use an account; raises RegistrationFailed, or OSError without an address."""
        if account.name in self.all:
            raise WrongState(
                f"There is an account named {account.name!r} already.",
                remedy="Give the accounts different names.",
            )
        # What can never work is refused immediately.
        for uri in account.servers:
            hop = self._agent.hop(uri, transport=account.transport)
            check_secure(account.registrar, hop.transport)
        line = Line(account, self._now, self._tell, AccountCredentials(account, self._reached))
        self.all[account.name] = line
        self._trust(account.name, account.allowed_sources)
        try:
            if wait:
                await self.servers(account)
            else:
                self._run(self._refresh(account))
            self._open(line, wait=wait)
            self._flush()
            if wait and line.registration is not None:
                await line.registration.registered()
        except BaseException:
            if line.core is not None:
                # The waiting caller was cancelled: a binding granted since is removed.
                line.core.stop(self._now())
                self._flush()
            self.drop(line)
            raise
        if line.keepalive is not None:
            line.keepalive.start(self._now())
            self._flush()
        line.look_at = self._now() + LOOK_EVERY_S
        if self._watch_at is None and (self._may_move(account) or self._is_named(account)):
            self._watch_at = self._now() + MOVED_EVERY_S
            self._agent.timed.append(self)
            self._flush()
        return line

    def _open(self, line: Line, *, wait: bool) -> None:
        account = line.account

        def locate(located: Located) -> None:
            self._run(self._look_up(account, located))

        def learn(hop: Hop, response: Response) -> None:
            self._learn(account, hop, response)

        if account.register:
            core = RegistrationCore(
                self._agent, account, locate=locate, learn=learn, keep_trying=not wait
            )
            line.core = core
            line.registration = Registration(core, self._now, self._flush, line.registration_moved)
            core.start(self._now())
        if account.keepalive_s:
            line.keepalive = Keepalive(
                self._agent,
                account,
                locate,
                self._listeners,
                current=lambda: line.core.hop if line.core is not None else None,
                learn=learn,
            )
            line.keepalive.changed = line.keepalive_changed
            if line.core is not None:
                line.keepalive.returned = line.core.server_returned

    async def remove(self, name: str) -> None:
        line = self.all.get(name)
        if line is None:
            raise WrongState(f"There is no account named {name!r}.")
        if line.keepalive is not None:
            line.keepalive.stop()
        try:
            if line.registration is not None:
                await line.registration.unregister()
        finally:
            self.drop(line)
            self._trust(name, ())

    def drop(self, line: Line) -> None:
        self.all.pop(line.name, None)
        if line.keepalive is not None:
            line.keepalive.stop()
        if line.core is not None and line.core in self._agent.timed:
            self._agent.timed.remove(line.core)

    def stop(self) -> list[Coroutine[Any, Any, None]]:
        self._watch_at = None
        farewells = []
        for line in self.all.values():
            if line.keepalive is not None:
                line.keepalive.stop()
            if line.registration is not None:
                farewells.append(line.registration.unregister())
        return farewells

    # Servers

    async def servers(self, account: Account) -> tuple[Hop, ...]:
        hops: list[Hop] = []
        failure: OSError | None = None
        for number, uri in enumerate(account.servers):
            hop = self._agent.hop(uri, transport=account.transport)
            transports = self._agent.settings.enabled
            try:
                found = await self._locator.locate(hop, transports)
            except OSError as error:
                failure = failure or error
                continue
            hops += [
                replace(one, rank=one.rank + SERVER_RANK * number, server=uri if number else "")
                for one in found
            ]
        if not hops:
            raise failure or OSError("it has no address")
        line = self.all.get(account.name)
        found = tuple(dict.fromkeys(hops))
        self.credentials(account).found(found)
        if line is not None:
            line.hops = found
            self._trust(account.name, [*(hop.host for hop in hops), *account.allowed_sources])
        return found

    async def _look_up(self, account: Account, located: Located) -> None:
        hops: Sequence[Hop] = ()
        failure: OSError | None = None
        try:
            hops = await self.servers(account)
        except (OSError, BadSip) as error:
            failure = error if isinstance(error, OSError) else OSError(error.message)
        located(hops, failure, self._now())
        self._flush()

    def serves(self, account: Account, target: str) -> bool:
        if account.proxy:
            return True
        there, ours = parse_uri(target), parse_uri(account.registrar)
        return there.host.lower() == ours.host.lower() and there.port in (None, ours.port)

    def best(self, *names: str) -> Account | None:
        lines = [self.all[name] for name in names if name in self.all] if names else []
        lines = lines if names else list(self.all.values())
        line = next((line for line in lines if line.ready), lines[0] if lines else None)
        return line.account if line is not None else None

    # Incoming calls

    def account_of(self, call: IncomingCall) -> Account | None:
        best: tuple[int, Account | None] = (0, None)
        for line in self.all.values():
            score = self._score(line, call)
            if score > best[0]:
                best = (score, line.account)
        return best[1]

    def _score(self, line: Line, call: IncomingCall) -> int:
        account = line.account
        score = 0
        if self._comes_from(account, call):
            score += 4
        elif account.allowed_sources:
            return 0
        try:
            called = parse_uri(call.request.uri)
            record = parse_uri(call.request.to.uri)
        except BadSip:
            return score
        ours = parse_uri(account.registrar)
        if account.user and called.user == account.user:
            score += 2
        if record.host.lower() == ours.host.lower():
            score += 1
        if account.user and record.user == account.user:
            score += 1
        return score if score >= 2 else 0

    def _comes_from(self, account: Account, call: IncomingCall) -> bool:
        line = self.all.get(account.name)
        known = {hop.host for hop in line.hops} if line is not None else set()
        source = address_of(call.hop.host)
        return call.hop.host in known or in_networks(source, account.networks())

    def digest_of(self, call: IncomingCall) -> Digest | None:
        # None unless it came from the account's servers: a stranger could forward our answer to the
        # registrar, and call in our name.
        account = self.account_of(call)
        if account is None or not self._comes_from(account, call):
            return None
        return self.credentials(account).digest()

    def digest_for(self, account: Account) -> Digest | None:
        return self.credentials(account).digest()

    def digest_towards(self, account: Account | None, hop: Hop) -> Digest | None:
        """Return the credentials for a hop; None for foreign servers."""
        if account is None:
            return None
        credentials = self.credentials(account)
        if not any(map(credentials.trusts, (hop, *hop.others))):
            return None
        return credentials.digest()

    def credentials(self, account: Account) -> AccountCredentials:
        line = self.all.get(account.name)
        if line is not None and line.account == account:
            return line.credentials
        known = self._strangers.pop(account, None) or AccountCredentials(account, self._reached)
        self._strangers[account] = known
        if len(self._strangers) > MAX_CREDENTIALS:
            del self._strangers[next(iter(self._strangers))]
        return known

    def _reached(self, hop: Hop) -> Hop | None:
        # Return where a hop leads now: its address, or the far end of the open connection.
        there = self._locator.current(hop)
        if there is None:
            return None
        return self._listeners.reached(replace(there, flow=hop.flow, by_flow=hop.by_flow))

    def has_server(self, host: str) -> bool:
        address = address_of(host)
        return any(
            any(host == hop.host for hop in line.hops)
            or in_networks(address, line.account.networks())
            for line in self.all.values()
        )

    def is_domain(self, host: str) -> bool:
        host = host.strip("[]").lower()
        return any(
            parse_uri(line.account.registrar).host.strip("[]").lower() == host
            for line in self.all.values()
        )

    # Our own address

    def connection_lost(self, hop: Hop) -> None:
        for line in self.all.values():
            if line.core is not None:
                line.core.connection_lost(hop, self._now())

    def next_deadline(self) -> float | None:
        return self._watch_at

    def tick(self, now: float) -> None:
        self._watch_at = now + MOVED_EVERY_S
        self._listeners.forget_addresses()
        self._moved(now)
        for line in self.all.values():
            if now >= line.look_at and self._is_named(line.account):
                line.look_at = now + LOOK_EVERY_S
                self._run(self._refresh(line.account))

    async def _refresh(self, account: Account) -> None:
        with contextlib.suppress(OSError):
            await self.servers(account)

    def _moved(self, now: float) -> None:
        for line in self.all.values():
            if line.core is not None:
                line.core.address_changed(now)

    def _may_move(self, account: Account) -> bool:
        return account.register and self._listeners.may_move

    def _is_named(self, account: Account) -> bool:
        return any(not is_ip(parse_uri(uri).host) for uri in account.servers)

    def _learn(self, account: Account, hop: Hop, response: Response) -> None:
        if (account.nat or self._agent.settings.nat) != "learn" or not is_ip(hop.host):
            return
        try:
            seen = mapped_address(response)
        except BadSip:
            return
        if seen is not None and self._listeners.learn(hop, *seen):
            self._moved(self._now())


def target_uri(target: str, account: Account | None) -> str:
    """Return a target as URI; a bare number or name is the registrar's."""
    # So is a ``tel:`` URI, unless the account has a proxy, which takes it as it is.
    target = target.strip()
    if account is None or not target:
        return target
    if target[:4].lower() == "tel:" and not account.proxy:
        # RFC 3261 section 19.1.6: the number is the user part, without visual separators.
        number = target[4:].partition(";")[0]
        return address_of_record(account, re.sub(r"[-.() ]", "", number))
    if ":" not in target and "@" not in target:
        return address_of_record(account, target)
    return target
