"""Servers of an address (RFC 3263): NAPTR, SRV, addresses.

Cached for their time to live; expired answers serve while DNS fails.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from qwen3tts_phone.sip.core.settings import DnsSettings
from qwen3tts_phone.sip.message.fields import is_ip
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.transport.dns import (
    NEGATIVE_S,
    DnsAnswer,
    Family,
    Resolver,
    SrvRecord,
    SystemResolver,
)

MAX_HOPS = 16
"""Most servers of one address."""
MAX_KEPT = 1000
"""Cached answers, and names with servers; for ours and others each."""
MAX_ASKED = 200
"""Concurrent queries; for ours and others each."""
QUESTIONS = 4
"""Sequential queries: SRV, NAPTR, its SRV, addresses."""
LEAST_TTL_S = 1.0
SERVICES = {"SIP+D2U": "udp", "SIP+D2T": "tcp", "SIPS+D2T": "tls"}
"""NAPTR services (RFC 3263 section 4.1)."""
PREFIXES = {"udp": "_sip._udp.", "tcp": "_sip._tcp.", "tls": "_sips._tcp."}
_NOWHERE = (".invalid", ".localhost")
"""Domains without servers (RFC 6761)."""

Record = TypeVar("Record")
Kept = TypeVar("Kept")
_Side = tuple[str, str, bool]
"""Query, and whether it is ours: others take no place of ours."""
_Key = tuple[str, str, int, str, tuple[str, ...]]


@dataclass(slots=True)
class _CachedServers:
    hops: tuple[Hop, ...]
    until: float
    """Expiry in seconds of our clock."""
    turn: int = 0
    """Index of the name's server in use."""
    ours: bool = False
    """True if our account or call led there."""


