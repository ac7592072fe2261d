"""Sound that comes much at a time: it is encoded beside all else that the process does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from qwen3tts_codecs.g711 import PCMU
from qwen3tts_codecs.g722 import G722
from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.slot import Frame
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
