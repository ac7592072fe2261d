"""Whole calls between two phones of ours with every codec, encrypted, over IPv6, by noise."""

from __future__ import annotations

import socket
from typing import Any

import numpy as np
import pytest

from qwen3tts_codecs.g711 import decode_ulaw, encode_ulaw
from qwen3tts_phone.phone import PhoneSettings
from qwen3tts_server.run import running_server
from tests.audio import aligned, compare, quality, reference_8k
from tests.conftest import leave_out
from tests.e2e.parties import Ear, connected, phone
from tests.peers.recording_engine import RecordingEngine

pytestmark = pytest.mark.network

TEXT = "This sentence goes through the line as it was spoken, whatever the line may be made of."


@pytest.mark.parametrize(
    ("settings", "codec", "encrypted"),
    [
        ({"codecs": ("PCMA",)}, "PCMA", False),
        ({"codecs": ("G722", "PCMU")}, "G722", False),
        ({"codecs": ("opus", "PCMU")}, "opus", False),
        ({"codecs": ("opus",), "ptime_ms": 40}, "opus", False),
        ({"ptime_ms": 10}, "PCMU", False),
        ({"ptime_ms": 30}, "PCMU", False),
        ({"ptime_ms": 60}, "PCMU", False),
        ({"srtp": "require"}, "PCMU", True),
        ({"srtp": "require", "codecs": ("opus",)}, "opus", True),
        ({"comfort_noise": "offer"}, "PCMU", False),
        ({"host": "::1"}, "PCMU", False),
    ],
    ids=str,
)
async def test_a_sentence_arrives_whole(
    settings: dict[str, Any], codec: str, encrypted: bool
) -> None:
    if settings.get("host") == "::1" and not _has_ipv6():
        leave_out("this machine has no IPv6 (::1)")
    engine = RecordingEngine()
    async with (
        running_server(engine, host="127.0.0.1", port=0) as server,
        phone(server.url, **settings) as agent,
        phone(server.url, **settings) as caller,
        connected(agent, caller) as (ours, theirs),
    ):
        ear = Ear(theirs)
        spoken = await ours.say(TEXT)
        await theirs.send_dtmf("1#")
        assert (ours.codec, ours.encrypted) == (codec, encrypted)
        await ours.hangup()
        heard = await ear.heard()
    assert spoken.heard == TEXT
    assert ours.facts.keys_in == "1#"
    stats = theirs.facts.media.stats
    assert stats is not None
    assert (stats.srtp_failed, stats.unknown_payload, stats.malformed) == (0, 0, 0)
    if settings.get("comfort_noise"):
        assert stats.cn_in > 0
    reference = reference_8k(engine.pcm())
    best = quality(reference, decode_ulaw(encode_ulaw(reference)))
    if codec in ("opus", "G722"):  # what they leave is not the same wave
        assert quality(reference, aligned(reference, heard)) > best - 0.3
    else:
        assert compare(reference, aligned(reference, heard)).missing == 0


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


async def test_wide_band_brings_what_a_telephone_does_not() -> None:
    engine = RecordingEngine()
    async with (
        running_server(engine, host="127.0.0.1", port=0) as server,
        phone(server.url, codecs=("G722",)) as agent,
        phone(server.url, codecs=("G722",)) as caller,
        connected(agent, caller) as (ours, theirs),
    ):
        ear = Ear(theirs)
        await ours.say(TEXT)
        await ours.hangup()
        await ear.heard()
    assert {frame.rate_hz for frame in ear.frames} == {16000}
    spectrum = np.abs(np.fft.rfft(np.concatenate([each.samples for each in ear.frames])))
    half = len(spectrum) // 2
    assert np.square(spectrum[half:]).sum() > 0.001 * np.square(spectrum[:half]).sum()


async def test_one_side_that_requires_encryption_and_one_that_has_none_say_so() -> None:
    from qwen3tts_phone.errors import CallRefused, NoCommonCodec

    async with (
        running_server(RecordingEngine(), host="127.0.0.1", port=0) as server,
        phone(server.url, srtp="require") as agent,
        phone(server.url, srtp="off") as caller,
    ):
        call = await caller.dial(agent.uri)
        incoming = await anext(agent.incoming())
        with pytest.raises(NoCommonCodec, match="encrypted calls alone"):
            await incoming.answer()
        with pytest.raises(CallRefused) as refused:
            await call.answered()
        assert refused.value.status == 488


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"srtp": "sometimes"}, "srtp="),
        ({"comfort_noise": "yes"}, "comfort_noise="),
        ({"codecs": ("PCMU", "MP3")}, "codecs="),
        ({"ptime_ms": 25}, "ptime_ms="),
        ({"transfers": "always"}, "transfers="),
        ({"dtmf": "inband"}, "dtmf="),
        ({"vanished_s": -1.0}, "vanished_s="),
        ({"media_silent_s": float("nan")}, "media_silent_s="),
        ({"media_silent_s": 0.0}, "vanished_s needs"),
        ({"rtp_ports": (5, 3)}, "port_range="),
    ],
)
def test_settings_that_cannot_be_are_named(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named}"):
        PhoneSettings(**settings)