class Locator:
    """Server look-up and cache; ``families``: best first."""

    def __init__(
        self,
        now: Callable[[], float],
        settings: DnsSettings | None = None,
        *,
        families: tuple[Family, ...] = (4,),
        records: Resolver | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.families = families
        self._now = now
        self._settings = settings or DnsSettings()
        self._records = records or SystemResolver(self._settings)
        self._strangers = records or SystemResolver(self._settings)
        """Look-ups of others' names."""
        self._queries: dict[_Side, asyncio.Task[DnsAnswer[Any]]] = {}
        """Queries under way, shared."""
        self._random = rng or random.SystemRandom()
        self._found: dict[_Key, _CachedServers] = {}
        self._answers: dict[_Side, tuple[DnsAnswer[Any], float]] = {}

    def known(self, hop: Hop, transports: Sequence[str] = ()) -> tuple[Hop, ...] | None:
        if is_ip(hop.host):
            return (hop,)
        found = self._found.get(_key(hop, transports))
        return found.hops if found is not None and self._now() < found.until else None

    def current(self, hop: Hop) -> Hop | None:
        if is_ip(hop.host):
            return hop
        found = self._found.get(_key(hop, ()))
        if found is None or self._now() >= found.until:
            return None
        return found.hops[found.turn]

    def use_next_address(self, address: Hop) -> list[tuple[Hop, bool]]:
        there = (address.transport, address.host, address.port)
        turned: list[tuple[Hop, bool]] = []
        for key, found in self._found.items():
            used = found.hops[found.turn]
            if (used.transport, used.host, used.port) == there and not key[4]:
                found.turn = (found.turn + 1) % len(found.hops)
                turned.append((Hop(key[0], key[1], key[2]), found.turn > 0))
        return turned

    def close(self) -> None:
        for task in self._queries.values():
            task.cancel()
        for records in (self._records, self._strangers):
            if isinstance(records, SystemResolver):
                records.close()

    async def locate(
        self, hop: Hop, transports: Sequence[str] = (), *, theirs: bool = False
    ) -> tuple[Hop, ...]:
        """Return a hop's targets, best first; raises OSError.

        ``transports``: choice of DNS, preferred first; default: the hop's. ``theirs``: the name
        is a far end's (Contact, Via, redirection).
        """
        known = self.known(hop, transports)
        if known is not None:
            return known
        key = _key(hop, transports)
        old = self._found.get(key)
        began = self._now()
        try:
            async with asyncio.timeout(QUESTIONS * self._settings.timeout_s):
                hops, ttl = await self._locate(hop, tuple(transports) or (hop.transport,), theirs)
        except OSError:  # or TimeoutError, which is one
            if old is not None:
                return old.hops
            raise
        if not hops:
            raise OSError("it has no address")
        ours = not theirs or (old is not None and old.ours)
        _make_room(self._found, [each for each, found in self._found.items() if found.ours is ours])
        self._found[key] = _CachedServers(hops, began + max(ttl, LEAST_TTL_S), ours=ours)
        return hops

    async def _locate(
        self, hop: Hop, transports: tuple[str, ...], theirs: bool
    ) -> tuple[tuple[Hop, ...], float]:
        records = self._strangers if theirs else self._records
        domain = hop.host.rstrip(".")
        nowhere = "." not in domain or domain.endswith(_NOWHERE)
        if hop.lookup == "address" or nowhere or not self._settings.srv:
            return await self._addresses(records, hop, [(hop.transport, hop.host, hop.port, 0)])
        if hop.lookup == "srv":
            transports = (hop.transport,)
        services, ttl = await self._services(
            records, domain, transports, naptr=hop.lookup == "naptr"
        )
        if not services:
            hops, least = await self._addresses(
                records, hop, [(hop.transport, hop.host, hop.port, 0)]
            )
            return hops, min(ttl, least)
        if all(not record.target for _, record in services):
            raise OSError("its domain says that it offers no such service")
        ranks = {
            rank: n for n, rank in enumerate(dict.fromkeys((t, r.priority) for t, r in services))
        }
        targets = [
            (transport, record.target, record.port, ranks[transport, record.priority])
            for transport, record in services
            if record.target and record.port
        ]
        hops, least = await self._addresses(records, hop, targets[:MAX_HOPS])
        return hops, min(ttl, least)

    async def _services(
        self, records: Resolver, domain: str, transports: tuple[str, ...], *, naptr: bool
    ) -> tuple[list[tuple[str, SrvRecord]], float]:
        asked = await _gather(
            [self._query(records, "SRV", PREFIXES[t] + domain, records.srv) for t in transports]
        )
        names = await self._naptr_services(records, domain, transports) if naptr else None
        if names is not None:
            ways, ttl = names
            answers = await _gather(
                [self._query(records, "SRV", name, records.srv) for _, name in ways]
            )
            chosen = [(transport, a) for (transport, _), a in zip(ways, answers, strict=True) if a]
            found = self._ordered(chosen)
            if found:
                return found, min([ttl, *(answer.ttl_s for _, answer in chosen)])
        chosen = [(t, answer) for t, answer in zip(transports, asked, strict=True) if answer]
        # Name servers that do not answer are not queried for each call.
        ttl = min((answer.ttl_s for _, answer in chosen), default=NEGATIVE_S)
        return self._ordered(chosen), ttl

    async def _naptr_services(
        self, records: Resolver, domain: str, transports: tuple[str, ...]
    ) -> tuple[list[tuple[str, str]], float] | None:
        (answer,) = await _gather([self._query(records, "NAPTR", domain, records.naptr)])
        if answer is None:
            return None
        usable = [
            record
            for record in answer.records
            if record.flags.lower() == "s"
            and SERVICES.get(record.service.upper()) in transports
            and record.replacement
        ]
        usable.sort(key=lambda record: (record.order, record.preference))
        return [(SERVICES[r.service.upper()], r.replacement) for r in usable], answer.ttl_s

    def _ordered(
        self, found: Iterable[tuple[str, DnsAnswer[SrvRecord]]]
    ) -> list[tuple[str, SrvRecord]]:
        return [
            (transport, record)
            for transport, answer in found
            for record in order_srv(answer.records, self._random)
        ]

    async def _addresses(
        self, records: Resolver, hop: Hop, targets: list[tuple[str, str, int, int]]
    ) -> tuple[tuple[Hop, ...], float]:
        failures: list[OSError] = []
        asked = await _gather(
            [
                self._query(records, "A", host, lambda name: records.addresses(name, self.families))
                for _, host, _, _ in targets
                if not is_ip(host)
            ],
            failures,
        )
        answers = iter(asked)
        hops: list[Hop] = []
        ttl = float("inf")
        for transport, host, port, rank in targets:
            answer = DnsAnswer((host,), ttl) if is_ip(host) else next(answers)
            if answer is None:
                continue
            ttl = min(ttl, answer.ttl_s)
            hops += [
                replace(
                    hop,
                    transport=transport,
                    host=address,
                    port=port,
                    lookup="address",
                    rank=rank,
                    name=hop.name or hop.host,
                )
                for address in answer.records
            ]
        if not hops and failures:
            raise failures[0]
        return tuple(dict.fromkeys(hops))[:MAX_HOPS], ttl

    async def _query(
        self,
        records: Resolver,
        kind: str,
        name: str,
        ask: Callable[[str], Coroutine[Any, Any, DnsAnswer[Record]]],
    ) -> DnsAnswer[Record]:
        ours = records is self._records
        question = (kind, name.lower(), ours)
        kept = self._answers.get(question)
        now = self._now()
        if kept is not None and now < kept[1]:
            answer: DnsAnswer[Record] = kept[0]
            return DnsAnswer(answer.records, kept[1] - now)
        task = self._queries.get(question)
        if task is None:
            if sum(each[2] is ours for each in self._queries) >= MAX_ASKED:
                raise OSError(f"{MAX_ASKED} names are being looked up already")
            task = asyncio.ensure_future(ask(name))
            self._queries[question] = task
            task.add_done_callback(lambda done: self._answered(question, done, now))
        # A caller that gives up does not take the answer from the others.
        return await asyncio.shield(task)

    def _answered(
        self, question: _Side, task: asyncio.Task[DnsAnswer[Any]], asked_at: float
    ) -> None:
        self._queries.pop(question, None)
        if task.cancelled() or task.exception() is not None:
            return
        answer = task.result()
        _make_room(self._answers, [each for each in self._answers if each[2] is question[2]])
        self._answers[question] = (answer, asked_at + max(answer.ttl_s, LEAST_TTL_S))


def order_srv(records: Iterable[SrvRecord], rng: random.Random) -> list[SrvRecord]:
    """Order by priority, then random weight (RFC 2782)."""
    left = sorted(records, key=lambda record: (record.priority, record.weight))
    ordered: list[SrvRecord] = []
    while left:
        same = [record for record in left if record.priority == left[0].priority]
        # Those of weight 0 stand first, with a small chance.
        at = rng.randint(0, sum(record.weight for record in same))
        for record in same:
            at -= record.weight
            if at <= 0:
                break
        ordered.append(record)
        left.remove(record)
    return ordered


def _make_room(kept: dict[Kept, Any], side: Sequence[Kept]) -> None:
    if len(side) >= MAX_KEPT:
        del kept[side[0]]


def _key(hop: Hop, transports: Sequence[str]) -> _Key:
    choice = tuple(transports) if hop.lookup == "naptr" else ()
    return (hop.transport, hop.host, hop.port, hop.lookup, choice)


async def _gather(
    questions: Sequence[Coroutine[Any, Any, DnsAnswer[Record]]],
    failures: list[OSError] | None = None,
) -> list[DnsAnswer[Record] | None]:
    answers = await asyncio.gather(*questions, return_exceptions=True)
    given: list[DnsAnswer[Record] | None] = []
    for answer in answers:
        if isinstance(answer, OSError):
            if failures is not None:
                failures.append(answer)
        elif isinstance(answer, BaseException):
            raise answer
        given.append(None if isinstance(answer, BaseException) else answer)
    return given
