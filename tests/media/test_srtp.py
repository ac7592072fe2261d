"""Encrypted media: what is protected is opened once, by the right key only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from qwen3tts_phone.media import rtcp, rtp, srtp
from qwen3tts_phone.media.control import MediaRefused
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.process import MediaProcess
from qwen3tts_phone.media.rtp import RtpPacket
from qwen3tts_phone.media.srtp import OLD_KEY_S, PROFILES, SrtpDecryptor, SrtpEncryptor
from qwen3tts_phone.media.types import LegSpec, MediaStarted, RemoteMedia
from qwen3tts_phone.sdp.crypto import SrtpKey
from tests.media.peer import PATIENCE_S, SILENCE, Peer, event_of, speech, until

SUITE = "AES_CM_128_HMAC_SHA1_80"
REPORT = rtcp.build([rtcp.ReceiverReport(7)])


@pytest.fixture(autouse=True)
def _library() -> Iterator[None]:
    before = srtp._Library.module
    assert srtp.load()
    yield
    srtp._Library.module = before


def packet(sequence: int, payload: bytes = b"\x55" * 160, ssrc: int = 7) -> bytes:
    return rtp.build(RtpPacket(0, sequence, 160 * sequence, ssrc, payload))


@pytest.mark.parametrize("suite", PROFILES)
def test_what_is_sealed_is_opened_with_the_same_key_and_read_by_nobody_else(suite: str) -> None:
    key = SrtpKey.new(suite)
    encryptor, decryptor, other = (
        SrtpEncryptor(key),
        SrtpDecryptor(key),
        SrtpDecryptor(SrtpKey.new(suite)),
    )
    protected = encryptor.protect(packet(1))
    assert packet(1)[12:] not in protected
    assert protected[:12] == packet(1)[:12]  # RFC 3711 section 3.1: the header is in the clear
    assert other.unprotect(protected, 0.0) is None
    assert decryptor.unprotect(protected, 0.0) == packet(1)
    report = encryptor.protect_rtcp(REPORT)
    assert other.unprotect_rtcp(report, 0.0) is None
    assert decryptor.unprotect_rtcp(report, 0.0) == REPORT
    assert (decryptor.failed, decryptor.replayed) == (0, 0)
    assert (other.failed, other.replayed) == (2, 0)


@pytest.mark.parametrize("suite", PROFILES)
def test_a_packet_that_comes_again_is_a_replay_however_late(suite: str) -> None:
    key = SrtpKey.new(suite)
    encryptor, decryptor = SrtpEncryptor(key), SrtpDecryptor(key)
    protected = [encryptor.protect(packet(n)) for n in range(400)]
    for each in protected:
        assert decryptor.unprotect(each, 0.0) is not None
    for each in (protected[399], protected[390], protected[0]):
        assert decryptor.unprotect(each, 0.0) is None
    report = encryptor.protect_rtcp(REPORT)
    assert decryptor.unprotect_rtcp(report, 0.0) == REPORT
    assert decryptor.unprotect_rtcp(report, 0.0) is None
    assert (decryptor.failed, decryptor.replayed) == (0, 4)


@pytest.mark.parametrize("suite", PROFILES)
def test_a_single_changed_bit_anywhere_is_not_let_through(suite: str) -> None:
    key = SrtpKey.new(suite)
    protected = SrtpEncryptor(key).protect(packet(1, b"\x55" * 20))
    decryptor = SrtpDecryptor(key)
    for bit in range(0, 8 * len(protected), 5):
        changed = bytearray(protected)
        changed[bit // 8] ^= 1 << bit % 8
        assert decryptor.unprotect(bytes(changed), 0.0) is None
    assert decryptor.unprotect(protected, 0.0) is not None


def test_packets_out_of_order_and_across_the_wrap_are_opened() -> None:
    key = SrtpKey.new(SUITE)
    encryptor, decryptor = SrtpEncryptor(key), SrtpDecryptor(key)
    numbers = [*range(65_500, 65_536), *range(40)]
    protected = [encryptor.protect(packet(n)) for n in numbers]
    for at in range(0, len(protected), 2):
        for each in reversed(protected[at : at + 2]):
            assert decryptor.unprotect(each, 0.0) is not None
    assert (decryptor.failed, decryptor.replayed) == (0, 0)


def test_another_stream_of_the_same_sender_needs_no_other_key() -> None:
    key = SrtpKey.new(SUITE)
    encryptor, decryptor = SrtpEncryptor(key), SrtpDecryptor(key)
    for ssrc in (1, 2, 3):
        for number in range(3):
            protected = encryptor.protect(packet(number, ssrc=ssrc))
            assert decryptor.unprotect(protected, 0.0) == packet(number, ssrc=ssrc)


def test_with_a_new_key_the_old_one_is_taken_for_a_moment_only() -> None:
    old, new = SrtpKey.new(SUITE), SrtpKey.new("AEAD_AES_128_GCM")
    before, after, decryptor = SrtpEncryptor(old), SrtpEncryptor(new), SrtpDecryptor(old)
    assert decryptor.unprotect(before.protect(packet(1)), 0.0) is not None
    decryptor.change(new, 10.0)
    late = before.protect(packet(2))
    assert decryptor.unprotect(after.protect(packet(3)), 10.1) is not None
    assert decryptor.unprotect(late, 10.1) is not None
    assert decryptor.unprotect(late, 10.1) is None
    assert decryptor.unprotect(before.protect(packet(4)), 10.0 + OLD_KEY_S) is None
    assert (decryptor.failed, decryptor.replayed) == (1, 1)


def test_the_same_key_again_forgets_nothing_of_what_has_come() -> None:
    key = SrtpKey.new(SUITE)
    encryptor, decryptor = SrtpEncryptor(key), SrtpDecryptor(key)
    protected = encryptor.protect(packet(1))
    assert decryptor.unprotect(protected, 0.0) is not None
    decryptor.change(SrtpKey(key.suite, key.key), 1.0)
    assert decryptor.unprotect(protected, 1.0) is None
    assert decryptor.replayed == 1


def test_any_lengths_are_dropped_or_refused_not_raised() -> None:
    key = SrtpKey.new(SUITE)
    decryptor, encryptor = SrtpDecryptor(key), SrtpEncryptor(key)
    sizes = (0, 1, 11, 12, 13, 22, 1499, 1500, 1501, 2048)
    for size in sizes:
        assert decryptor.unprotect(b"\x80" * size, 0.0) is None
        assert decryptor.unprotect_rtcp(b"\x80" * size, 0.0) is None
    assert decryptor.failed == 2 * len(sizes)
    with pytest.raises(OSError, match="not encrypted"):
        encryptor.protect(packet(1, bytes(1500)))
    with pytest.raises(OSError, match="not encrypted"):
        encryptor.protect_rtcp(bytes(3000))


def test_what_cannot_be_used_says_why_without_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    key = SrtpKey.new("AES_256_CM_HMAC_SHA1_80")
    with pytest.raises(ValueError, match="AES_256_CM_HMAC_SHA1_80 is not in this libsrtp") as error:
        SrtpEncryptor(key)
    assert key.key not in str(error.value)
    monkeypatch.setattr(srtp._Library, "module", None)
    with pytest.raises(ValueError, match="pylibsrtp"):
        SrtpDecryptor(SrtpKey.new(SUITE))


def test_where_the_library_is_missing_nothing_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    assert srtp.available() == tuple(PROFILES)
    monkeypatch.setattr(srtp, "_MODULES", ("no_such_module",))
    assert srtp.available() == ()
    assert srtp.library_paths() == []


KEYS = {name: SrtpKey.new(SUITE) for name in ("ours", "theirs", "another")}


@asynccontextmanager
async def encrypted(process: MediaProcess) -> AsyncIterator[tuple[MediaLeg, Peer, RemoteMedia]]:
    """A leg and a peer that speak SRTP with each other."""
    peer = Peer(send=KEYS["theirs"], hear=KEYS["ours"])
    leg = await process.open(LegSpec(pinned_s=0.0, rtcp_interval_s=0.1))
    remote = peer.media(srtp_send=KEYS["ours"], srtp_receive=KEYS["theirs"])
    peer.dial(leg)
    await leg.start(remote)
    try:
        yield leg, peer, remote
    finally:
        peer.hang_up()


async def heard(leg: MediaLeg) -> list[int]:
    """The first bytes of the next frames that come in, at least one."""
    async with asyncio.timeout(PATIENCE_S):
        await leg.wait_inbound()
    return [frame.payload[0] for frame in leg.read_inbound() if not frame.concealed]


@pytest.mark.network
async def test_the_process_has_the_library_from_its_start(process: MediaProcess) -> None:
    assert process.srtp == tuple(PROFILES)


@pytest.mark.network
async def test_a_call_is_encrypted_both_ways_and_so_are_its_reports(process: MediaProcess) -> None:
    async with encrypted(process) as (leg, peer, _):
        leg.begin(1)
        leg.write(speech(3))
        leg.finish(1)
        said = [await peer.hear_speech(), *await peer.hear_many(2)]
        assert [each.payload[0] for each in said] == [0, 1, 2]
        peer.say(b"\x07" * 160)
        assert await heard(leg) == [7]
        assert rtcp.parse(await peer.hear_report())
        peer.raw_report(REPORT)
        stats = await until(leg, lambda stats: stats.rtcp_in == 1)
        assert (stats.srtp_failed, stats.srtp_replayed, stats.malformed) == (0, 0, 0)


@pytest.mark.network
async def test_reports_on_the_port_of_the_sound_are_encrypted_as_reports(
    process: MediaProcess,
) -> None:
    async with encrypted(process) as (leg, peer, remote):
        await leg.update(replace(remote, rtcp_mux=True))
        decryptor = peer._decryptor
        assert decryptor is not None
        while not rtp.is_rtcp(data := await peer._receive(peer._rtp)):
            pass
        report = decryptor.unprotect_rtcp(data, 0.0)
        assert report is not None
        assert rtcp.parse(report)
        peer.raw(SrtpEncryptor(KEYS["theirs"]).protect_rtcp(REPORT))
        stats = await until(leg, lambda stats: stats.rtcp_in == 1)
        assert stats.srtp_failed == 0


@pytest.mark.network
async def test_what_is_not_authentic_is_dropped_counted_and_never_latched(
    process: MediaProcess,
) -> None:
    async with encrypted(process) as (leg, peer, _):
        plain, wrong = Peer(), Peer(send=KEYS["another"])
        for stranger in (plain, wrong):
            stranger.dial(leg)
            for _ in range(5):
                stranger.say(b"\x66" * 160)
        stats = await until(leg, lambda stats: stats.srtp_failed == 10)
        assert (stats.received, stats.strangers, stats.remote_address) == (0, 0, None)
        peer.say(b"\x01" * 160)
        assert await heard(leg) == [1]
        started = await event_of(leg, MediaStarted)
        assert started.source == ("127.0.0.1", peer.port)
        peer._encryptor = None  # from the right address, and not authentic
        peer.say(b"\x02" * 160)
        peer.raw_report(REPORT)
        await until(leg, lambda stats: stats.srtp_failed == 12)
        assert leg.read_inbound() == []
        assert (await leg.measure()).rtcp_in == 0
        await peer.hear()  # what we send still goes to the right one
        for stranger in (plain, wrong):
            stranger.hang_up()


@pytest.mark.network
async def test_replayed_packets_are_counted_and_not_heard_twice(process: MediaProcess) -> None:
    async with encrypted(process) as (leg, peer, _):
        protected = SrtpEncryptor(KEYS["theirs"]).protect(packet(500, b"\x03" * 160))
        for _ in range(4):
            peer.raw(protected)
        stats = await until(leg, lambda stats: stats.srtp_replayed == 3)
        assert (stats.received, stats.duplicates) == (1, 0)
        assert await heard(leg) == [3]


@pytest.mark.network
async def test_new_keys_of_a_renegotiation_are_used_both_ways(process: MediaProcess) -> None:
    async with encrypted(process) as (leg, peer, remote):
        peer.say(b"\x01" * 160)
        assert await heard(leg) == [1]
        before = await peer.hear()
        ours, theirs = SrtpKey.new("AEAD_AES_256_GCM"), SrtpKey.new("AEAD_AES_256_GCM")
        fields = {**vars(remote), "srtp_send": ours, "srtp_receive": theirs}
        await leg.update(RemoteMedia(**fields))
        peer.say(b"\x02" * 160)  # on its way when the key was changed
        peer.change_keys(theirs, ours)
        peer.say(b"\x03" * 160)
        got: list[int] = []
        while len(got) < 2:
            got += await heard(leg)
        assert got == [2, 3]
        decryptor = peer._decryptor
        assert decryptor is not None
        while not (data := decryptor.unprotect(await peer._receive(peer._rtp), 0.0)):
            pass  # packets from before the change
        after = rtp.parse(data)
        assert after.payload == SILENCE
        assert after.ssrc == before.ssrc


@pytest.mark.network
async def test_encryption_can_begin_and_end_with_a_renegotiation(process: MediaProcess) -> None:
    async with encrypted(process) as (leg, peer, remote):
        await leg.update(RemoteMedia(**{**vars(remote), "srtp_send": None, "srtp_receive": None}))
        peer.change_keys(None, None)
        peer.say(b"\x05" * 160)
        assert await heard(leg) == [5]
        await leg.update(remote)
        peer.say(b"\x06" * 160)
        await until(leg, lambda stats: stats.srtp_failed == 1)
        peer.change_keys(KEYS["theirs"], KEYS["ours"])
        peer.say(b"\x07" * 160)
        while (got := await heard(leg)) == []:
            pass  # the hole of the one before
        assert got == [7]


@pytest.mark.network
async def test_a_suite_that_is_not_there_is_refused_and_the_call_goes_on(
    process: MediaProcess, leg: MediaLeg, peer: Peer
) -> None:
    key = SrtpKey.new("AES_256_CM_HMAC_SHA1_32")
    with pytest.raises(MediaRefused, match="AES_256_CM_HMAC_SHA1_32") as error:
        await leg.update(peer.media(srtp_send=key))
    assert (
        key.key
        not in f"{error.value} {error.value.__notes__ if hasattr(error.value, '__notes__') else ''}"
    )
    assert (await peer.hear()).payload == SILENCE
