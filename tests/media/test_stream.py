"""One call in the media process, without the process."""

from __future__ import annotations

import gc
import socket
import time
import weakref
from dataclasses import replace
from typing import Any

import pytest

from qwen3tts_pacer.memory import CallMemory
from qwen3tts_phone.media import rtp, srtp
from qwen3tts_phone.media.ports import open_pair
from qwen3tts_phone.media.rtp import RtpPacket
from qwen3tts_phone.media.srtp import SrtpEncryptor
from qwen3tts_phone.media.stream import Stream
from qwen3tts_phone.media.types import LegSpec, RemoteMedia
from qwen3tts_phone.sdp.crypto import SrtpKey

pytestmark = pytest.mark.network


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
