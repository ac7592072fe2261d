"""The media loop without its process."""

from __future__ import annotations

import json
import os
import socket
import threading
from dataclasses import asdict

import pytest

from qwen3tts_pacer.memory import CallMemory
from qwen3tts_phone.media.loop import MESSAGE_MOST, MediaLoop
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
