"""A sound that is played as it is is converted in pieces; in between others have their turn."""

from __future__ import annotations

import asyncio

import numpy as np

from qwen3tts_speech.sound import BLOCK_S
from tests.fakes import settle
from tests.speech.test_line import Line

RATE_HZ = 24_000
PTIME_S = 0.02


def noise(seconds: float) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    drawn = np.random.default_rng(1).normal(0, 3000, int(seconds * RATE_HZ))
    return drawn.astype(np.int16)


async def test_a_long_sound_lets_others_in_between_its_pieces() -> None:
    line = Line()
    most = 0

    async def watch() -> None:
        nonlocal most
        before = 0
        while True:
            await asyncio.sleep(0)
            now = len(line.sink.frames)
            most, before = max(most, now - before), now

    watching = asyncio.create_task(watch())
    sound = line.speaker.play(noise(20.0), RATE_HZ)
    await asyncio.wait_for(sound.written.wait(), 30)
    watching.cancel()
    assert len(line.sink.frames) * PTIME_S >= 20.0
    assert 0 < most * PTIME_S <= BLOCK_S + 2 * PTIME_S
    await line.sink.play_all()
    assert await sound.played()


async def test_its_pieces_are_the_sound_without_a_seam() -> None:
    samples = noise(1.0)
    line, whole = Line(), Line()
    sound = line.speaker.play(samples, RATE_HZ)
    await sound.written.wait()
    # The same in one piece.
    at_once = whole.speaker.play(samples, RATE_HZ)
    at_once._block = len(samples)
    await at_once.written.wait()
    frames, others = line.sink.frames, whole.sink.frames
    assert [each.payload for each in frames] == [each.payload for each in others]
    assert [each.end for each in frames] == [each.end for each in others]
    assert frames[-1].end == len(samples)


async def test_a_sound_that_is_stopped_between_two_pieces_is_converted_no_further() -> None:
    line = Line()
    sound = line.speaker.play(noise(20.0), RATE_HZ)
    await settle(5)
    begun = len(line.sink.frames)
    assert 0 < begun * PTIME_S < 2.0
    line.speaker.interrupt()
    assert not await sound.played()
    assert len(line.sink.frames) <= begun
    assert not line.speaker.speaking


async def test_a_sound_that_is_stopped_before_its_first_step_is_over() -> None:
    line = Line()
    sound = line.speaker.play(noise(1.0), RATE_HZ)
    line.speaker.interrupt()
    assert not await sound.played()
    assert not line.speaker.speaking
    assert sound.written.is_set(), "whatever is said next has its turn"
    assert line.sink.frames == []
