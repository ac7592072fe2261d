"""Sound that comes much at a time: it is encoded beside all else that the process does."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_codecs.frames import FrameEncoder
from qwen3tts_codecs.g711 import PCMA, PCMU
from qwen3tts_codecs.g722 import G722
from qwen3tts_codecs.opus import opus
from qwen3tts_codecs.payload import Payload
from qwen3tts_codecs.pcm import to_bytes
from qwen3tts_pacer.slot import Frame
from qwen3tts_speech.frame_writer import FrameTranscoder
from tests.fakes import settle
from tests.speech.fakes import FakeSink
from tests.speech.test_line import Line


@pytest.mark.parametrize(("payload", "most"), [(PCMU, 5), (G722, 1)])
@pytest.mark.parametrize("piece_ms", [5010, 30])
async def test_much_sound_at_once_is_encoded_a_little_at_a_time(
    piece_ms: int, payload: Payload, most: int
) -> None:
    """Packets of calls in this process leave in between: Opus takes 0.1 s for 5 s of sound."""
    line = Line()
    line.speaker.change(payload, 20)
    written: list[int] = []
    taken = FakeSink.write

    def write(frames: Sequence[Frame]) -> int:
        written.append(len(frames))
        return taken(line.sink, frames)

    line.sink.write = write  # type: ignore[method-assign]
    line.speaker.say("Good morning.")
    context = await line.context()
    context.start()
    for _ in range(0, 5010, piece_ms):
        context.sound(piece_ms)
    await settle(4)
    assert 0 < sum(written) < 100  # others have had their turns, and it is not done
    await settle(600)
    assert sum(written) >= 250
    assert max(written) <= most
    ends = [0, *(frame.end for frame in line.sink.frames)]
    assert [frame.start for frame in line.sink.frames] == ends[:-1]


OPUS = opus(111)


def wave(seconds: float = 1.0, hz: int = 24000) -> NDArray[np.int16]:
    time = np.arange(int(hz * seconds)) / hz
    return (8000 * np.sin(2 * np.pi * 440 * time)).astype(np.int16)


def frames_of(payload: Payload, ptime_ms: int = 20, context: int = 7) -> list[Frame]:
    """A second of a tone as frames of an utterance at 24 kHz."""
    encoder = FrameEncoder(24000, payload, ptime_ms)
    encoded = encoder.push(to_bytes(wave())) + encoder.flush()
    frames, position = [], 0
    for data, tail, head, samples, silent in encoded:
        frames.append(Frame(data, tail, head, context, position, position + samples, silent))
        position += samples
    return frames


def heard(frames: list[Frame], payload: Payload) -> NDArray[np.int16]:
    decoder = payload.decoder()
    return np.concatenate([decoder.decode(frame.payload) for frame in frames])


def all_of(made: FrameTranscoder) -> list[Frame]:
    frames: list[Frame] = []
    while taken := made.take(3):
        frames += taken
    assert made.left == 0
    return frames


@pytest.mark.parametrize(("old", "new"), [(PCMU, PCMA), (PCMA, PCMU)])
def test_the_two_laws_are_translated_frame_by_frame(old: Payload, new: Payload) -> None:
    frames = frames_of(old)
    made = all_of(FrameTranscoder(frames, old, new, 20, 20))
    assert len(made) == len(frames)
    for before, after in zip(frames, made, strict=True):
        assert after.payload == new.encode(old.decode(before.payload))
        assert after.tail == new.encode(old.decode(before.tail or b""))
        assert (after.start, after.end, after.silent) == (before.start, before.end, before.silent)


@pytest.mark.parametrize(
    ("old", "new"),
    [(PCMU, G722), (G722, PCMA), (PCMU, OPUS), (OPUS, PCMU), (G722, OPUS), (OPUS, G722)],
    ids=lambda payload: payload.name,
)
def test_every_frame_is_there_once_at_its_place(old: Payload, new: Payload) -> None:
    frames = frames_of(old)
    made = all_of(FrameTranscoder(frames[10:], old, new, 20, 20, before=frames[9]))
    assert [(frame.start, frame.end) for frame in made] == [
        (frame.start, frame.end) for frame in frames[10:]
    ]
    assert {frame.context for frame in made} == {7}
    one, two = heard(frames[10:], old), heard(made, new)
    # The same tone at the same loudness through the middle, whatever the codecs' delays.
    for samples in (one, two):
        middle = samples[len(samples) // 4 : -len(samples) // 4].astype(float)
        assert np.sqrt((middle**2).mean()) == pytest.approx(8000 / np.sqrt(2), rel=0.1)


@pytest.mark.parametrize(("old_ms", "new_ms"), [(30, 20), (20, 40), (60, 20), (50, 20)])
def test_another_packet_time_makes_other_frames_of_the_same_sound(old_ms: int, new_ms: int) -> None:
    frames = frames_of(PCMU, old_ms)
    made = all_of(FrameTranscoder(frames, PCMU, OPUS, old_ms, new_ms))
    assert len(made) == -(-len(frames) * old_ms // new_ms)
    assert (made[0].start, made[-1].end) == (frames[0].start, frames[-1].end)
    assert all(one.end == two.start for one, two in pairwise(made))


def test_a_few_frames_are_made_at_a_time() -> None:
    made = FrameTranscoder(frames_of(PCMU), PCMU, OPUS, 20, 20)
    total = made.left
    assert len(made.take()) == 8
    assert made.left == total - 8


def test_nothing_is_made_of_nothing() -> None:
    made = FrameTranscoder([], PCMU, OPUS, 20, 20)
    assert made.left == 0
    assert made.take() == []


def test_the_sound_goes_on_from_the_frame_before_without_a_step() -> None:
    frames = frames_of(PCMU)
    made = all_of(FrameTranscoder(frames[10:], PCMU, PCMA, 20, 20, before=frames[9]))
    joined = np.concatenate([PCMU.decode(frames[9].payload), PCMA.decode(made[0].payload)])
    steps = np.abs(np.diff(joined.astype(int)))
    assert steps[159] <= 1.3 * steps[:150].max()
