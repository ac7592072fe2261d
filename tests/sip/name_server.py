"""Domains for tests: as plain records, and by a small name server on 127.0.0.1."""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

from qwen3tts_phone.sip.transport.dns import DnsAnswer, Family, NaptrRecord, SrvRecord

T = TypeVar("T")


@dataclass
class Domains:
    """Records that can be asked for, and how often they were."""

    hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    servers: Mapping[str, tuple[SrvRecord, ...]] = field(default_factory=dict)
    ways: Mapping[str, tuple[NaptrRecord, ...]] = field(default_factory=dict)
    ttl_s: float = 60.0
    asked: Counter[str] = field(default_factory=Counter)
    dead: bool = False
    """Whether no question is answered."""

    async def srv(self, name: str) -> DnsAnswer[SrvRecord]:
        return DnsAnswer(self._take("SRV", name, self.servers), self.ttl_s)

    async def naptr(self, name: str) -> DnsAnswer[NaptrRecord]:
        return DnsAnswer(self._take("NAPTR", name, self.ways), self.ttl_s)

    async def addresses(self, name: str, families: tuple[Family, ...]) -> DnsAnswer[str]:
        found = self._take("A", name, self.hosts)
        usable = tuple(one for one in found if ipaddress.ip_address(one).version in families)
        return DnsAnswer(usable, self.ttl_s)

    def _take(self, kind: str, name: str, table: Mapping[str, tuple[T, ...]]) -> tuple[T, ...]:
        self.asked[f"{kind} {name}"] += 1
        if self.dead:
            raise OSError(f"{name!r} cannot be looked up")
        return table.get(name, ())


class NameServer(asyncio.DatagramProtocol):
    """Answers over UDP from a zone; ``lines`` are records as a zone file has them."""

    def __init__(self, *lines: str) -> None:
        self.zone: dict[tuple[str, str], dns.rrset.RRset] = {}
        self.asked: Counter[tuple[str, str]] = Counter()
        self.silent = False
        self.garbage: bytes | None = None
        """What is sent instead of answers."""
        for line in lines:
            self.add(line)
        self.port = 0
        self._transport: asyncio.DatagramTransport | None = None

    def add(self, line: str) -> None:
        """Add a record: ``name ttl type value``."""
        name, ttl, kind, value = line.split(None, 3)
        key = (name.lower(), kind)
        rrset = dns.rrset.from_text(f"{name}.", int(ttl), "IN", kind, value)
        known = self.zone.get(key)
        if known is None:
            self.zone[key] = rrset
        else:
            known.update(rrset)  # type: ignore[no-untyped-call]

    async def __aenter__(self) -> NameServer:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: self, local_addr=("127.0.0.1", 0)
        )
        self._transport = transport
        self.port = transport.get_extra_info("sockname")[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._transport is not None:
            self._transport.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        query = dns.message.from_wire(data)
        question = query.question[0]
        name = question.name.to_text(omit_final_dot=True).lower()
        kind = dns.rdatatype.to_text(question.rdtype)
        self.asked[name, kind] += 1
        if self.silent or self._transport is None:
            return
        if self.garbage is not None:
            self._transport.sendto(self.garbage, addr)
            return
        answer = dns.message.make_response(query)
        answer.flags |= dns.flags.AA
        found = self.zone.get((name, kind))
        if found is not None:
            answer.answer.append(found)
        elif not any(known == name for known, _ in self.zone):
            answer.set_rcode(dns.rcode.NXDOMAIN)
        self._transport.sendto(answer.to_wire(), addr)
