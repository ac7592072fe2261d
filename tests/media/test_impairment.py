"""Loss and jitter at a leg's socket."""

from __future__ import annotations

import itertools
import math
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace

import pytest

from qwen3tts_phone.media.impairment import ImpairedSocket, PacketFates
from qwen3tts_phone.media.receiver import ANCILLARY, STAMP
from qwen3tts_phone.media.types import Impairment, LegSpec, leg_spec


def fates(count: int, settings: Impairment, direction: str = "in") -> list[float | None]:
    drawn = PacketFates(settings, direction)
    return [drawn.next() for _ in range(count)]


@pytest.mark.parametrize(("loss", "burst"), [(0.02, 1.0), (0.1, 3.0), (0.3, 5.0)])
def test_loss_and_the_length_of_its_runs_are_those_of_the_settings(
    loss: float, burst: float
) -> None:
    drawn = fates(200_000, Impairment(loss=loss, burst=burst))
    lost = [each is None for each in drawn]
    runs = [len(list(group)) for gone, group in itertools.groupby(lost) if gone]
    assert sum(lost) / len(lost) == pytest.approx(loss, rel=0.1)
    # A run of mean length 1 is one that ends with the same draw that may begin the next.
    assert sum(runs) / len(runs) == pytest.approx(burst, rel=0.15)


def test_the_same_seed_has_the_same_fates_and_directions_differ() -> None:
    settings = Impairment(loss=0.1, jitter_s=0.05, seed=7)
    assert fates(500, settings) == fates(500, settings)
    assert fates(500, settings) != fates(500, replace(settings, seed=8))
    assert fates(500, settings) != fates(500, settings, "out")


def test_delays_are_within_the_jitter() -> None:
    drawn = [each for each in fates(5000, Impairment(jitter_s=0.08)) if each is not None]
    assert len(drawn) == 5000
    assert 0.0 <= min(drawn) < 0.002
    assert 0.078 < max(drawn) <= 0.08


@pytest.mark.parametrize(
    "settings",
    [{"loss": -0.1}, {"loss": 1.0}, {"burst": 0.5}, {"jitter_s": 2.0}, {"loss": math.nan}],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        Impairment(**settings)  # type: ignore[arg-type]


def test_a_legs_impairment_reaches_the_media_process() -> None:
    spec = LegSpec(impairment=Impairment(0.1, 2.0, 0.03, 5))
    assert leg_spec(asdict(spec)) == spec
    assert leg_spec(asdict(LegSpec())) == LegSpec()


@contextmanager
def pair(impairment: Impairment) -> Iterator[tuple[ImpairedSocket, socket.socket]]:
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.bind(("127.0.0.1", 0))
    one.setblocking(False)
    with (
        ImpairedSocket(impairment, one.detach()) as impaired,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
    ):
        other.bind(("127.0.0.1", 0))
        other.settimeout(2.0)
        other.connect(impaired.getsockname())
        impaired.connect(other.getsockname())
        yield impaired, other


def packet(number: int, kind: int = 0) -> bytes:
    return struct.pack("!BBHII", 0x80, kind, number, number * 160, 1) + bytes(160)


def received(impaired: ImpairedSocket, within_s: float) -> list[tuple[int, float]]:
    """Sequence numbers and time stamps (s since 1970) of what comes."""
    came = []
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        try:
            data, ancillary, _, _ = impaired.recvmsg(2048, ANCILLARY)
        except BlockingIOError:
            continue
        seconds, nanoseconds = STAMP.unpack_from(ancillary[0][2])
        came.append((struct.unpack_from("!H", data, 2)[0], seconds + nanoseconds / 1e9))
    return came


@pytest.mark.network
def test_packets_are_lost_and_delayed_both_ways_in_order() -> None:
    settings = Impairment(loss=0.3, burst=2.0, jitter_s=0.05, seed=3)
    with pair(settings) as (impaired, other):
        for number in range(40):
            other.send(packet(number))
            impaired.sendto(packet(number), other.getsockname())
        began = time.time()
        came = received(impaired, 0.2)
        kept_in = [n for n, fate in enumerate(fates(40, settings)) if fate is not None]
        kept_out = [n for n, fate in enumerate(fates(40, settings, "out")) if fate is not None]
        assert [number for number, _ in came] == kept_in
        assert max(at for _, at in came) > began + 0.03
        others = [struct.unpack_from("!H", other.recv(2048), 2)[0] for _ in kept_out]
        assert others == kept_out


@pytest.mark.network
def test_one_direction_may_be_spared() -> None:
    with pair(Impairment(loss=0.9, burst=50.0, jitter_s=0.5, inbound=False)) as (impaired, other):
        for number in range(20):
            other.send(packet(number))
        assert [number for number, _ in received(impaired, 0.05)] == list(range(20))


@pytest.mark.network
def test_reports_pass_untouched() -> None:
    report = struct.pack("!BBHI", 0x80, 201, 1, 1)
    with pair(Impairment(loss=0.9, burst=50.0, jitter_s=0.5)) as (impaired, other):
        for _ in range(20):
            impaired.sendto(report, other.getsockname())
            other.send(report)
        assert [other.recv(2048) for _ in range(20)] == [report] * 20
        assert len(received(impaired, 0.05)) == 20
