"""DNS queries by dnspython or the system's resolver."""

from __future__ import annotations

import asyncio
import functools
import socket
import threading
from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from qwen3tts_phone.sip.core.settings import DnsSettings, split_nameserver

T = TypeVar("T")

THREADS = 4
"""Concurrent look-ups of one pool."""
WAITING = 64
"""Queued look-ups; one more is refused."""


class ResolverThreads:
    """Bounded thread pool for blocking look-ups; other pools stay free."""

    def __init__(self, threads: int = THREADS, waiting: int = WAITING) -> None:
        self._threads = threads
        self._most = threads + waiting
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._pending: dict[Hashable, Future[Any]] = {}
        self._askers: Counter[Hashable] = Counter()

    async def run(self, key: Hashable, work: Callable[[], T], within_s: float) -> T:
        """Do work in a thread, or join the same key's.

        A begun thread keeps its place; other work is cancelled.

        Raises:
            OSError: too much waits, or timeout.
        """
        future = self._begun(key, work)
        self._askers[key] += 1
        try:
            async with asyncio.timeout(within_s):
                result: T = await asyncio.shield(asyncio.wrap_future(future))
                return result
        except TimeoutError as error:
            raise OSError(f"no answer within {within_s:g} s") from error
        finally:
            self._askers[key] -= 1
            if not self._askers[key]:
                del self._askers[key]
                future.cancel()

    def _begun(self, key: Hashable, work: Callable[[], Any]) -> Future[Any]:
        with self._lock:
            known = self._pending.get(key)
            if known is not None and not known.cancelled():
                return known
            if len(self._pending) >= self._most:
                raise OSError(f"{self._most} names are being looked up already")
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="SIP names")
            future = self._pending[key] = self._pool.submit(work)
        future.add_done_callback(functools.partial(self._done, key))
        return future

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def _done(self, key: Hashable, future: Future[Any]) -> None:
        # Runs in the worker thread.
        with self._lock:
            if self._pending.get(key) is future:
                del self._pending[key]


Family = Literal[4, 6]
Record = TypeVar("Record")

KEPT_S = 60.0
"""Time to live of system resolver answers."""
IMPORT_WITHIN_S = 30.0
"""Timeout of loading dnspython and the system's settings."""
NEGATIVE_S = 30.0
"""Time to live of a negative answer."""
LONGEST_TTL_S = 24 * 3600.0
MAX_NAME_CHARS = 253
"""RFC 1035 section 2.3.4."""
MAX_RECORDS = 32
"""Most records of one answer."""


@dataclass(frozen=True, slots=True)
class SrvRecord:
    """SRV record (RFC 2782)."""

    priority: int
    weight: int
    port: int
    target: str
    """Without the final dot; empty: no such service."""


@dataclass(frozen=True, slots=True)
class NaptrRecord:
    """NAPTR record (RFC 3263 section 4.1)."""

    order: int
    preference: int
    flags: str
    service: str
    replacement: str


@dataclass(frozen=True, slots=True)
class DnsAnswer(Generic[Record]):
    """Records with time to live, seconds."""

    records: tuple[Record, ...]
    ttl_s: float


class Resolver(Protocol):
    """Source of DNS records; raises OSError without an answer."""

    async def srv(self, name: str) -> DnsAnswer[SrvRecord]:
        """Return SRV records of ``_sip._udp.example.org``."""

    async def naptr(self, name: str) -> DnsAnswer[NaptrRecord]: ...

    async def addresses(self, name: str, families: tuple[Family, ...]) -> DnsAnswer[str]: ...


