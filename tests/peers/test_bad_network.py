"""Calls over a bad network: packets are lost, late, out of order and double, and the call holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
from scipy.signal import correlate

from qwen3tts_phone.audio.frames import HeardFrame, KeyPressed
from qwen3tts_phone.call.call import CallEvent
from qwen3tts_phone.call.events import CallEnded, MediaSilent
from qwen3tts_phone.call.phone_call import PhoneCall
from qwen3tts_phone.phone import Phone, PhoneSettings
from qwen3tts_phone.records.record import CallRecord
from qwen3tts_server.run import running_server
from tests.audio import Samples, lag_of, reference_8k
from tests.e2e.parties import at_8k
from tests.peers.baresip_runner import Baresip, baresip, tone
from tests.peers.impair import BadLine, Trouble, bad_line, bad_network
from tests.peers.recording_engine import RecordingEngine

pytestmark = [pytest.mark.network]

SENTENCE = "Good morning, this is the clinic. Your appointment is on Friday at half past eight."
AGAIN = "I am still here, and so are you."
TONE_HZ = 523
CLEAN_MOS = 4.2
"""A clean call has more, a bad one less."""
LONGEST_GAP_S = 0.06


@dataclass(frozen=True)
class Network:
    """A network, and what may come of it: bounds for shares, of both directions."""

    trouble: Any
    seed: int
    loss: tuple[float, float]
    heard: float
    """Least share of the speech that must be there at the other end."""


CLEAN = Network(Trouble("clean"), 1, (0.0, 0.01), 0.95)
LOSSES = (
    CLEAN,
    Network(Trouble("5 % loss, 40 ms jitter", loss=0.05, jitter_s=0.04), 149, (0.02, 0.1), 0.8),
    Network(Trouble("10 % loss", loss=0.1, jitter_s=0.02), 372, (0.05, 0.17), 0.65),
)
MESS = Network(
    Trouble("everything", loss=0.05, jitter_s=0.04, twice=0.01, overtaken=0.05),
    203,
    (0.02, 0.1),
    0.8,
)


class Listener:
    """All that happens on a call, and its sound on our clock, to its end."""

    def __init__(self, call: PhoneCall) -> None:
        self.call = call
        self.frames: list[HeardFrame] = []
        self.events: list[CallEvent] = []
        self._tasks = [asyncio.create_task(self._hear()), asyncio.create_task(self._follow())]

    async def _hear(self) -> None:
        async for frame in self.call.audio(steady=True):
            self.frames.append(frame)

    async def _follow(self) -> None:
        async for event in self.call.events:
            self.events.append(event)

    async def over(self) -> None:
        """Return when the call is."""
        await asyncio.gather(*self._tasks)

    @property
    def keys(self) -> str:
        return "".join(each.digit for each in self.events if isinstance(each, KeyPressed))

    def sound(self, first: int = 0, last: int | None = None) -> Samples:
        """What frames ``first`` to ``last`` were, at 8 kHz, shape [n]."""
        frames = self.frames[first:last]
        return at_8k([frame.samples for frame in frames], frames[0].rate_hz)


@dataclass
class Talk:
    """Our phone, and a bad line to another one, which has joined it."""

    engine: RecordingEngine
    phone: Phone
    line: BadLine


@asynccontextmanager
async def talk(network: Network, **settings: Any) -> AsyncIterator[Talk]:
    """Our phone at the end of a bad line."""
    engine = RecordingEngine()
    async with (
        running_server(engine, host="127.0.0.1", port=0) as server,
        Phone(PhoneSettings(server_url=server.url, **settings)) as phone,
        bad_line(network.trouble, seed=network.seed) as line,
        asyncio.timeout(60),
    ):
        yield Talk(engine, phone, line)


async def until(call: PhoneCall, reports: int) -> None:
    """Go on listening until so many reports by RTCP have come."""
    async for _ in call.audio():
        if call.stats().rtcp_in >= reports:
            return


def gaps_s(sound: Samples) -> list[float]:
    """Silences of 10 ms and more between the first sound and the last, seconds."""
    loud = np.flatnonzero(np.abs(sound.astype(int)) > 200)
    return [float(length) / 8000 for length in np.diff(loud) if length >= 80]


def tones_hz(sound: Samples) -> set[int]:
    """The loudest frequency of each second between the first sound and the last, within 3 Hz."""
    loud = np.flatnonzero(np.abs(sound.astype(int)) > 200)
    whole = sound[loud[0] : loud[-1]]
    seconds = [whole[at : at + 8000] for at in range(0, len(whole) - 8000, 4000)]
    assert seconds
    peaks = [int(np.abs(np.fft.rfft(second.astype(float))).argmax()) for second in seconds]
    return {TONE_HZ if abs(peak - TONE_HZ) <= 3 else peak for peak in peaks}


def share_heard(reference: Samples, heard: Samples) -> float:
    """How much of the speech is there, at most 0.3 s from its place: a share of its pieces.

    A jitter buffer shifts what it plays, so that each piece of 0.1 s is looked for.
    """
    piece, apart = 800, 2400
    margin = np.zeros(apart, np.int16)
    whole = np.concatenate([margin, heard, np.zeros(len(reference), np.int16), margin])
    start, found = lag_of(reference, whole), []
    for at in range(0, len(reference) - piece, piece):
        want = reference[at : at + piece].astype(float)
        if (want**2).mean() < 100.0**2:
            continue
        there = whole[max(0, start + at - apart) : start + at + piece + apart].astype(float)
        power = np.maximum(np.convolve(there**2, np.ones(piece), "valid"), 1.0)
        alike = correlate(there, want, mode="valid") / np.sqrt(power * (want**2).sum())
        found.append(alike.max() > 0.7)
    assert len(found) > 10
    return float(np.mean(found))


def check_record(call: PhoneCall, network: Network, line: BadLine) -> None:
    """The call's record tells of the trouble, both ways, and of no other."""
    quality = CallRecord.of(call.facts).values["quality"]
    lowest, highest = network.loss
    assert line.passed is not None
    assert all(lowest <= each.share <= highest for each in line.passed)
    for way in ("in", "out"):
        assert lowest <= quality[way]["loss"] <= highest
        assert (quality[way]["mos"] > CLEAN_MOS) == (network is CLEAN)
    stats = call.facts.media.stats
    assert stats is not None
    assert stats.rtcp_in
    assert stats.rtcp_out
    assert (stats.malformed, stats.unknown_payload, stats.source_changes) == (0, 0, 0)


