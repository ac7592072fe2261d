"""A microphone in a call: live sound has the line, gives way, and is never late for long."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_codecs.g711 import PCMU
from qwen3tts_codecs.l16 import l16
from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.slot import Slot
from qwen3tts_speech.line import Speaker
from qwen3tts_speech.link import SpeechLink
from qwen3tts_speech.sink import PacerSink
from qwen3tts_speech.sound import AHEAD_S, BOUND_S, LiveSound
from tests.fakes import FakeClock, settle
from tests.speech.test_line import Line, writes

RATE_HZ = 8000
FRAME = 160
PTIME_S = 0.02
L16 = l16(RATE_HZ, 96)


def voice(count: int, first: int = 0) -> NDArray[np.int16]:
    """Frames of which each says its number: samples, shape [count, FRAME]."""
    numbers = np.arange(first, first + count) * 10 + 3000
    return np.repeat(numbers[:, None], FRAME, axis=1).astype(np.int16)


class Paced:
    """A speaker with a real pacer; what goes out each 20 ms, as numbers of frames (None = not of
    the voice)."""

    def __init__(self, payload: Payload = L16, **sink: Any) -> None:
        self.clock = FakeClock()
        self.out: list[tuple[float, int | None]] = []
        self.sink = PacerSink(
            self._write,
            silence=payload.silent_frame(20),
            lead_ms=0,
            clock=self.clock,
            continuous=True,
            **sink,
        )
        self.speaker = Speaker(SpeechLink("ws://test"), self.sink, payload, clock=self.clock)

    async def _write(self, payload: bytes, slot: Slot) -> bool | None:
        samples = L16.decode(payload)
        number = (int(samples[FRAME // 2]) - 3000) / 10
        self.out.append((slot.deadline, round(number) if number >= 0 else None))
        return None

    @property
    def numbers(self) -> list[int]:
        return [number for _, number in self.out if number is not None]

    async def live(self, sound: LiveSound, count: int, first: int = 0) -> None:
        """So many frames, one each 20 ms."""
        for frame in voice(count, first):
            await sound.push(frame, RATE_HZ)
            await self.clock.advance(PTIME_S)

    def delay_s(self, number: int) -> float:
        """When that frame went out, after it was pushed as the frame of that number since the
        clock's beginning."""
        at = next(at for at, each in self.out if each == number)
        return at - 100.0 - number * PTIME_S


async def test_live_sound_goes_out_whole_and_in_order_soon_after_it_came() -> None:
    paced = Paced()
    sound = paced.speaker.live()
    await paced.live(sound, 100)
    sound.close()
    await paced.clock.advance(0.3)
    assert paced.numbers == list(range(100))
    assert all(paced.delay_s(number) <= 0.1 for number in range(100))
    assert (sound.dropped_s, sound.spells) == (0.0, 1)
    assert not paced.speaker.speaking
    await paced.speaker.close()
    await paced.sink.close()


async def test_a_stall_is_made_up_for_by_dropping_the_oldest() -> None:
    paced = Paced()
    sound = paced.speaker.live()
    await paced.live(sound, 20)
    await paced.clock.advance(2.0)  # the source was stalled, and has it all in one batch
    for frame in voice(100, first=20):
        await sound.push(frame, RATE_HZ)
        assert sound.delay_s <= BOUND_S
    await paced.live(sound, 50, first=120)
    sound.close()
    await paced.clock.advance(0.5)
    numbers = paced.numbers
    assert numbers == sorted(numbers)
    assert numbers[:20] == list(range(20))
    assert numbers[-40:] == list(range(130, 170)), "to the last that came"
    assert paced.delay_s(169) <= BOUND_S
    assert sound.dropped_s == pytest.approx(100 * PTIME_S, abs=BOUND_S)
    await paced.sink.close()


async def test_a_small_delay_is_made_up_for_in_the_next_pause() -> None:
    paced = Paced()
    sound = paced.speaker.live()
    await paced.live(sound, 20)
    for frame in voice(5, first=20):  # a burst of a tenth of a second
        await sound.push(frame, RATE_HZ)
    await paced.live(sound, 20, first=25)
    late_s = sound.delay_s
    for _ in range(20):
        await sound.push(np.zeros(FRAME, np.int16), RATE_HZ)
        await paced.clock.advance(PTIME_S)
    assert sound.delay_s < late_s - 2 * PTIME_S
    assert sound.left_out_s > 0
    assert sound.dropped_s == 0
    assert paced.numbers[:40] == list(range(40))
    sound.close()
    await paced.sink.close()


async def test_a_slow_source_is_no_reason_for_a_long_silence() -> None:
    paced = Paced()
    sound = paced.speaker.live()
    for frame in voice(60):  # as from a page that lacks time
        await sound.push(frame, RATE_HZ)
        await paced.clock.advance(0.05)
    await paced.live(sound, 150, first=60)
    sound.close()
    await paced.clock.advance(0.3)
    heard = [at for at, number in paced.out if number is not None]
    holes = [later - earlier - PTIME_S for earlier, later in pairwise(heard)]
    assert sum(hole > 0.5 * PTIME_S for hole in holes) > 3, "it underran"
    assert max(holes) <= 0.05 + 2 * AHEAD_S
    assert len([number for number in paced.numbers if number >= 60]) > 140
    await paced.sink.close()


async def test_an_interruption_does_not_end_live_sound() -> None:
    paced = Paced()
    sound = paced.speaker.live()
    await paced.live(sound, 20)
    assert paced.speaker.interrupt() == []
    await paced.live(sound, 20, first=20)
    assert paced.numbers == list(range(len(paced.numbers))), "alone on the line it is let be"
    waits = paced.speaker.say(writes("Not now."))
    assert paced.speaker.interrupt() == [waits]
    await paced.live(sound, 20, first=40)
    sound.close()
    await paced.clock.advance(0.3)
    assert paced.numbers[-20:] == list(range(40, 60))
    assert sound.spells == 2
    await paced.sink.close()


