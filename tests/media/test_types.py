from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from qwen3tts_phone.media.types import LegSpec, MediaSettings, RemoteMedia, remote_media
from qwen3tts_phone.sdp.crypto import SrtpKey


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"host": "phone.example"}, "no numeric IPv4"),
        ({"host": ""}, "no numeric IPv4"),
        ({"port": 70000}, "port=70000"),
        ({"payload_name": "G729"}, "PCMU or PCMA"),
        ({"payload_type": 128}, "payload_type=128"),
        ({"telephone_event_pt": -1}, "telephone_event_pt=-1"),
        ({"ptime_ms": 25}, "ptime_ms=25"),
        ({"payload_name": "opus"}, "silent frame"),
        ({"silence": "xy"}, "silence is no row"),
        ({"silence": "00" * 5000}, "silence of 5000"),
        ({"clock_hz": 0}, "clock_hz"),
        ({"telephone_event_hz": 10**6}, "telephone_event_hz"),
        ({"also_receive": (8, (9, 1))}, "also_receive"),
        ({"also_receive": (200,)}, "also_receive"),
        ({"comfort_noise_pt": 300}, "comfort_noise_pt=300"),
        ({"comfort_noise_level": 128}, "comfort_noise_level=128"),
    ],
)
def test_media_that_cannot_be_sent_is_refused(fields: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        RemoteMedia(**{"host": "192.0.2.1", "port": 4000, **fields})  # type: ignore[arg-type]


def test_what_was_agreed_survives_the_way_to_the_other_process() -> None:
    key = SrtpKey.new("AEAD_AES_128_GCM")
    remote = RemoteMedia(
        "2001:db8::1",
        4000,
        111,
        "opus",
        clock_hz=48_000,
        silence="d8fffe",
        also_receive=(8, (9, 8000)),
        telephone_event_in=(96,),
        srtp_send=key,
        srtp_receive=SrtpKey.new("AES_CM_128_HMAC_SHA1_80"),
    )
    assert remote_media(json.loads(json.dumps(asdict(remote)))) == remote
    assert remote.clocks() == {111: 48_000, 8: 8000, 9: 8000}
    assert remote.ticks == 960
    assert key.key not in repr(remote)


@pytest.mark.parametrize("ports", [(5000, 5000), (0, 10), (4000, 70000), (9, 5)])
def test_a_range_without_a_pair_of_ports_is_refused(ports: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="port_range"):
        LegSpec(port_range=ports)


def test_settings_out_of_their_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="jitter_max_s"):
        LegSpec(jitter_max_s=2.0)
    with pytest.raises(ValueError, match="scheduling"):
        MediaSettings(scheduling="turbo")
    with pytest.raises(ValueError, match="groups"):
        MediaSettings(groups=0)