@pytest.mark.usefixtures("need_baresip")
@pytest.mark.parametrize("network", LOSSES, ids=lambda each: each.trouble.name)
async def test_baresip_calls_us_over_a_bad_network(tmp_path: Path, network: Network) -> None:
    async with (
        talk(network) as ours,
        baresip(tmp_path / "peer", speech=tone(TONE_HZ, 30.0)) as bob,
    ):
        await ours.line.join(bob.uri, ours.phone.uri)
        await bob.dial(ours.line.second_uri)
        call = await anext(ours.phone.incoming())
        await call.answer()
        listener = Listener(call)
        pressing = asyncio.create_task(bob.press("42*"))
        spoken = await call.say(SENTENCE)
        await pressing
        await call.send_dtmf("159#")
        await until(call, 2)
        frames = len(listener.frames)
        await call.hold()
        await bob.event("CALL_REMOTE_SDP", seen=1)
        await call.resume()
        await bob.event("CALL_REMOTE_SDP", seen=2)
        await bob.hangup()
        assert await call.ended() == "the other side hung up"
        await listener.over()
    assert spoken.heard == SENTENCE
    assert share_heard(reference_8k(ours.engine.pcm()), bob.recording("dec")) >= network.heard
    heard = listener.sound(0, frames)
    assert tones_hz(heard) == {TONE_HZ}
    gaps = gaps_s(heard)
    assert max(gaps, default=0.0) <= LONGEST_GAP_S
    # What is lost is concealed: most of it leaves no gap at all.
    assert ours.line.passed is not None
    assert len(gaps) <= 2 + ours.line.passed[0].lost / 4
    assert listener.keys == "42*"
    assert pressed_at(bob) == "159#"
    check_record(call, network, ours.line)