async def test_what_is_said_goes_first_and_live_sound_goes_on_when_it_has_been_heard() -> None:
    line = Line()
    sound = line.speaker.live()
    for frame in voice(3):
        await sound.push(frame, RATE_HZ)
    utterance = line.speaker.say(writes("Good morning."))
    context = await line.context()
    context.start()
    await sound.push(voice(1)[0], RATE_HZ)
    assert [sound.on_the_line] == [True], "words without audio yet take no turn"
    context.sound(100)
    await settle(20)
    assert [sound.on_the_line] == [False]
    for frame in voice(5):
        await sound.push(frame, RATE_HZ)
    context.done()
    await settle(20)
    contexts = [frame.context for frame in line.sink.frames]
    assert contexts == sorted(contexts)
    assert set(contexts) == {1, utterance.number}
    assert sound.dropped_s == pytest.approx(5 * PTIME_S)
    await line.sink.play_all()
    await utterance.spoken()
    await sound.push(voice(1)[0], RATE_HZ)
    assert line.sink.frames[-1].context == utterance.number + 1
    sound.close()
    await line.sink.play_all()
    await line.speaker.close()


async def test_sound_that_does_not_give_way_is_waited_for() -> None:
    line = Line()
    sound = line.speaker.live(gives_way=False)
    await sound.push(voice(1)[0], RATE_HZ)
    utterance = line.speaker.say(writes("Good morning."))
    context = await line.context()
    context.start()
    context.sound(100)
    context.done()
    await settle(20)
    await sound.push(voice(1)[0], RATE_HZ)
    assert {frame.context for frame in line.sink.frames} == {1}
    sound.close()
    await settle(20)
    assert {frame.context for frame in line.sink.frames} == {1, utterance.number}
    await line.sink.play_all()
    assert (await utterance.spoken()).position == 2400
    await line.speaker.close()


async def test_a_line_that_does_not_play_is_not_filled() -> None:
    line = Line()
    sound = line.speaker.live()
    for frame in voice(500):
        await sound.push(frame, RATE_HZ)
    assert len(line.sink.frames) * PTIME_S <= AHEAD_S + 2 * PTIME_S
    assert sound.delay_s <= BOUND_S
    sound.close()
    await line.sink.play_all()
    await line.speaker.close()


async def test_live_sound_goes_on_in_another_codec_and_at_another_rate() -> None:
    line = Line()
    sound = line.speaker.live()
    for frame in voice(5):
        await sound.push(frame, RATE_HZ)
    await line.sink.play_all()
    line.speaker.change(L16, 20)
    for frame in voice(3):
        await sound.push(frame, RATE_HZ)
    await line.sink.play_all()
    assert {len(frame.payload) for frame in line.sink.frames} == {160, 320}
    before = len(line.sink.frames)
    for _ in range(3):
        await sound.push(np.full(960, 3000, np.int16), 48_000)
    assert len(line.sink.frames) == before + 3
    assert sound.spells == 1
    sound.close()
    await line.sink.play_all()
    await line.speaker.close()


async def test_its_frames_are_known_again_when_they_go_out() -> None:
    line = Line()
    sound = line.speaker.live()
    await sound.push(voice(1)[0], RATE_HZ)
    (frame,) = line.sink.frames
    assert sound.made(frame.payload)
    assert not sound.made(PCMU.encode(voice(1, 7)[0]))
    sound.close()
    await line.sink.play_all()
    await line.speaker.close()


async def test_after_the_calls_end_nothing_is_put_in_and_nothing_is_left() -> None:
    line = Line()
    sound = line.speaker.live()
    await sound.push(voice(1)[0], RATE_HZ)
    await line.speaker.close()
    before = len(line.sink.frames)
    await sound.push(voice(1)[0], RATE_HZ)
    sound.close()
    sound.close()
    await sound.push(voice(1)[0], RATE_HZ)
    assert len(line.sink.frames) == before
    await settle()
    assert not [task for task in asyncio.all_tasks() if "live sound" in task.get_name()]


@pytest.mark.parametrize("gives_way", [True, False])
async def test_two_who_talk_take_turns(gives_way: bool) -> None:
    paced = Paced()
    one = paced.speaker.live(gives_way=gives_way)
    other = paced.speaker.live(gives_way=gives_way)
    for number in range(10):
        await one.push(voice(1, number)[0], RATE_HZ)
        await other.push(voice(1, 500)[0], RATE_HZ)
        await paced.clock.advance(PTIME_S)
    assert (one.on_the_line, other.on_the_line) == (True, False)
    one.close()
    await paced.live(other, 10, first=10)
    other.close()
    await paced.clock.advance(0.3)
    assert paced.numbers == list(range(20))
    await paced.speaker.close()
    await paced.sink.close()


async def test_sound_that_does_not_give_way_waits_for_what_is_being_said() -> None:
    paced = Paced()
    played = paced.speaker.play(np.full(10 * FRAME, 3000 + 777 * 10, np.int16), RATE_HZ)
    await paced.clock.advance(PTIME_S)
    sound = paced.speaker.live(gives_way=False)
    await paced.live(sound, 30)
    sound.close()
    await paced.clock.advance(0.3)
    assert await played.played()
    assert paced.numbers[:10] == [777] * 10
    assert paced.numbers[10:] == list(range(30))[-len(paced.numbers[10:]) :]
    assert len(paced.numbers) > 20
    await paced.sink.close()
