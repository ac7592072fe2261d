"""PCM of any rate into the AudioPacer, encoded frames out."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from qwen3tts_codecs import BadSamples, FrameEncoder, Pcm, UnknownPayload, UnsupportedRate, to_bytes
from qwen3tts_codecs.table import payload_by_name
from qwen3tts_pacer import AudioPacer, Kind, Outcome, PacerClosed, PacerError, PacerFull, Slot
from qwen3tts_pacer.utterance_encoder import UtteranceEncoder
from tests.fakes import FakeClock, settle

PAGE = Path(__file__).parents[2] / "docs/pacer.md"


def tone(rate_hz: int, seconds: float) -> Pcm:
    wave = 8000 * np.sin(2 * np.pi * 440 * np.arange(int(rate_hz * seconds)) / rate_hz)
    return wave.astype(np.int16)


def speech(slots: list[Slot]) -> list[bytes]:
    return [slot.frame.payload for slot in slots if slot.frame is not None]


@pytest.mark.parametrize("rate_hz", [8000, 16_000, 22_050, 24_000, 44_100, 48_000])
@pytest.mark.parametrize("codec", ["PCMU", "pcma", "L16", "G722", "opus"])
async def test_pcm_of_any_rate_leaves_as_the_frames_of_a_codec_on_the_grid(
    rate_hz: int, codec: str
) -> None:
    clock, slots = FakeClock(), list[tuple[float, Slot]]()
    pcm = tone(rate_hz, 0.25)

    def sink(payload: bytes, slot: Slot) -> None:
        slots.append((clock.now(), slot))

    async with AudioPacer(sink, clock=clock, codec=codec, rate_hz=rate_hz) as pacer:
        await pacer.send_pcm(pcm[:1001])
        pacer.push_pcm(to_bytes(pcm[1001:]))
        pacer.finish()
        await clock.advance(1.0)
        assert await pacer.drained() is Outcome.PLAYED
        assert pacer.position() == len(pcm)
    encoder = FrameEncoder(rate_hz, payload_by_name(codec))
    expected = encoder.push(to_bytes(pcm)) + encoder.flush()
    assert speech([slot for _, slot in slots]) == [frame.payload for frame in expected]
    assert [round(at - 100.0, 6) for at, _ in slots] == [
        round(n * 0.02, 6) for n in range(len(slots))
    ]


async def test_without_a_sink_slots_are_pulled_until_the_pacer_closes() -> None:
    clock = FakeClock()
    async with AudioPacer(clock=clock) as pacer:
        pacer.push_pcm(tone(24_000, 0.1))
        pacer.finish()
        first = await pacer.next_slot()
        assert (first.kind, first.deadline) == (Kind.SPEECH, 100.0)
        pulled = [first]

        async def pull() -> None:
            async for slot in pacer:
                pulled.append(slot)

        task = asyncio.create_task(pull())
        await clock.advance(0.5)
        await pacer.close()
        await settle()
        assert task.done()
        assert [slot.deadline for slot in pulled] == pytest.approx(
            [100.0 + n * 0.02 for n in range(26)]
        )
        assert len(speech(pulled)) == 6
        with pytest.raises(PacerClosed):
            await pacer.next_slot()


async def test_a_loop_with_a_clock_of_its_own_asks_for_what_is_due() -> None:
    clock = FakeClock()
    pacer = AudioPacer(clock=clock)
    pacer.start()
    assert pacer.due() is not None
    assert pacer.due() is None
    clock.jump(0.02)
    assert pacer.due() is not None


async def test_slots_of_a_sink_are_not_pulled() -> None:
    async with AudioPacer(lambda payload, slot: None, clock=FakeClock()) as pacer:
        with pytest.raises(PacerError, match="sink"):
            await pacer.next_slot()


async def test_pcm_of_an_interrupted_utterance_is_dropped_until_the_next_begins() -> None:
    clock, sent = FakeClock(), list[Slot]()
    async with AudioPacer(lambda payload, slot: sent.append(slot), clock=clock) as pacer:
        pacer.push_pcm(tone(24_000, 1.0))
        await clock.advance(0.3)
        played = pacer.position()
        dropped = pacer.interrupt()
        assert 0 < played < 24_000 * 0.3
        assert dropped.contexts[0].played >= played
        assert pacer.push_pcm(tone(24_000, 0.1)) == 0
        assert pacer.dropped_pcm == 2400
        await clock.advance(0.5)
        before = len(speech(sent))
        pacer.begin()
        pacer.push_pcm(tone(24_000, 0.1))
        pacer.finish()
        await clock.advance(0.5)
        assert await pacer.drained() is Outcome.PLAYED
        assert await pacer.drained(0) is Outcome.INTERRUPTED
        assert len(speech(sent)) == before + 6
        assert pacer.position() == 2400


async def test_utterances_follow_each_other_by_themselves() -> None:
    clock, sent = FakeClock(), list[Slot]()
    async with AudioPacer(lambda payload, slot: sent.append(slot), clock=clock) as pacer:
        for _ in range(2):
            pacer.push_pcm(tone(24_000, 0.04))
            pacer.finish()
            pacer.finish()  # harmless
        third = pacer.begin()
        pacer.push_pcm(tone(24_000, 0.04))
        assert pacer.begin() == third + 1  # ends the one before: its last samples play
        await clock.advance(1.0)
        assert [slot.frame.context for slot in sent if slot.frame] == [
            *[0] * 3, *[1] * 3, *[2] * 3,
        ]  # fmt: skip


async def test_a_full_buffer_takes_nothing_and_send_waits_for_room() -> None:
    clock = FakeClock()
    async with AudioPacer(lambda payload, slot: None, clock=clock) as pacer:
        with pytest.raises(PacerFull, match="wait for room"):
            pacer.push_pcm(np.zeros(24_000 * 61, np.int16))
        assert pacer.core.queued == 0

        task = asyncio.create_task(pacer.send_pcm(np.zeros(24_000 * 62, np.int16)))
        await settle(3000)
        assert not task.done()
        await clock.advance(5.0)
        await task
        assert pacer.core.queued > 2500


def test_what_cannot_be_paced_is_refused() -> None:
    with pytest.raises(UnknownPayload, match="G729"):
        AudioPacer(codec="G729")
    with pytest.raises(UnsupportedRate, match="rate_hz"):
        AudioPacer(rate_hz=100)
    with pytest.raises(BadSamples):
        AudioPacer(clock=FakeClock()).push_pcm(np.zeros(3, np.float32))


def test_the_code_of_the_page_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 14
    path = [str(PAGE.parents[1] / folder) for folder in ("codecs", "pacer")]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path}\n{code}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    frames, size, played = map(int, re.findall(r"\d+", done.stdout))
    assert (size, played) == (160, 12_000)
    assert 26 <= frames <= 60


def test_an_encoder_of_utterances_places_their_frames_also_across_a_change_of_the_format() -> None:
    encoder = UtteranceEncoder(24_000, payload_by_name("PCMU"), 20, 3)
    pcm = b"\x10\x00" * 2400
    frames = encoder.push(pcm)
    at = 2 * encoder.position
    encoder.resume(payload_by_name("PCMA"), 10, encoder.position, pcm[:at])
    frames += encoder.push(pcm[at:] + pcm) + encoder.flush()
    assert {frame.context for frame in frames} == {3}
    assert frames[0].start == 0
    assert all(before.end == frame.start for before, frame in pairwise(frames))
    assert frames[-1].end == encoder.position == 4800
    assert {len(frame.payload) for frame in frames} == {160, 80}
    encoder.begin(4)
    encoder.push(pcm[:200])
    encoder.reset()
    first, *_ = encoder.push(pcm)
    assert (first.context, first.start) == (4, 0)