def pressed_at(bob: Baresip) -> str:
    """The keys that baresip has heard."""
    events = (event for event in bob.events if event.get("type") == "CALL_DTMF_START")
    return "".join(str(event["param"]) for event in events)


@pytest.mark.parametrize("codec", ["PCMU", "opus"])
async def test_two_of_our_phones_talk_over_a_bad_network(codec: str) -> None:
    async with (
        talk(MESS, codecs=(codec,)) as ours,
        Phone(PhoneSettings(server_url=ours.phone.settings.server_url, codecs=(codec,))) as other,
    ):
        await ours.line.join(other.uri, ours.phone.uri)
        theirs = await other.dial(ours.line.second_uri)
        call = await anext(ours.phone.incoming())
        await call.answer()
        await theirs.answered()
        listeners = Listener(call), Listener(theirs)
        spoken = [await call.say(SENTENCE)]
        count = len(ours.engine.spoken)
        spoken.append(await theirs.say(SENTENCE))
        await asyncio.gather(call.send_dtmf("159#"), theirs.send_dtmf("42*"))
        await asyncio.gather(until(call, 2), until(theirs, 2))
        await theirs.hold()
        held = call.held
        await theirs.resume()
        await theirs.hangup()
        await asyncio.gather(*(each.over() for each in listeners))
    assert held
    assert [each.heard for each in spoken] == [SENTENCE, SENTENCE]
    said = reference_8k(ours.engine.pcm(0, count)), reference_8k(ours.engine.pcm(count))
    for listener, speech in zip(listeners[::-1], said, strict=True):
        assert share_heard(speech, listener.sound()) >= MESS.heard
    assert [each.keys for each in listeners] == ["42*", "159#"]
    check_record(call, MESS, ours.line)


async def told_silent(call: PhoneCall) -> None:
    """Return when the call says that nothing comes."""
    await anext(event async for event in call.progress() if isinstance(event, MediaSilent))


@pytest.mark.usefixtures("need_baresip")
async def test_a_line_that_is_dead_for_two_seconds_goes_on(tmp_path: Path) -> None:
    async with (
        talk(CLEAN, media_silent_s=1.0, vanished_s=1.5) as ours,
        baresip(tmp_path / "peer", speech=tone(TONE_HZ, 30.0)) as bob,
    ):
        await ours.line.join(bob.uri, ours.phone.uri)
        await bob.dial(ours.line.second_uri)
        call = await anext(ours.phone.incoming())
        await call.answer()
        listener = Listener(call)
        await call.say(AGAIN)
        silent = asyncio.create_task(told_silent(call))
        await asyncio.sleep(0)
        ours.line.silence(2.0)
        await silent
        before = call.stats().received
        async for _ in call.audio():
            if call.stats().received >= before + 25:
                break
        frames, count = len(listener.frames), len(ours.engine.spoken)
        await call.say(SENTENCE)
        await call.hangup()
        await listener.over()
        await bob.event("CALL_CLOSED")
    kinds = [type(event) for event in listener.events]
    assert kinds.count(MediaSilent) == 1
    assert kinds.count(CallEnded) == 1
    assert listener.events[-1] == CallEnded(ANY, "we hung up", "local")
    assert tones_hz(listener.sound(frames)) == {TONE_HZ}
    said = reference_8k(ours.engine.pcm(count))
    assert share_heard(said, bob.recording("dec")) >= CLEAN.heard
    assert ours.line.passed is not None
    assert all(each.lost >= 50 for each in ours.line.passed)


def test_one_seed_is_one_fate() -> None:
    def times(seed: int) -> list[list[float]]:
        fate = bad_network.Fate(MESS.trouble, seed)
        return [fate.times(0.02 * number) for number in range(2000)]

    assert times(1) == times(1) != times(2)
    gone = [len(each) for each in times(1)]
    assert 60 <= gone.count(0) <= 140
    assert 5 <= gone.count(2) <= 40
    assert all(
        0.0 <= at - 0.02 * number <= 0.1 + 1e-9
        for number, each in enumerate(times(1))
        for at in each
    )
    firsts = [each[0] for each in times(1) if each]
    assert firsts != sorted(firsts), "they overtake each other"
