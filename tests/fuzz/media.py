"""RTP, RTCP, telephone events, SRTP, and G.711 frames."""

from __future__ import annotations

import base64
import functools
import struct
from dataclasses import replace

import numpy as np

from qwen3tts_codecs.frames import FrameEncoder
from qwen3tts_codecs.g711 import PCMA, PCMU, decode_alaw, decode_ulaw, encode_alaw, encode_ulaw
from qwen3tts_codecs.pcm import Framer, Int16Reader, from_bytes
from qwen3tts_pacer.memory import CallMemory
from qwen3tts_pacer.ring import InboundReader
from qwen3tts_phone.media import dtmf, rtcp, rtp, srtp
from qwen3tts_phone.media.dtmf import DtmfReceiver, EventPacket, KeyDown, KeyUp
from qwen3tts_phone.media.jitter_buffer import CONCEAL_MOST, PENDING_MOST
from qwen3tts_phone.media.receiver import Receiver
from qwen3tts_phone.media.rtcp import (
    Bye,
    Description,
    ReceiverReport,
    ReportBlock,
    RtcpError,
    SenderReport,
)
from qwen3tts_phone.media.rtp import RtpError, RtpPacket
from qwen3tts_phone.media.srtp import SrtpDecryptor, SrtpEncryptor
from qwen3tts_phone.media.types import LegSpec, MediaEvent, RemoteMedia
from qwen3tts_phone.sdp.crypto import SrtpKey
from tests.fuzz.target import Target, chunks, sequence, steps

RECORD = struct.Struct("!BI4s")
"""A step of the keys: hundredths of a second that pass, timestamp, payload."""


def run_rtp(data: bytes) -> None:
    rtp.is_rtcp(data)
    try:
        packet = rtp.parse(data)
    except RtpError:
        return
    assert len(packet.payload) <= len(data) - rtp.HEADER_BYTES
    assert rtp.parse(memoryview(data)) == packet
    assert rtp.parse(rtp.build(packet)) == packet
    assert rtp.parse(rtp.build(packet, padding=4)) == packet


def run_rtcp(data: bytes) -> None:
    try:
        packets = rtcp.parse(data)
    except RtcpError:
        return
    assert len(packets) <= rtcp.MOST_PACKETS
    for packet in packets:
        if isinstance(packet, SenderReport | ReceiverReport):
            assert rtcp.parse(rtcp.build([packet])) == [packet]
            for block in packet.blocks:
                trip = rtcp.round_trip_s(block, 0x1234_5678)
                assert trip is None or 0 <= trip <= 256
        elif isinstance(packet, Description):
            assert sum(len(name) for _, name in packet.names) <= len(data)
        else:
            assert len(packet.reason) <= 255


def run_dtmf(data: bytes) -> None:
    receiver = DtmfReceiver()
    now = 0.0
    down: str | None = None
    for start in range(0, len(data) - RECORD.size + 1, RECORD.size):
        wait, timestamp, payload = RECORD.unpack_from(data, start)
        now += wait / 100
        changes = receiver.due(now)
        changes += receiver.receive(payload[: 3 if wait == 0xFF else 4], timestamp, now)
        assert len(changes) <= 4
        down = _pressed(changes, down)
        assert receiver.pressed is (down is not None)
    assert _pressed(receiver.due(now + 1.0), down) is None
    assert not receiver.pressed


def _pressed(changes: list[KeyDown | KeyUp], down: str | None) -> str | None:
    """The key that is down after these changes: no key goes down before the last one is up."""
    for change in changes:
        assert change.digit in dtmf.KEYS
        if isinstance(change, KeyDown):
            assert down is None
            down = change.digit
        else:
            assert down == change.digit
            assert 0 <= change.duration < rtp.TIMESTAMP_MODULO
            down = None
    return down


THEM = ("192.0.2.1", 4000)

STRANGER = ("192.0.2.9", 4000)

SUITE = "AES_CM_128_HMAC_SHA1_80"


def run_media_receiver(data: bytes) -> None:
    memory = CallMemory.create(128, 4096, 256, 1 << 17)
    try:
        _listen(memory, data)
    finally:
        memory.close()


