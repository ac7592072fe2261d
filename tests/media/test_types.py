from __future__ import annotations

import pytest

from qwen3tts_phone.media.types import LegSpec, MediaSettings, RemoteMedia


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
    ],
)
def test_media_that_cannot_be_sent_is_refused(fields: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        RemoteMedia(**{"host": "192.0.2.1", "port": 4000, **fields})  # type: ignore[arg-type]


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
