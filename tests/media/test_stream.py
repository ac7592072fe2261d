"""One call in the media process, without the process."""

from __future__ import annotations

import gc
import socket
import time
import weakref
from typing import Any

import pytest

from qwen3tts_pacer.memory import CallMemory
from qwen3tts_phone.media import rtp
from qwen3tts_phone.media.ports import open_pair
from qwen3tts_phone.media.rtp import RtpPacket
from qwen3tts_phone.media.stream import Stream
from qwen3tts_phone.media.types import LegSpec, RemoteMedia

pytestmark = pytest.mark.network


def test_a_call_that_is_over_is_freed_without_the_collector() -> None:
    # The media process runs without the garbage collector, so a cycle would stay for ever.
    memory = CallMemory.create(128, 65536, 128, 4096)
    rtp_socket, rtcp_socket = open_pair("127.0.0.1", (0, 0))
    told: list[dict[str, Any]] = []
    gc.disable()
    try:
        with rtp_socket, rtcp_socket, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.bind(("127.0.0.1", 0))
            remote = RemoteMedia(*peer.getsockname())
            now = time.monotonic()
            stream = Stream(
                1, LegSpec(), memory, (rtp_socket, rtcp_socket), told.append, remote, now, None
            )
            packet = RtpPacket(0, 1, 160, 7, b"\xff" * 160)
            peer.sendto(rtp.build(packet), rtp_socket.getsockname())
            while not any(each.get("name") == "MediaStarted" for each in told):
                stream.readable()
            stream.slot()
            stream.after_slot(now)
            stream.end(now)
            whole, half = weakref.ref(stream), weakref.ref(stream.sender)
            del stream
            assert whole() is None
            assert half() is None
    finally:
        gc.enable()
        memory.close()