class SystemResolver:
    """Given name servers, or the system's.

    Without own name servers the system resolves hosts (``/etc/hosts``); SRV and NAPTR always use
    dnspython.
    """

    def __init__(self, settings: DnsSettings) -> None:
        self._settings = settings
        self._resolver: Any = None
        self._threads = ResolverThreads()

    def close(self) -> None:
        self._threads.close()

    async def srv(self, name: str) -> DnsAnswer[SrvRecord]:
        found, ttl = await self._ask(name, "SRV")
        return DnsAnswer(
            tuple(
                SrvRecord(
                    r.priority, r.weight, r.port, r.target.to_text(omit_final_dot=True).rstrip(".")
                )
                for r in found
            ),
            ttl,
        )

    async def naptr(self, name: str) -> DnsAnswer[NaptrRecord]:
        found, ttl = await self._ask(name, "NAPTR")
        return DnsAnswer(
            tuple(
                NaptrRecord(
                    r.order,
                    r.preference,
                    r.flags.decode("ascii", "replace"),
                    r.service.decode("ascii", "replace"),
                    r.replacement.to_text(omit_final_dot=True).rstrip("."),
                )
                for r in found
            ),
            ttl,
        )

    async def addresses(self, name: str, families: tuple[Family, ...]) -> DnsAnswer[str]:
        if not self._settings.nameservers:
            return DnsAnswer(await self._of_system(name, families), KEPT_S)
        kinds = ["A" if family == 4 else "AAAA" for family in families]
        # One family's failure does not matter while the other has an address.
        asked = await asyncio.gather(
            *(self._ask(name, kind) for kind in kinds), return_exceptions=True
        )
        answers = [one for one in asked if not isinstance(one, BaseException)]
        if not answers:
            raise next(one for one in asked if isinstance(one, BaseException))
        records = tuple(str(record.address) for found, _ in answers for record in found)
        return DnsAnswer(records, min(ttl for _, ttl in answers))

    async def _ask(self, name: str, kind: str) -> tuple[list[Any], float]:
        if self._resolver is None:
            # In a thread: importing dnspython takes tenths of a second, and only names need it.
            self._resolver = await self._threads.run("", self._make, IMPORT_WITHIN_S)
        import dns.exception
        import dns.name
        import dns.resolver

        try:
            answer = await self._resolver.resolve(
                dns.name.from_text(name), kind, raise_on_no_answer=False, search=False
            )
        except dns.resolver.NXDOMAIN:
            return [], NEGATIVE_S
        except (dns.exception.DNSException, ValueError, UnicodeError) as error:
            raise OSError(f"{name[:80]!r} cannot be looked up: {type(error).__name__}") from error
        if answer.rrset is None:
            return [], NEGATIVE_S
        ttl = min(float(answer.chaining_result.minimum_ttl), LONGEST_TTL_S)
        return list(answer.rrset)[:MAX_RECORDS], ttl

    def _make(self) -> Any:
        import dns.asyncresolver
        import dns.nameserver
        import dns.resolver

        try:
            resolver = dns.asyncresolver.Resolver(configure=not self._settings.nameservers)
        except dns.resolver.NoResolverConfiguration as error:
            raise OSError("this machine has no name servers") from error
        if self._settings.nameservers:
            resolver.nameservers = [
                dns.nameserver.Do53Nameserver(*split_nameserver(text))
                for text in self._settings.nameservers
            ]
        resolver.lifetime = self._settings.timeout_s
        resolver.timeout = self._settings.timeout_s / 2
        return resolver

    async def _of_system(self, name: str, families: tuple[Family, ...]) -> tuple[str, ...]:
        family = socket.AF_UNSPEC
        if len(families) == 1:
            family = socket.AF_INET6 if families[0] == 6 else socket.AF_INET
        if len(name) > MAX_NAME_CHARS:
            raise OSError(f"{name[:80]!r} cannot be looked up: it is too long")
        ask = functools.partial(
            socket.getaddrinfo, name, None, family=family, type=socket.SOCK_DGRAM
        )
        try:
            found = await self._threads.run((name, family), ask, self._settings.timeout_s)
        except (OSError, UnicodeError) as error:
            raise OSError(f"{name[:80]!r} cannot be looked up: {error}") from error
        addresses = dict.fromkeys(str(entry[4][0]) for entry in found)
        wanted = sorted(addresses, key=lambda address: (":" in address) != (families[0] == 6))
        return tuple(wanted)
