"""The media loop without its process."""

from __future__ import annotations

import gc
import json
import os
import socket
import threading
import time
import weakref
from dataclasses import asdict, replace
from typing import Any

import pytest

from qwen3tts_pacer.memory import CallMemory
from qwen3tts_phone.media import rtp, srtp
from qwen3tts_phone.media.loop import GROUP_FILL, MESSAGE_MOST, SOON_TICKS, MediaLoop
from qwen3tts_phone.media.process import open_pair
from qwen3tts_phone.media.rtp import RtpPacket
from qwen3tts_phone.media.srtp import SrtpEncryptor
from qwen3tts_phone.media.stream import Stream
from qwen3tts_phone.media.types import LegSpec, RemoteMedia
from qwen3tts_phone.sdp.crypto import SrtpKey
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


KEY = SrtpKey.new("AEAD_AES_128_GCM")


@pytest.mark.parametrize("keys", [{}, {"srtp_send": KEY, "srtp_receive": KEY}])
def test_a_call_that_is_over_is_freed_without_the_collector(keys: dict[str, SrtpKey]) -> None:
    # The media process runs without the garbage collector, so a cycle would stay for ever.
    memory = CallMemory.create(128, 65536, 128, 4096)
    rtp_socket, rtcp_socket = open_pair("127.0.0.1", (0, 0))
    told: list[dict[str, Any]] = []
    srtp.load()
    gc.disable()
    try:
        with rtp_socket, rtcp_socket, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.bind(("127.0.0.1", 0))
            remote = RemoteMedia(*peer.getsockname(), **keys)  # type: ignore[arg-type]
            now = time.monotonic()

            def tell(message: dict[str, Any]) -> bool:
                told.append(message)
                return True

            stream = Stream(
                1, LegSpec(), memory, (rtp_socket, rtcp_socket), tell, remote, now, None
            )
            data = rtp.build(RtpPacket(0, 1, 160, 7, b"\xff" * 160))
            if keys:
                peer.sendto(data, rtp_socket.getsockname())  # not authentic: dropped
                data = SrtpEncryptor(KEY).protect(data)
            peer.sendto(data, rtp_socket.getsockname())
            peer.sendto(data, rtp_socket.getsockname())
            while not any(each.get("name") == "MediaStarted" for each in told):
                stream.readable()
            while stream.readable():
                pass
            stream.slot()
            stream.after_slot(now)
            stream.update(replace(remote, payload_type=8, payload_name="PCMA", srtp_send=None))
            stream.end(now)
            parts = [
                stream,
                stream.sender,
                stream.sender.outbound,
                stream._transport,
                stream._receiver,
            ]
            if stream._transport._decryptor is not None:
                parts += [stream._transport._decryptor, stream._transport._decryptor._session]
            left = [weakref.ref(each) for each in parts]
            del stream, parts
            assert [each() for each in left] == [None] * len(left)
    finally:
        gc.enable()
        memory.close()
