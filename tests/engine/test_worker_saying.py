"""What one job of a worker gives to its reader."""

from __future__ import annotations

from qwen3tts_engine.workers.messages import Sound
from qwen3tts_engine.workers.process import TOGETHER, JobOutcome, SpeechJob


async def test_the_first_sound_comes_alone_and_then_what_has_piled_up_together() -> None:
    saying = SpeechJob(1, lambda _: None)
    saying.add(Sound(1, b"\0\0"))
    saying.add(Sound(1, b"\1\0", ((0, 0),)))
    saying.add(Sound(1, b"\2\0\3\0"))
    saying.add(Sound(1, b"\4\0", ((5, 3), (7, 3))))
    saying.end(JobOutcome.SAID)
    assert await saying.next() == Sound(1, b"\0\0")
    assert await saying.next() == Sound(1, b"\1\0\2\0\3\0\4\0", ((0, 0), (5, 3), (7, 3)))
    assert await saying.next() is None


async def test_a_long_pile_is_read_in_parts() -> None:
    saying = SpeechJob(1, lambda _: None)
    for _ in range(11):
        saying.add(Sound(1, bytes(TOGETHER // 2)))
    saying.end(JobOutcome.SAID)
    sizes = []
    while (sound := await saying.next()) is not None:
        sizes.append(len(sound.pcm))
    assert sizes == [TOGETHER // 2] + [TOGETHER] * 5


async def test_a_saying_that_is_stopped_gives_nothing_more() -> None:
    told: list[SpeechJob] = []
    saying = SpeechJob(1, told.append)
    saying.add(Sound(1, b"\1\0"))
    saying.stop()
    assert await saying.next() is None
    assert told == [saying]
    assert saying.outcome is JobOutcome.STOPPED
