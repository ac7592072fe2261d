"""Media loop: one thread on absolute deadlines for all calls.

Time is cut into ticks of 1 ms. A call belongs to the ticks of its group and packet time, so calls
spread over the 20 ms; the wheel holds the calls of each coming tick. The loop sleeps until the next
tick with calls (an absolute time: lateness never adds up), serves them, and polls the sockets in
the rest. `select` on the epoll descriptor wakes as exactly as a timerfd for one system call less;
epoll's own timeout is in milliseconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from qwen3tts_pacer.memory import CallMemory
from qwen3tts_phone.media.reports import LoadMeter, Outbox
from qwen3tts_phone.media.stream import Stream
from qwen3tts_phone.media.types import (
    FROM_FAR_END,
    Impairment,
    LegFailed,
    LegSpec,
    leg_spec,
    remote_media,
)
from qwen3tts_phone.media.wheel import Wheel

MESSAGE_MOST = 65536
"""Bytes of one control message."""
ERROR_MOST = 2500
"""Characters of an error or traceback in a message: JSON may need 12 bytes for each."""
REPLIES_MOST = 1000
"""Replies that may wait for the parent; beyond, no command is taken."""
TICK_NS = 1_000_000
GROUP_FILL = 10
"""Calls of a group before another one is begun."""
SOON_TICKS = 14
"""Longest wait of a call for a group that is awake: the caller hears nothing meanwhile."""
LATE_NOTED_NS = 100_000
"""Lateness below this is not recorded."""
LOOK_AT_LEAST_NS = 20_000_000
"""Interval at which the sockets are polled however late the slots are."""
SPARE_NS = 50_000
"""Time before the next slots in which nothing is begun."""
DATAGRAMS_AT_ONCE = 8
"""Datagrams of one socket before the others have their turn."""


class _Leg(NamedTuple):
    spec: LegSpec
    memory: CallMemory
    rtp: socket.socket
    rtcp: socket.socket

    def discard_rtp(self) -> bool:
        return _discard(self.rtp)

    def discard_rtcp(self) -> bool:
        return _discard(self.rtcp)


class MediaLoop:
    """The loop; ``control`` is the parent's SEQPACKET socket, ``notice`` an eventfd."""

    def __init__(
        self,
        control: socket.socket,
        notice: int,
        groups: int,
        receive_every_s: float,
        report_every_s: float = 1.0,
    ) -> None:
        self._control = control
        self._notice = notice
        self._groups = [0] * groups
        self._receive_every_ns = int(receive_every_s * 1e9)
        self._legs: dict[int, _Leg] = {}
        self._streams: dict[int, Stream] = {}
        self._group_of: dict[int, int] = {}
        self._wheel: Wheel[Stream] = Wheel()
        self._origin_ns = time.monotonic_ns()
        self._epoll = select.epoll()
        self._handlers: dict[int, tuple[Callable[[], bool], int]] = {}
        self._outbox = Outbox()
        self._stop = False
        self._report_every_ns = int(report_every_s * 1e9)
        self._report_at_ns = self._origin_ns + self._report_every_ns
        self._load = LoadMeter(self._origin_ns)
        control.setblocking(False)
        self._watched = select.EPOLLIN | select.EPOLLRDHUP
        self._epoll.register(control.fileno(), self._watched)

    def run(self) -> None:
        epoll_fd = self._epoll.fileno()
        monotonic_ns = time.monotonic_ns
        looked_ns = rested_ns = 0
        while not self._stop:
            deadline_ns = self._next_deadline_ns()
            now_ns = monotonic_ns()
            if now_ns >= self._report_at_ns:
                self._report(now_ns)
            if now_ns >= deadline_ns:
                self._serve(deadline_ns, now_ns)
                if now_ns - looked_ns < LOOK_AT_LEAST_NS:
                    continue
            elif now_ns < rested_ns:  # a short rest: packets are cheaper in batches
                select.select((), (), (), (min(rested_ns, deadline_ns) - now_ns) / 1e9)
                continue
            elif not select.select((epoll_fd,), (), (), (deadline_ns - now_ns) / 1e9)[0]:
                looked_ns = deadline_ns
                continue
            self._look(deadline_ns)
            looked_ns = monotonic_ns()
            rested_ns = looked_ns + self._receive_every_ns
        for leg in list(self._legs):
            self._close(leg)

    def tell(self, message: dict[str, Any]) -> bool:
        """Send the parent a message, or queue it; False = dropped. Never waits."""
        kind, leg = message["type"], message.get("leg", 0)
        data = json.dumps(message).encode()
        if len(data) > MESSAGE_MOST:
            data = json.dumps(_too_long(message, len(data))).encode()
        kept = True
        if kind == "event" and message["name"] in FROM_FAR_END:
            kept = self._outbox.event(leg, data)
        elif kind in ("event", "flushed"):
            self._outbox.fact(leg, data)
        elif kind == "load":
            self._outbox.load(data)
        else:
            self._outbox.reply(data)
        if not self._watched & select.EPOLLOUT:
            self._send_rest()
        return kept

    def _report(self, now_ns: int) -> None:
        self._report_at_ns = now_ns + self._report_every_ns
        self.tell({"type": "load", **self._load.report(now_ns, len(self._streams))})

    def _next_deadline_ns(self) -> int:
        if not self._wheel.count:
            return self._report_at_ns
        return self._origin_ns + self._wheel.next_tick() * TICK_NS

    def _serve(self, deadline_ns: int, now_ns: int) -> None:
        if not self._wheel.count:
            return
        late_ns = now_ns - deadline_ns
        bucket = self._wheel.take(late_ns // TICK_NS)
        self._load.served(len(bucket), late_ns, self._wheel.skipped)
        for stream in bucket:
            try:
                stream.slot()
            except Exception:
                self._fail(stream.leg)
        if late_ns > LATE_NOTED_NS:
            for stream in bucket:
                stream.was_late(late_ns)
        now = time.monotonic()
        for stream in bucket:
            if stream.leg in self._streams:
                try:
                    stream.after_slot(now)
                except Exception:
                    self._fail(stream.leg)
        self._give_notice(bucket)

    def _look(self, deadline_ns: int) -> None:
        for fd, ready in self._epoll.poll(0, 64):
            handler = self._handlers.get(fd)
            if handler is None:
                if fd == self._control.fileno():
                    self._talk(ready)
                continue
            take, leg = handler
            try:
                for _ in range(DATAGRAMS_AT_ONCE):
                    if not take() or time.monotonic_ns() > deadline_ns - SPARE_NS:
                        break
            except Exception:
                self._fail(leg)
            stream = self._streams.get(leg)
            if stream is not None and stream.wants_notice:
                self._give_notice((stream,))
            if time.monotonic_ns() > deadline_ns - SPARE_NS:
                return

    def _give_notice(self, streams: Iterable[Stream]) -> None:
        wanted = False
        for stream in streams:
            if stream.wants_notice:
                stream.wants_notice = False
                wanted = True
        if wanted:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_write(self._notice, 1)

    def _talk(self, ready: int) -> None:
        if ready & select.EPOLLOUT:
            self._send_rest()
        if ready & ~select.EPOLLOUT:
            self._commands()

    def _send_rest(self) -> None:
        outbox = self._outbox
        # Where there is no room, epoll says when there is; also whether the parent is gone.
        with contextlib.suppress(OSError):
            while (data := outbox.first()) is not None:
                self._control.send(data)
                outbox.sent()
        wanted = select.EPOLLRDHUP
        if outbox:
            wanted |= select.EPOLLOUT
        if outbox.replies < REPLIES_MOST:
            wanted |= select.EPOLLIN
        if wanted != self._watched:
            self._watched = wanted
            self._epoll.modify(self._control.fileno(), wanted)

    def _commands(self) -> None:
        for _ in range(4):
            try:
                data, fds, _, _ = socket.recv_fds(self._control, MESSAGE_MOST, 3)
            except BlockingIOError:
                return
            except OSError:
                data, fds = b"", []
            if not data:
                self._stop = True  # the parent is gone
                return
            message = json.loads(data)
            try:
                self._command(message, fds)
            except Exception as error:
                self.tell(
                    {
                        "type": "reply",
                        "to": message["id"],
                        "leg": message.get("leg"),
                        "error": (f"{error}" or type(error).__name__)[:ERROR_MOST],
                        "traceback": traceback.format_exc()[-ERROR_MOST:],
                        "refused": isinstance(error, ValueError),
                    }
                )

    def _command(self, message: dict[str, Any], fds: list[int]) -> None:
        kind, leg = message["type"], message["leg"]
        answer: dict[str, Any] = {}
        if kind == "open":
            self._open(leg, message["spec"], fds)
        elif leg not in self._legs:
            raise ValueError("the leg is closed")
        elif kind == "start":
            self._start(leg, message)
        elif kind == "close":
            answer["learnt"] = self._close(leg)
            self._outbox.forget(leg)
        elif leg not in self._streams:
            raise ValueError("the leg is not started")
        elif kind == "update":
            self._streams[leg].update(remote_media(message["remote"]), message.get("codec", 0))
        elif kind == "publish":
            self._streams[leg].publish()
        elif kind == "dtmf":
            self._streams[leg].press(
                message["id"], message["keys"], message["duration_ms"], message["gap_ms"]
            )
            return  # answered when the last key is out
        else:
            raise ValueError(f"no command is called {kind!r}")
        self.tell({"type": "reply", "to": message["id"], "leg": leg, **answer})

    def _open(self, number: int, spec: dict[str, Any], fds: list[int]) -> None:
        if len(fds) != 3:  # the kernel hands on as many as this process may still open
            for fd in fds:
                os.close(fd)
            raise ValueError(f"{3 - len(fds)} of the call's descriptors did not arrive")
        memory_fd, rtp_fd, rtcp_fd = fds
        with contextlib.ExitStack() as stack:
            chosen = leg_spec(spec)
            rtp = stack.enter_context(_rtp_socket(rtp_fd, chosen.impairment))
            rtcp = stack.enter_context(socket.socket(fileno=rtcp_fd))
            try:
                memory = CallMemory.attach(memory_fd)
            except BaseException:
                os.close(memory_fd)
                raise
            stack.callback(memory.close)
            leg = _Leg(chosen, memory, rtp, rtcp)
            stack.pop_all()
        self._legs[number] = leg
        for sock, take in ((leg.rtp, leg.discard_rtp), (leg.rtcp, leg.discard_rtcp)):
            self._handlers[sock.fileno()] = (take, number)
            self._epoll.register(sock.fileno(), select.EPOLLIN)

    def _start(self, number: int, message: dict[str, Any]) -> None:
        """Put a call on the wheel, in a group that has room and comes soon."""
        if number in self._streams:
            raise ValueError("the leg was started before; use update")
        leg = self._legs[number]
        now_tick = (time.monotonic_ns() - self._origin_ns) // TICK_NS
        if not self._wheel.count:
            self._wheel.tick = now_tick
        group, tick = self._group_for(now_tick + 2)  # 1 ms ahead at least
        origin_s = (self._origin_ns + tick * TICK_NS) / 1e9
        stream = Stream(
            number,
            leg.spec,
            leg.memory,
            (leg.rtp, leg.rtcp),
            self.tell,
            remote_media(message["remote"]),
            origin_s,
            message["learnt"],
            message.get("codec", 0),
        )
        self._streams[number] = stream
        self._handlers[leg.rtp.fileno()] = (stream.readable, number)
        self._handlers[leg.rtcp.fileno()] = (stream.rtcp_readable, number)
        self._groups[group] += 1
        self._group_of[number] = group
        self._wheel.add(stream, tick)

    def _group_for(self, soonest: int) -> tuple[int, int]:
        groups = self._groups
        ticks = [
            soonest + (index * 20 // len(groups) - soonest) % 20 for index in range(len(groups))
        ]
        # Waking up is most of what a lone call costs (benchmarks/pacing.py --calls 1 10), so a
        # group that is awake anyway takes a few calls more before another one is begun; unless the
        # first packet would wait for it.
        awake = [
            (tick, index)
            for index, tick in enumerate(ticks)
            if 0 < groups[index] < GROUP_FILL and tick - soonest <= SOON_TICKS
        ]
        most = max(GROUP_FILL, min(groups) + 1)
        tick, group = min(
            awake or ((tick, index) for index, tick in enumerate(ticks) if groups[index] < most)
        )
        return group, tick

    def _close(self, number: int) -> dict[str, Any]:
        leg = self._legs.pop(number)
        stream = self._streams.pop(number, None)
        learnt: dict[str, Any] = {}
        try:
            if stream is not None:
                self._groups[self._group_of.pop(number)] -= 1
                self._wheel.remove(stream)
                learnt = stream.end(time.monotonic())
        finally:
            for sock in (leg.rtp, leg.rtcp):
                self._epoll.unregister(sock.fileno())
                del self._handlers[sock.fileno()]
                sock.close()
            leg.memory.close()
        return learnt

    def _fail(self, leg: int) -> None:
        self.tell(
            {
                "type": "event",
                "leg": leg,
                "name": LegFailed.__name__,
                "cause": traceback.format_exc()[-ERROR_MOST:],
                "at": time.monotonic(),
            }
        )
        if leg in self._legs:
            with contextlib.suppress(Exception):  # what is broken may break again; it was told
                self._close(leg)


def _rtp_socket(fileno: int, impairment: Impairment | None) -> socket.socket:
    if impairment is None:
        return socket.socket(fileno=fileno)
    from qwen3tts_phone.media.impairment import ImpairedSocket

    return ImpairedSocket(impairment, fileno)


def _too_long(message: dict[str, Any], size: int) -> dict[str, Any]:
    if message["type"] != "reply":
        return {key: "" if key == "cause" else value for key, value in message.items()}
    return {
        **{key: message[key] for key in ("type", "to", "leg")},
        "error": f"the answer has {size} bytes, {MESSAGE_MOST} can be sent",
        "traceback": "",
        "refused": False,
    }


def _discard(sock: socket.socket) -> bool:
    try:
        sock.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