def _listen(memory: CallMemory, data: bytes) -> None:
    told: list[MediaEvent] = []
    remote = RemoteMedia(
        *THEM, telephone_event_pt=101, comfort_noise_pt=13, also_receive=(8, (111, 48_000))
    )
    receiver = Receiver(memory, LegSpec(), remote, told.append)
    reader = InboundReader(memory)
    now = 1000.0
    datagrams = 0
    frames = 0
    for kind, rest in steps(data):
        if kind in "us":
            datagrams += 1
            receiver.datagram(rest, THEM if kind == "u" else STRANGER, now)
        elif kind in "nh":
            receiver.update(replace(remote, receive=kind == "n"))
        elif rest:
            now += rest[0] / 100
        receiver.due(now)
        assert len(receiver.jitter.pending) <= PENDING_MOST + 1
        assert len(told) <= 4 * datagrams + 1
        read = reader.read()
        frames += len(read)
        assert all(len(frame.payload) <= len(data) for frame in read)
    receiver.due(now + 1.0)
    assert not receiver.waiting
    frames += len(reader.read())
    assert frames <= datagrams * (1 + CONCEAL_MOST)
    assert receiver.overrun == 0
    assert 0 <= receiver.reception.report().fraction_lost <= 255


def run_srtp(data: bytes) -> None:
    srtp.load()
    key, other = (SrtpKey(SUITE, base64.b64encode(bytes([n]) * 30).decode()) for n in (1, 2))
    encryptor, decryptor = SrtpEncryptor(key), SrtpDecryptor(key)
    now = 0.0
    for kind, rest in steps(data):
        dropped = decryptor.failed + decryptor.replayed
        now += 0.1
        if kind == "k":
            key, other = other, key
            encryptor = SrtpEncryptor(key)
            decryptor.change(key, now)
            continue
        if kind == "p":
            try:
                protected = encryptor.protect(rest)
            except OSError:
                continue
            opened = decryptor.unprotect(protected, now)
            assert opened in (rest, None)
            if opened is not None:
                assert decryptor.unprotect(protected, now) is None  # not twice
        else:
            open_it = decryptor.unprotect if kind == "r" else decryptor.unprotect_rtcp
            assert open_it(rest, now) is None
        assert decryptor.failed + decryptor.replayed == dropped + 1


