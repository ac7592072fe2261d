"""A real baresip with SDES-SRTP, G.722, Opus, and SIP over TLS: it hears us, and we hear it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_codecs.g711 import decode_ulaw, encode_ulaw
from qwen3tts_phone.call.call import Call
from qwen3tts_phone.errors import CallRefused, NoCommonCodec
from qwen3tts_phone.phone import Phone, PhoneSettings
from qwen3tts_phone.sip.core.settings import SipSettings, TlsSettings
from qwen3tts_server.run import running_server
from tests.audio import aligned, quality, reference_8k
from tests.e2e.parties import Ear
from tests.peers.baresip_runner import Baresip, baresip, tone
from tests.peers.recording_engine import RecordingEngine
from tests.sip.certificates import Authority

pytestmark = [pytest.mark.network, pytest.mark.usefixtures("need_baresip")]

SENTENCE = "Good morning, this is the clinic. Your appointment is on Friday at half past eight."
TONE_HZ = 523.0
ACCOUNT = "<sip:bob@127.0.0.1>;regint=0"
G722 = ("g722.so", "g711.so")
OPUS = ("opus.so", "g711.so")


@asynccontextmanager
async def parties(
    folder: Path, peer: dict[str, Any], **settings: Any
) -> AsyncIterator[tuple[RecordingEngine, Phone, Baresip]]:
    """A phone of ours and baresip, which says a tone."""
    engine = RecordingEngine()
    async with (
        running_server(engine, host="127.0.0.1", port=0) as server,
        Phone(PhoneSettings(server_url=server.url, **settings)) as phone,
        baresip(folder / "peer", speech=tone(TONE_HZ, 20.0), **peer) as bob,
    ):
        yield engine, phone, bob


async def talk(call: Call, engine: RecordingEngine, bob: Baresip) -> NDArray[np.int16]:
    """Say the sentence, and hang up; both sides must have heard the other."""
    ear = Ear(call)
    spoken = await call.say(SENTENCE)
    await call.hangup()
    await bob.event("CALL_CLOSED")
    heard = await ear.heard()
    assert spoken.heard == SENTENCE
    assert loudest_hz(heard) == TONE_HZ
    stats = call.facts.media.stats
    assert stats is not None
    assert (stats.malformed, stats.unknown_payload) == (0, 0)
    # Its first packet may leave before it knows our key.
    assert stats.srtp_failed <= 1
    reference = reference_8k(engine.pcm())
    best = quality(reference, decode_ulaw(encode_ulaw(reference)))
    assert quality(reference, aligned(reference, bob.recording("dec"))) > best - 0.4
    return heard


def loudest_hz(heard: NDArray[np.int16]) -> float:
    """The frequency that is loudest in a second of what was heard, shape [n] at 8 kHz."""
    second = heard[len(heard) // 2 :][:8000].astype(float)
    return float(np.abs(np.fft.rfft(second, 8000)).argmax())


@pytest.mark.parametrize("ours", ["accept", "require"])
@pytest.mark.parametrize("theirs", ["srtp-mand", "srtp"])
async def test_srtp_with_keys_by_sdes(tmp_path: Path, ours: str, theirs: str) -> None:
    peer = {"account": f"{ACCOUNT};mediaenc={theirs}"}
    async with parties(tmp_path, peer, srtp=ours) as (engine, phone, bob):
        # Whoever requires it, or offers it, calls: it is encrypted then.
        if ours == "require":
            call = await phone.dial(bob.uri)
            await call.answered()
        else:
            await bob.dial(phone.uri)
            async with asyncio.timeout(10):
                call = await anext(phone.incoming())
            await call.answer()
        assert call.encrypted
        assert call.facts.media.srtp == "AES_CM_128_HMAC_SHA1_80"
        await talk(call, engine, bob)


async def test_a_plain_baresip_is_refused_where_encryption_is_required(tmp_path: Path) -> None:
    async with parties(tmp_path, {}, srtp="require") as (_, phone, bob):
        call = await phone.dial(bob.uri)
        with pytest.raises(CallRefused) as refused:
            await call.answered()
        assert refused.value.status == 488
        await bob.dial(phone.uri)
        async with asyncio.timeout(10):
            incoming = await anext(phone.incoming())
        with pytest.raises(NoCommonCodec, match="encrypted calls alone"):
            await incoming.answer()
        closed = await bob.event("CALL_CLOSED", seen=1)
        assert "488" in closed["param"]


@pytest.mark.parametrize("who", ["we call", "they call"])
@pytest.mark.parametrize(("modules", "codec"), [(G722, "G722"), (OPUS, "opus")])
async def test_codecs_of_wide_band(
    tmp_path: Path, modules: tuple[str, ...], codec: str, who: str
) -> None:
    async with parties(tmp_path, {"codecs": modules}, codecs=(codec, "PCMU")) as (
        engine,
        phone,
        bob,
    ):
        if who == "we call":
            call = await phone.dial(bob.uri)
            await call.answered()
        else:
            await bob.dial(phone.uri)
            async with asyncio.timeout(10):
                call = await anext(phone.incoming())
            await call.answer()
        assert call.codec == codec
        await talk(call, engine, bob)


async def test_keys_go_both_ways_in_an_opus_call(tmp_path: Path) -> None:
    from tests.peers.test_baresip_call import heard_keys, keys

    async with parties(tmp_path, {"codecs": OPUS}, codecs=("opus",)) as (_, phone, bob):
        call = await phone.dial(bob.uri)
        await call.answered()
        await call.send_dtmf("159#")
        assert await heard_keys(bob, 4) == "159#"
        pressing = asyncio.create_task(bob.press("42*"))
        assert await keys(call, 3) == "42*"
        await pressing
        await call.hangup()


@pytest.mark.parametrize("who", ["we call", "they call"])
async def test_sip_over_tls_with_srtp(tmp_path: Path, who: str) -> None:
    authority = Authority(tmp_path)
    ours = authority.sign("ours", "127.0.0.1")
    theirs = authority.sign("theirs", "127.0.0.1")
    both = tmp_path / "theirs-both.pem"
    both.write_bytes(theirs.key.read_bytes() + theirs.certificate.read_bytes())
    tls = TlsSettings(ours.certificate, ours.key, ca=authority.file, port=0)
    peer = {
        "account": f"{ACCOUNT};mediaenc=srtp-mand",
        "certificate": both,
        "authority": authority.file,
    }
    settings = {"sip": SipSettings(tls=tls), "srtp": "require"}
    async with parties(tmp_path, peer, **settings) as (engine, phone, bob):
        if who == "we call":
            call = await phone.dial(bob.tls_uri)
            await call.answered()
        else:
            await bob.dial(f"sip:agent@127.0.0.1:{phone.tls_port};transport=tls")
            async with asyncio.timeout(10):
                call = await anext(phone.incoming())
            await call.answer()
        assert call.facts.transport == "tls"
        assert call.encrypted
        await talk(call, engine, bob)
