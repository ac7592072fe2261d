"""The media loop without its process."""

from __future__ import annotations

import json
import os
import socket
import threading
from dataclasses import asdict

import pytest

from qwen3tts_pacer.memory import CallMemory
from qwen3tts_phone.media.loop import GROUP_FILL, MESSAGE_MOST, SOON_TICKS, MediaLoop
from qwen3tts_phone.media.ports import open_pair
from qwen3tts_phone.media.stream import Stream
from qwen3tts_phone.media.types import LegSpec, RemoteMedia
from tests.media.peer import PATIENCE_S

pytestmark = pytest.mark.network


def test_a_call_that_breaks_even_at_its_end_takes_no_other_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(stream: Stream, now: float) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(Stream, "after_slot", broken)
    monkeypatch.setattr(Stream, "end", broken)
    parent, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    notice = os.eventfd(0, os.EFD_NONBLOCK)
    memory = CallMemory.create()
    with parent, control:
        parent.settimeout(PATIENCE_S)
        loop = MediaLoop(control, notice, 20, 0.002)
        running = threading.Thread(target=loop.run)
        running.start()
        rtp, rtcp = open_pair("127.0.0.1", (0, 0))
        with rtp, rtcp:
            port = rtp.getsockname()[1]
            opened = {"type": "open", "leg": 1, "id": 1, "spec": asdict(LegSpec())}
            fds = (memory.fd, rtp.fileno(), rtcp.fileno())
            socket.send_fds(parent, [json.dumps(opened).encode()], fds)
        remote = asdict(RemoteMedia("127.0.0.1", 9))
        started = {"type": "start", "leg": 1, "id": 2, "remote": remote, "learnt": None}
        parent.send(json.dumps(started).encode())
        told = [json.loads(parent.recv(MESSAGE_MOST)) for _ in range(3)]
        assert "RuntimeError: broken" in told[2]["cause"]
        parent.send(json.dumps({"type": "close", "leg": 1, "id": 3}).encode())
        assert json.loads(parent.recv(MESSAGE_MOST))["error"] == "the leg is closed"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as again:
            again.bind(("127.0.0.1", port))  # it is free
        parent.shutdown(socket.SHUT_RDWR)
        running.join(PATIENCE_S)
        assert not running.is_alive()
    memory.close()
    os.close(notice)


def test_a_call_joins_a_group_that_is_awake_unless_its_caller_would_wait_for_it() -> None:
    parent, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with parent, control:
        loop = MediaLoop(control, -1, 20, 0.002)
        groups = loop._groups
        for soonest in range(1000, 1400, 3):
            awake = [index for index, calls in enumerate(groups) if 0 < calls < GROUP_FILL]
            group, tick = loop._group_for(soonest)
            assert tick % 20 == group
            assert 0 <= tick - soonest <= SOON_TICKS
            near = [index for index in awake if (index - soonest) % 20 <= SOON_TICKS]
            assert group in near or not near
            groups[group] += 1
        assert max(groups) <= GROUP_FILL
        groups[:] = [GROUP_FILL] * 19 + [GROUP_FILL + 1]
        assert loop._group_for(19)[0] == 0  # full everywhere: even, and soon
        loop._epoll.close()
