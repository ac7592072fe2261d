"""Transaction layer: matching of messages, and timers.

Responses match by the top Via's branch and the CSeq's method; requests by branch, sent-by and
method, an ACK as its INVITE (RFC 3261 sections 17.1.3, 17.2.3); without the magic cookie (RFC
2543) by their headers.
"""

from __future__ import annotations

import heapq
import itertools
import re
from collections import Counter, deque

from qwen3tts_phone.errors import CallError
from qwen3tts_phone.sip.message.message import BRANCH_COOKIE, Request, Response
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.transaction.state_machine import Timers, TransactionKind, TransactionState
from qwen3tts_phone.sip.transaction.transaction import (
    ClientOwner,
    OutboundMessage,
    Transaction,
)

MAX_SERVER_TRANSACTIONS = 4096
"""Beyond it the oldest answered ones are forgotten."""
MAX_STALE = 1000
"""Stale heap entries beyond the transactions."""

_OUR_BRANCH = re.compile(rb"z9hG4bK[0-9a-f]{24}", re.I)
"""As made by ``new_branch``."""

Key = tuple[str, ...]
Due = tuple[float, int, Transaction]
"""Deadline in seconds, order of entry, and transaction."""


def client_key(message: Request | Response) -> Key:
    return (message.branch.lower(), message.cseq_method)


def server_key(request: Request) -> Key:
    method = "INVITE" if request.method == "ACK" else request.method
    via = request.via
    branch = request.branch
    if branch.lower().startswith(BRANCH_COOKIE.lower()):
        return (branch.lower(), via.host.lower(), str(via.port or 5060), method)
    # RFC 2543: no To tag in the key: the ACK has one, its INVITE had none.
    return (
        request.uri,
        request.from_.tag or "",
        request.call_id,
        str(request.cseq),
        f"{via.host.lower()}:{via.port or 5060};{branch}",
        method,
    )


