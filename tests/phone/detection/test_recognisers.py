"""Recognisers that calls ask for by name or function are made once, and end with their phone."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_agent.recognition.callback import CallbackRecogniser
from qwen3tts_phone.detection.recogniser import RecogniserPool, RecognitionFailed
from qwen3tts_wire.errors import BadRequest


async def words(samples: NDArray[np.int16], rate_hz: int) -> str:
    return "some words"


async def test_what_is_given_twice_is_made_once() -> None:
    shared = RecogniserPool()
    assert shared.chosen(words) is shared.chosen(words)
    name = "ws://127.0.0.1:1/listen"
    assert shared.chosen(name) is shared.chosen(name)
    assert shared.chosen(None) is None
    await shared.close()


async def test_a_recogniser_of_the_program_is_taken_as_it_is_and_stays_open() -> None:
    shared, own = RecogniserPool(), CallbackRecogniser(words)
    assert shared.chosen(own) is own
    await shared.close()
    await (await own.open()).close()
    await own.close()


async def test_what_was_made_ends_with_the_phone() -> None:
    shared = RecogniserPool()
    made = shared.chosen(words)
    assert made is not None
    await shared.close()
    with pytest.raises(RecognitionFailed):
        await made.open()


@pytest.mark.parametrize("wrong", ["wisper", 7])
def test_what_is_no_recogniser_is_refused(wrong: object) -> None:
    with pytest.raises(BadRequest):
        RecogniserPool().chosen(wrong)  # type: ignore[arg-type]
