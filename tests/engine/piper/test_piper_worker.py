"""The worker of the natural voice, in this process."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from qwen3tts_engine.piper.voice import FIRST_S, MOST_S
from qwen3tts_engine.piper.voice_files import VoiceFiles
from qwen3tts_engine.piper.worker import serve
from qwen3tts_engine.workers.messages import (
    Decoder,
    Go,
    Message,
    Missing,
    Paused,
    Ready,
    Say,
    Sound,
    Stop,
    encoded,
)
from tests.engine.piper.tiny_vits import LOW, write_voice

LONG = "many words that go on and on, " * 9


def answers(files: VoiceFiles, *orders: Say | Go | Stop) -> tuple[int, list[Message]]:
    """What the worker answers to these and the end of its input."""
    given, give = os.pipe()
    take, out = os.pipe()
    os.write(give, b"".join(encoded(order) for order in orders))
    os.close(give)
    said = bytearray()

    def read() -> None:
        while data := os.read(take, 1 << 16):
            said.extend(data)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        status = serve([files], given, out)
    finally:
        os.close(out)
        reader.join()
        os.close(given)
        os.close(take)
    return status, Decoder().push(bytes(said))


def say(job: int, text: str = LONG) -> Say:
    return Say(job, text, {"voice": "en_US-tiny-low"})


def chunks(messages: list[Message], job: int) -> list[float]:
    """Seconds of each chunk of a job."""
    return [
        len(each.pcm) / 2 / LOW.rate
        for each in messages
        if isinstance(each, Sound) and each.job == job and each.pcm
    ]


def test_a_turn_is_one_chunk_of_the_size_that_the_voice_sets(tmp_path: Path) -> None:
    _, messages = answers(write_voice(tmp_path), say(1), *[Go(1)] * 4)
    assert [each for each in messages if not isinstance(each, Sound | Ready)] == [Paused(1)] * 5
    first, *more = chunks(messages, 1)
    assert len(more) == 4
    hop_s = LOW.hop / LOW.rate
    wanted = [min(FIRST_S * 2**number, MOST_S) for number in range(5)]
    for seconds, expected in zip([first, *more], wanted, strict=True):
        assert abs(seconds - expected) <= hop_s


def test_a_stopped_clause_frees_its_worker_within_the_chunk_under_way(tmp_path: Path) -> None:
    """Each clause is stopped while its turn is under way; the next one follows its one chunk."""
    orders = [order for job in range(1, 6) for order in (say(job), Stop(job))]
    status, messages = answers(write_voice(tmp_path), *orders, say(6, "Fine."))
    assert status == 0
    assert [len(chunks(messages, job)) for job in range(1, 6)] == [1] * 5
    assert chunks(messages, 6)


def test_a_voice_that_cannot_be_loaded_is_told_with_its_remedy(tmp_path: Path) -> None:
    status, (missing,) = answers(write_voice(tmp_path, phoneme_type="pinyin"))
    assert status == 1
    assert isinstance(missing, Missing)
    assert missing.reason.startswith("Voice en_US-tiny-low: ")
    assert missing.remedy.startswith("Take the .onnx.json")
