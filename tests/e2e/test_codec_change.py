"""The far end takes another codec in the middle of a sentence, and nothing of it is missed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_codecs.table import CODECS
from qwen3tts_phone.call.events import CodecChanged
from qwen3tts_phone.call.phone_call import PhoneCall
from qwen3tts_phone.sdp.session import AgreedPayload, SdpOptions, SdpSession
from qwen3tts_server.run import running_server
from tests.audio import lag_of, reference_8k
from tests.e2e.parties import Ear, connected, phone
from tests.peers.recording_engine import RecordingEngine

pytestmark = pytest.mark.network

TEXT = (
    "This sentence is long enough for the codec to be changed in its middle, and nobody should "
    "notice anything of that at all."
)
PIECE = 4000
"""Half a second: so much of the sentence is looked for in what was heard."""
PAUSE_MS = 200
"""A few slots pass in silence while what waits is made anew; more would be something lost or said
twice, of which a second is queued at least."""


def likeness(wanted: NDArray[np.int16], heard: NDArray[np.int16]) -> float:
    """Correlation of two pieces, 1 = the same wave."""
    one, two = wanted.astype(float), heard.astype(float)
    return float(one @ two / np.sqrt((one @ one) * (two @ two) + 1e-9))


async def change(call: PhoneCall, name: str) -> None:
    """Offer this codec alone, as a phone that was handed on to another network does."""
    now = call._session
    codec = CODECS[name.upper()]
    agreed = call._media.agreed
    assert agreed is not None
    # RFC 3264 section 8.3.2: who offers a format is ready for it.
    ready = AgreedPayload(codec.payload_type, codec.name, codec.clock_hz)
    await call._media.agree(replace(agreed, also_receive=(ready, *agreed.also_receive)))
    new = SdpSession(now.host, now.port, SdpOptions(codecs=(name,)))
    await call._media.agree(new.accept(await call.sip.reinvite(new.offer)))


@pytest.mark.parametrize(
    ("first", "second"),
    [("PCMU", "PCMA"), ("PCMA", "G722"), ("G722", "PCMU"), ("PCMU", "opus"), ("opus", "PCMA")],
)
async def test_a_sentence_goes_on_in_the_other_codec(first: str, second: str) -> None:
    engine = RecordingEngine()
    every = ("PCMU", "PCMA", "G722", "opus")
    async with (
        running_server(engine, host="127.0.0.1", port=0) as server,
        phone(server.url, codecs=every) as agent,
        phone(server.url, codecs=(first,)) as caller,
        connected(agent, caller) as (ours, theirs),
    ):
        ear = Ear(theirs)
        utterance = ours.speak(TEXT)
        await ear.sound(1.0)
        assert ours.codec == first
        await change(theirs, second)
        assert ours.codec == second
        spoken = await utterance.spoken()
        await ours.hangup()
        heard = await ear.heard()
        events = [event async for event in ours.events]
    assert spoken.heard == TEXT
    assert [event.codec for event in events if isinstance(event, CodecChanged)] == [second]
    reference = reference_8k(engine.pcm())
    places, likenesses = [], []
    for start in range(0, len(reference) - PIECE, PIECE):
        piece = reference[start : start + PIECE]
        if np.abs(piece.astype(int)).max() < 1000:
            continue
        place = lag_of(piece, heard)
        places.append((place - start) / 8)
        likenesses.append(likeness(piece, heard[place : place + PIECE]))
    # The pause may lie within one of the pieces.
    assert sorted(likenesses)[1] > 0.8, likenesses
    assert max(places) - min(places) <= PAUSE_MS, places


@pytest.mark.parametrize(("first", "second"), [("PCMU", "opus"), ("opus", "PCMA")])
async def test_the_caller_is_heard_through_the_change(first: str, second: str) -> None:
    tone = (8000 * np.sin(2 * np.pi * 700 * np.arange(24_000) / 8000)).astype(np.int16)
    every = ("PCMU", "PCMA", "G722", "opus")
    async with (
        running_server(RecordingEngine(), host="127.0.0.1", port=0) as server,
        phone(server.url, codecs=every) as agent,
        phone(server.url, codecs=(first,)) as caller,
        connected(agent, caller) as (ours, theirs),
    ):
        ear = Ear(ours)
        playing = asyncio.create_task(theirs.play(tone, 8000))
        await ear.sound(1.0)
        await change(theirs, second)
        assert await playing
        stats = await ours._control.media.leg.measure()
    # Packets of the codec before were on their way; those of the new one are another stream.
    assert (stats.unknown_payload, stats.strangers, stats.malformed) == (0, 0, 0)


async def test_an_interruption_after_the_change_tells_what_was_heard() -> None:
    engine = RecordingEngine()
    async with (
        running_server(engine, host="127.0.0.1", port=0) as server,
        phone(server.url, codecs=("PCMU", "G722")) as agent,
        phone(server.url, codecs=("PCMU",)) as caller,
        connected(agent, caller) as (ours, theirs),
    ):
        ear = Ear(theirs)
        utterance = ours.speak(TEXT)
        await ear.sound(1.0)
        await change(theirs, "G722")
        before = utterance.position
        await ear.sound(2.0)
        assert ours.interrupt() == [utterance]
        spoken = await utterance.spoken()
        again = await ours.say("And now this.")
    assert spoken.interrupted
    assert spoken.position > before > 0
    assert spoken.heard
    assert spoken.heard + spoken.remaining == TEXT
    assert again.heard == "And now this."


async def test_a_change_that_cannot_be_is_refused_and_the_call_goes_on() -> None:
    from qwen3tts_phone.errors import CallRefused

    async with (
        running_server(RecordingEngine(), host="127.0.0.1", port=0) as server,
        phone(server.url, codecs=("PCMU",)) as agent,
        phone(server.url, codecs=("PCMU",)) as caller,
        connected(agent, caller) as (ours, theirs),
    ):
        with pytest.raises(CallRefused) as refused:
            await theirs.sip.reinvite(
                SdpSession("127.0.0.1", 4000, SdpOptions(codecs=("G722",))).offer
            )
        assert refused.value.status == 488
        assert (await ours.say("Nothing has changed.")).heard == "Nothing has changed."
        await theirs.hold()
        await theirs.resume()
        assert not ours.held