def run_g711(data: bytes) -> None:
    for decode, encode in ((decode_ulaw, encode_ulaw), (decode_alaw, encode_alaw)):
        samples = decode(data)
        assert samples.shape == (len(data),)
        assert np.array_equal(decode(encode(samples)), samples)
    length = 1 + data[0] % 7 if data else 1
    reader, framer = Int16Reader(), Framer(1 + len(data) % 11)
    read = [reader.push(piece) for piece in chunks(data, length)]
    assert reader.flush() == len(data) % 2
    whole = from_bytes(data[: len(data) // 2 * 2])
    assert np.array_equal(np.concatenate([*read, whole[:0]]), whole)
    frames = [frame for part in read for frame in framer.push(part)]
    assert all(len(frame) == framer.frame_samples for frame in frames)
    last = framer.flush()
    real = [] if last is None else [last.samples[: last.real]]
    assert np.array_equal(np.concatenate([*frames, *real, whole[:0]]), whole)
    encode_ulaw(whole)
    encode_alaw(whole)


@functools.cache
def _encoders(from_hz: int, name: str) -> tuple[FrameEncoder, FrameEncoder]:
    payload = PCMU if name == "PCMU" else PCMA
    return FrameEncoder(from_hz, payload), FrameEncoder(from_hz, payload)


def run_frame_encoder(data: bytes) -> None:
    if not data:
        return
    from_hz = (8000, 16000, 24000, 48000)[data[0] % 4]
    one, other = _encoders(from_hz, "PCMU" if data[0] & 4 else "PCMA")
    pcm = data[1:]
    whole = [*one.push(pcm), *one.flush()]
    parts = [frame for piece in chunks(pcm, 1 + 9 * (data[0] // 8)) for frame in other.push(piece)]
    assert [*parts, *other.flush()] == whole
    assert sum(frame.samples for frame in whole) == len(pcm) // 2
    for frame in whole:
        assert len(frame.payload) == len(frame.tail) == len(frame.head) == 160


def _packet(number: int, *, kind: int = 0, payload: bytes = b"\x55" * 160) -> bytes:
    return rtp.build(RtpPacket(kind, number, 160 * number, 0xABCD, payload, number == 1))


def _key(timestamp: int, event: int, duration: int, *, end: bool = False, wait: int = 2) -> bytes:
    return RECORD.pack(wait, timestamp, dtmf.build(EventPacket(event, end, 10, duration)))


BLOCK = ReportBlock(0xABCD, 3, -2, 70000, 12, 0x1234_0000, 65536)

REPORTS: tuple[list[rtcp.Packet], ...] = (
    [SenderReport(1, 2**63, 160, 1, 160, (BLOCK,)), Description(((1, "them@example.org"),))],
    [ReceiverReport(1, (BLOCK, BLOCK)), Description(((1, "x"),)), Bye((1,), "over")],
)

EVENT = dtmf.build(EventPacket(5, False, 10, 320))

TARGETS = {
    "rtp": Target(
        run_rtp,
        "A datagram is an RtpError, or a packet that is written and read again as itself.",
        (
            _packet(1),
            rtp.build(RtpPacket(8, 65535, 2**32 - 1, 7, b"\xd5" * 20, True), padding=12),
            rtp.build(RtpPacket(96, 1, 2, 3, b"x", csrcs=(4, 5), extension=(0xBEDE, b"\x10abc"))),
        ),
        max_bytes=512,
        hard=(
            b"\x8f" + bytes(11),  # contributing sources beyond the end
            b"\x90" + bytes(11) + b"\x00\x00\xff\xff",  # an extension beyond the end
            b"\xa0" + bytes(11),  # padding, and no payload that could say how much
            b"\xa0" + bytes(12),  # padding of 0
            b"\xbf" + bytes(75) + b"\xff",
            b"\x40" + bytes(20),  # STUN's version
        ),
    ),
    "rtcp": Target(
        run_rtcp,
        "A datagram is an RtcpError, or at most 32 packets no larger than it.",
        tuple(rtcp.build(reports) for reports in REPORTS),
        (b"\x80\xc8\x00\x06", b"\x81\xc9\x00\x07", b"\x81\xca", b"\x81\xcb\x00\x01"),
        max_bytes=1504,
        hard=(
            b"\x9f\xc8\x00\x06" + bytes(24),  # 31 blocks announced, none there
            b"\x81\xca\x00\x01" + bytes(4),  # a description that does not end
            b"\x81\xca\x00\x02" + bytes(4) + b"\x01\xffab",
            b"\x81\xcb\x00\x01" + bytes(4),
            b"\xa0\xc9\x00\x01" + bytes(3) + b"\x08",  # padding that swallows the packet
            b"\x80\xcc\xff\xff" + bytes(4),
            rtcp.build([ReceiverReport(1)] * 40),
            rtcp.build([ReceiverReport(1), Bye((1,))])
            + b"\x81\xcb\x00\x02"
            + bytes(4)
            + b"\xffx\xfe\x80",
        ),
    ),
    "dtmf": Target(
        run_dtmf,
        "Whatever packets arrive, keys go down and up alternately; a key without packets comes up.",
        (
            b"".join(_key(1000, 5, 160 * n) for n in range(1, 5))
            + 3 * _key(1000, 5, 800, end=True),
            _key(2**32 - 100, 11, 160) + _key(200, 1, 160, end=True) + _key(2**32 - 100, 11, 320),
            _key(0, 3, 65535) + _key(65535, 3, 160) + _key(65535, 3, 320, end=True),
            _key(1, 200, 160) + _key(1, 2, 160, wait=255),
        ),
        max_bytes=RECORD.size * 64,
        hard=(
            bytes(9) * 20,
            bytes.fromhex("02ffffff9c050a0140") * 2 + bytes.fromhex("0200000000058affff"),
            bytes.fromhex("ff00000001058a0140ff00000001058a0140"),
            b"".join(bytes([20, 0, 0, n, 0, n % 17, 0x80, 1, 64]) for n in range(40)),
        ),
    ),
    "media_receiver": Target(
        run_media_receiver,
        "Whatever datagrams a leg receives, it hands on what they can hold and waits for none.",
        (
            sequence(*(b"u" + _packet(n) for n in (1, 2, 4, 3, 5)), b"w\x05"),
            sequence(b"s" + _packet(7), b"s" + _packet(8), b"u" + _packet(1), b"s" + _packet(9)),
            sequence(*(b"u" + _packet(n, kind=101, payload=EVENT) for n in (1, 2)), b"w\x20", b"n"),
            sequence(
                b"u" + _packet(65535), b"u" + _packet(0), b"u" + _packet(30000), b"u" + b"\x80"
            ),
            sequence(
                *(b"u" + _packet(n, kind=kind) for n, kind in ((1, 0), (2, 13), (4, 111))), b"h"
            ),
        ),
        (
            *(b"\xff\xffu\x80\x00\x00", b"\xff\xffs\x80\x08", b"\xff\xffw\x10", b"\xff\xffh"),
            b"\x80\xe5\x00",
        ),
        stepwise=True,
        hard=(
            sequence(*(b"u\x80\x00" + bytes([0, 7 * n]) + bytes(28) for n in range(20)), b"w\x01"),
            sequence(*(b"u\x80\x00" + bytes([n * 13 % 256, 0]) + bytes(28) for n in range(40))),
            sequence(
                *(b"u\x80\x65\x00" + bytes([n]) + bytes(8) + b"\x05\x00" for n in range(9)),
                b"w\x40",
            ),
            # The timestamps go back to before the stream's first one.
            bytes.fromhex(
                "7580000001000000000000abcd"
                + "55" * 20
                + "ffff7580000002f00000000000abcd"
                + "55" * 20
            ),
            sequence(b"u\x80\x00\x00\x01" + bytes(8), b"s\x80\x00\x00\x01" + bytes(8), b"w\xff")
            * 3,
        ),
    ),
    "srtp": Target(
        run_srtp,
        "What is protected is opened as it was, once; any other bytes are dropped and counted.",
        (
            sequence(
                *(b"p" + _packet(n) for n in range(5)), b"k", *(b"p" + _packet(n) for n in (5, 4))
            ),
            sequence(b"r" + _packet(1), b"d" + rtcp.build(REPORTS[0]), b"p" + _packet(65535)),
        ),
        (b"\xff\xffp\x80\x00", b"\xff\xffk", b"\xff\xffr\x80", b"\x90\x00"),
        stepwise=True,
        hard=(
            sequence(*(b"p\x80\x00" + bytes([n, 0]) + bytes(20) for n in range(0, 250, 30))),
            sequence(
                b"p" + bytes(12), b"p\xbf" + bytes(11), b"p\x90" + bytes(11) + b"\x00\x00\xff\xff"
            ),
            sequence(
                b"r" + b"\x80" * 2048,
                b"d" + b"\x81" * 1501,
                b"p" + b"\x80" * 2000,
                b"r",
                b"d",
                b"p",
            ),
            sequence(b"k", b"k", b"p\x80\x00" + bytes(30), b"k", b"p\x80\x00" + bytes(30)),
        ),
    ),
    "g711": Target(
        run_g711,
        "Any bytes are code words that survive the way there and back, and samples however cut.",
        (bytes(range(256)), b"\x00\x80\xff\x7f\x00", b""),
        max_bytes=1024,
        hard=(b"\x7f\xff" * 100 + b"\x00", b"\x80"),
    ),
    "frame_encoder": Target(
        run_frame_encoder,
        "Samples give the same frames, which hold all of them, however their bytes were cut.",
        (
            b"\x16" + bytes(1920),
            b"\x21" + b"\x00\x80\xff\x7f" * 300,
            b"\xff" + b"abc" * 99,
            b"\x03",
        ),
        max_bytes=2500,
        hard=(b"\x00", b"\xff" + b"\xff\x7f\x00\x80" * 500, b"\x07" + b"\x01"),
    ),
}