class TransactionLayer:
    """All transactions; drain ``outbox`` after every call."""

    def __init__(self, timers: Timers) -> None:
        self.timers = timers
        self.outbox: deque[OutboundMessage] = deque()
        self._clients: dict[Key, Transaction] = {}
        self._branches: Counter[str] = Counter()
        """Branches in ``_clients``; a CANCEL has its INVITE's."""
        self._servers: dict[Key, Transaction] = {}
        self._identities: Counter[tuple[str, str, str, int]] = Counter()
        self._heap: list[Due] = []
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._clients) + len(self._servers)

    def send(self, request: Request, hop: Hop, owner: ClientOwner, now: float) -> Transaction:
        kind = (
            TransactionKind.INVITE_CLIENT if request.method == "INVITE" else TransactionKind.CLIENT
        )
        transaction = Transaction(kind, request, hop, self.timers, self.outbox, now, self._schedule)
        transaction.client_owner = owner
        self._clients[client_key(request)] = transaction
        self._branches[request.branch.lower()] += 1
        return transaction

    def send_statelessly(self, message: Request | Response, hop: Hop) -> None:
        self.outbox.append(OutboundMessage(hop, bytes(message)))

    def may_match(self, data: bytes) -> bool:
        found = _OUR_BRANCH.finditer(data)
        return any(each[0].decode().lower() in self._branches for each in found)

    def receive_response(self, response: Response, now: float) -> bool:
        transaction = self._clients.get(client_key(response))
        if transaction is None:
            return False
        transaction.receive_response(response, now)
        self._forget_if_done(transaction)
        return True

    def receive_request(self, request: Request, hop: Hop, now: float) -> Transaction | None:
        """Return a new server transaction; None: handled by a known one."""
        # An unmatched ACK gives None as well; use :meth:`find` first.
        key = server_key(request)
        known = self._servers.get(key)
        if known is not None:
            known.receive_request(request, now)
            self._forget_if_done(known)
            return None
        if request.method == "ACK" or not self.has_room(now):
            return None
        kind = (
            TransactionKind.INVITE_SERVER if request.method == "INVITE" else TransactionKind.SERVER
        )
        transaction = Transaction(kind, request, hop, self.timers, self.outbox, now, self._schedule)
        self._servers[key] = transaction
        if request.to.tag is None:
            self._identities[_identity(request)] += 1
        return transaction

    def find(self, request: Request) -> Transaction | None:
        return self._servers.get(server_key(request))

    def invite_of_cancel(self, cancel: Request, source: Hop) -> Transaction | None:
        """Return a CANCEL's INVITE (RFC 3261 section 9.2)."""
        # It must come from the INVITE's source (section 22.1): many phones count their branches, so
        # a stranger could guess one.
        key = server_key(cancel)
        invite = self._servers.get((*key[:-1], "INVITE"))
        return invite if invite is not None and invite.hop.host == source.host else None

    def is_merged(self, request: Request) -> bool:
        """Return whether the request came by another path before (RFC 3261 section 8.2.2.2)."""
        return request.to.tag is None and self._identities[_identity(request)] > 1

    def transport_failed(self, hop: Hop, now: float, cause: CallError | None = None) -> None:
        for transaction in self._sent_to(hop):
            transaction.transport_error(now, cause)
            self._forget_if_done(transaction)

    def send_again(self, hop: Hop) -> bool:
        """Retransmit unanswered requests of a hop; False: none."""
        waiting = [
            t
            for t in self._sent_to(hop)
            if t.state in (TransactionState.CALLING, TransactionState.TRYING)
        ]
        for transaction in waiting:
            transaction.send_again()
        return bool(waiting)

    def next_deadline(self) -> float | None:
        while self._heap:
            if _matters(self._heap[0]):
                return self._heap[0][0]
            heapq.heappop(self._heap)
        return None

    def tick(self, now: float) -> None:
        while (at := self.next_deadline()) is not None and at <= now:
            _, _, transaction = heapq.heappop(self._heap)
            transaction.tick(now)
            self._forget_if_done(transaction)

    def _sent_to(self, hop: Hop) -> list[Transaction]:
        there = (hop.transport, hop.host, hop.port)
        return [
            transaction
            for transaction in self._clients.values()
            if (transaction.hop.transport, transaction.hop.host, transaction.hop.port) == there
        ]

    def has_room(self, now: float) -> bool:
        if len(self._servers) < MAX_SERVER_TRANSACTIONS:
            return True
        for transaction in self._servers.values():
            # Kept for retransmissions and a late ACK only.
            if transaction.state in (TransactionState.COMPLETED, TransactionState.CONFIRMED):
                transaction.give_up(now)
                self._forget_if_done(transaction)
                return True
        return False

    def _forget_if_done(self, transaction: Transaction) -> None:
        if transaction.state is not TransactionState.TERMINATED:
            return
        if transaction.kind in (TransactionKind.INVITE_CLIENT, TransactionKind.CLIENT):
            table, key = self._clients, client_key(transaction.request)
        else:
            table, key = self._servers, server_key(transaction.request)
        if table.get(key) is transaction:
            del table[key]
            if table is self._clients:
                self._branches[key[0]] -= 1
                if self._branches[key[0]] <= 0:
                    del self._branches[key[0]]
            if table is self._servers and transaction.request.to.tag is None:
                identity = _identity(transaction.request)
                self._identities[identity] -= 1
                if self._identities[identity] <= 0:
                    del self._identities[identity]

    def _schedule(self, transaction: Transaction) -> None:
        deadline = transaction.deadline
        if deadline is not None:
            heapq.heappush(self._heap, (deadline, next(self._order), transaction))
        if len(self._heap) > len(self) + MAX_STALE:
            # Stale entries would keep the transactions of a flood in memory.
            self._heap = [entry for entry in self._heap if _matters(entry)]
            heapq.heapify(self._heap)


def _matters(entry: Due) -> bool:
    at, _, transaction = entry
    return transaction.deadline == at and transaction.state is not TransactionState.TERMINATED


def _identity(request: Request) -> tuple[str, str, str, int]:
    return (request.method, request.from_.tag or "", request.call_id, request.cseq)
