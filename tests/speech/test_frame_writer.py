"""Sound that comes much at a time: it is encoded beside all else that the process does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from qwen3tts_codecs.g711 import PCMU
from qwen3tts_codecs.g722 import G722
from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.slot import Frame
from qwen3tts_speech.frame_writer import PcmQueue
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


def test_pcm_is_taken_once_and_again_from_a_position_that_is_kept() -> None:
    queue = PcmQueue(keeps=True)
    data = bytes(range(200))
    queue.push(data[:33])  # cut within a sample
    queue.push(data[33:100])
    assert queue.take(60) + queue.take(60) == data[:100]
    assert queue.take(60) == b""
    queue.push(data[100:])
    assert queue.end == 100
    queue.forget(30)
    queue.forget(20)
    assert queue.kept == 70
    assert queue.rewind(40, past=5) == data[70:80]
    assert queue.take(500) == data[80:]
    assert queue.rewind(31, past=5) == data[60:62]
    queue.forget(1000)
    assert queue.kept == 100 - 31, "what is not taken is not forgotten"


def test_pcm_that_is_not_kept_leaves_with_the_frame() -> None:
    queue = PcmQueue(keeps=False)
    queue.push(bytes(100))
    assert len(queue.take(60)) == 60
    assert queue.kept == 20


async def test_of_a_long_utterance_no_more_is_kept_than_waits_and_two_seconds() -> None:
    line = Line()
    utterance = line.speaker.say("A long one.")
    context = await line.context()
    context.start()
    most = 0
    for _ in range(300):
        context.sound(80)
        await settle(3)
        await line.sink.play_all()
        most = max(most, utterance._writer._pcm.kept)
    assert most <= 2 * 24_000 + 2 * 1920
    assert line.sink.position(1) > 20 * 24_000
    line.speaker.interrupt()
    await settle(20)
