"""Packet loss and jitter at a leg's RTP socket, by a seed: a bad network for rehearsals.

Loss follows Gilbert's model (runs of a mean length), delays are uniform, and packets keep their
order, as in the queue of a router. The fate of the n-th packet of a direction depends on the seed
alone. RTCP is left alone.
"""

from __future__ import annotations

import heapq
import itertools
import random
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from qwen3tts_phone.media import rtp
from qwen3tts_phone.media.receiver import STAMP
from qwen3tts_phone.media.source import Address
from qwen3tts_phone.media.types import Impairment

KEPT = 4096
"""Datagrams that may be delayed; further ones are lost."""


class PacketFates:
    """Fates of one direction's packets, in order (pure)."""

    def __init__(self, settings: Impairment, direction: str) -> None:
        self._chance = random.Random(f"{settings.seed} {direction}")
        self._jitter_s = settings.jitter_s
        self._leaves = 1.0 / settings.burst
        """Probability that a run of losses ends with this packet."""
        share = min(settings.loss, 0.999)
        self._enters = min(1.0, self._leaves * share / (1.0 - share))
        self._losing = False

    def next(self) -> float | None:
        """Return the next packet's delay, seconds; None = lost."""
        draw = self._chance.random()
        self._losing = draw >= self._leaves if self._losing else draw < self._enters
        delay_s = self._chance.random() * self._jitter_s
        return None if self._losing else delay_s


class ImpairedSocket(socket.socket):
    """Bound UDP socket of a leg whose RTP packets are lost and delayed both ways.

    Outbound packets are delayed by a thread of its own; inbound ones are returned by `recvmsg` when
    they are due, with that time as the kernel's time stamp.
    """

    def __init__(self, impairment: Impairment, fileno: int) -> None:
        super().__init__(fileno=fileno)
        self._fates_out = PacketFates(impairment, "out")
        self._fates_in = PacketFates(impairment, "in")
        self._inbound = impairment.inbound
        self._held: deque[tuple[float, bytes, Address]] = deque()
        self._last_due = 0.0
        self._sender: _DelayedSender | None = None
        if impairment.jitter_s:
            self._sender = _DelayedSender(super().sendto)

    def sendto(self, data: Any, *rest: Any) -> int:
        if rtp.is_rtcp(data):
            return super().sendto(data, *rest)
        delay_s = self._fates_out.next()
        if delay_s is None:
            return len(data)
        if self._sender is None:
            return super().sendto(data, *rest)
        self._sender.send(time.monotonic() + delay_s, data, rest)
        return len(data)

    def recvmsg(self, *sizes: int) -> tuple[bytes, list[tuple[int, int, bytes]], int, Address]:
        self._receive(*sizes)
        now = time.time()
        if not self._held or self._held[0][0] > now:
            raise BlockingIOError
        due, data, address = self._held.popleft()
        seconds = int(due)
        stamp = STAMP.pack(seconds, int((due - seconds) * 1e9))
        return data, [(socket.SOL_SOCKET, 0, stamp)], 0, address

    def close(self) -> None:
        if self._sender is not None:
            self._sender.close()
            self._sender = None  # a cycle, which the media process would never collect
        super().close()

    def _receive(self, *sizes: int) -> None:
        while len(self._held) < KEPT:
            try:
                data, ancillary, _, address = super().recvmsg(*sizes)
            except BlockingIOError:
                return
            at = time.time()
            if ancillary:
                stamped, nanoseconds = STAMP.unpack_from(ancillary[0][2])
                at = stamped + nanoseconds / 1e9
            spared = not self._inbound or rtp.is_rtcp(data)
            delay_s = 0.0 if spared else self._fates_in.next()
            if delay_s is None:
                continue
            self._last_due = max(self._last_due, at + delay_s)
            self._held.append((self._last_due, data, address))


class _Delayed(NamedTuple):
    due: float
    order: int
    data: bytes
    rest: tuple[object, ...]


class _DelayedSender:
    def __init__(self, sendto: Callable[..., int]) -> None:
        self._sendto = sendto
        self._waiting: list[_Delayed] = []
        self._order = itertools.count()
        self._last_due = 0.0
        self._over = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="delayed packets", daemon=True)
        self._thread.start()

    def send(self, due: float, data: bytes, rest: tuple[object, ...]) -> None:
        with self._changed:
            if len(self._waiting) < KEPT:
                self._last_due = max(self._last_due, due)
                item = _Delayed(self._last_due, next(self._order), bytes(data), rest)
                heapq.heappush(self._waiting, item)
                self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join(1.0)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._over and not self._waiting:
                    self._changed.wait()
                if self._over:
                    return
                wait_s = self._waiting[0].due - time.monotonic()
                if wait_s > 0.0:
                    self._changed.wait(wait_s)
                    continue
                packet = heapq.heappop(self._waiting)
            try:
                self._sendto(packet.data, *packet.rest)
            except OSError:  # an ICMP error of an earlier packet, or the far end is gone
                continue
