from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from qwen3tts_agent.recognition.callback import MOST_TEXT, CallbackRecogniser
from qwen3tts_phone.detection.recogniser import (
    Recogniser,
    RecogniserBusy,
    RecognitionFailed,
    RecognitionTimeout,
    Samples,
    Transcript,
)
from tests.agent.recognition.sounds import RATE, Talk, tone
from tests.fakes import settle


async def text_of(recogniser: Recogniser, **turn: Any) -> Transcript:
    await recogniser.warm()
    recognition = await recogniser.open()
    try:
        return await recognition.end_turn(Talk(recognition).turn(tone(1.0), **turn))
    finally:
        await recognition.close()
        await recogniser.close()


async def test_an_async_function_is_given_the_turn() -> None:
    async def ask(samples: Samples, rate_hz: int) -> str:
        return f" {len(samples) / rate_hz:.0f} s of {samples.dtype} "

    assert (await text_of(CallbackRecogniser(ask, early=True))).text == "2 s of int16"


async def test_any_other_function_runs_in_a_thread() -> None:
    def ask(samples: Samples, rate_hz: int) -> Transcript:
        assert threading.current_thread() is not threading.main_thread()
        return Transcript("hello", "en", 0.5)

    assert await text_of(CallbackRecogniser(ask)) == Transcript("hello", "en", 0.5)


async def test_a_function_that_hangs_keeps_neither_others_nor_the_program_waiting() -> None:
    free, threads = threading.Event(), list[threading.Thread]()

    def ask(samples: Samples, rate_hz: int) -> str:
        threads.append(threading.current_thread())
        free.wait(20)
        return "late"

    recogniser = CallbackRecogniser(ask, timeout_s=0.01, at_once=1, waiting=1)
    recognition = await recogniser.open()
    talk = Talk(recognition)
    for _ in range(2):
        with pytest.raises(RecognitionTimeout):
            await recognition.end_turn(talk.turn(tone(0.5)))
    with pytest.raises(RecogniserBusy, match="2 calls of the recogniser's function have not ended"):
        await recognition.end_turn(talk.turn(tone(0.5)))
    assert all(thread.daemon for thread in threads)
    free.set()
    await recogniser.close()


async def test_an_object_that_can_be_called_is_a_function_too() -> None:
    class Ask:
        async def __call__(self, samples: Samples, rate_hz: int) -> str:
            assert threading.current_thread() is threading.main_thread()
            return "object"

    assert (await text_of(CallbackRecogniser(Ask()))).text == "object"
    assert (await text_of(CallbackRecogniser(lambda *given: Ask()(*given)))).text == "object"


async def test_what_it_raises_costs_the_turn_and_shows_no_words() -> None:
    async def ask(samples: Samples, rate_hz: int) -> str:
        raise RuntimeError("my card number is 1234")

    with pytest.raises(RecognitionFailed, match="RuntimeError") as caught:
        await text_of(CallbackRecogniser(ask))
    assert "1234" not in str(caught.value)
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize("answer", [None, 7, b"words", ["words"]])
async def test_an_answer_that_is_no_text(answer: Any) -> None:
    async def ask(samples: Samples, rate_hz: int) -> Any:
        return answer

    with pytest.raises(RecognitionFailed, match="which is not text") as caught:
        await text_of(CallbackRecogniser(ask))
    assert "string" in caught.value.remedy


async def test_a_text_without_end_is_cut() -> None:
    async def ask(samples: Samples, rate_hz: int) -> str:
        return "a" * (MOST_TEXT + 1)

    assert len((await text_of(CallbackRecogniser(ask))).text) == MOST_TEXT


async def test_a_function_that_does_not_answer() -> None:
    async def ask(samples: Samples, rate_hz: int) -> str:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    with pytest.raises(RecognitionTimeout):
        await text_of(CallbackRecogniser(ask, timeout_s=0.01))


async def test_more_than_may_wait_is_refused() -> None:
    answers: list[asyncio.Future[str]] = []

    async def ask(samples: Samples, rate_hz: int) -> str:
        answers.append(asyncio.get_running_loop().create_future())
        return await answers[-1]

    recogniser = CallbackRecogniser(ask, at_once=1, waiting=1)
    texts = []
    for _ in range(3):
        recognition = await recogniser.open()
        texts.append(asyncio.ensure_future(recognition.end_turn(Talk(recognition).turn(tone(0.5)))))
    await settle()
    assert len(answers) == 1
    with pytest.raises(RecogniserBusy, match="2 turns"):
        await texts[2]
    answers[0].set_result("one")
    await texts[0]
    await settle()
    answers[1].set_result("two")
    assert (await texts[1]).text == "two"
    await recogniser.close()


async def test_a_pause_asks_only_where_that_was_asked_for() -> None:
    asked = 0

    async def ask(samples: Samples, rate_hz: int) -> str:
        nonlocal asked
        asked += 1
        return "text"

    for early in (False, True):
        recognition = await CallbackRecogniser(ask, early=early).open()
        recognition.pause(Talk(recognition).turn(tone(0.5)))
        await settle()
        assert asked == early


async def test_closing_ends_open_calls() -> None:
    async def ask(samples: Samples, rate_hz: int) -> str:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    recogniser = CallbackRecogniser(ask)
    recognition = await recogniser.open()
    text = asyncio.ensure_future(recognition.end_turn(Talk(recognition).turn(tone(0.5))))
    await settle()
    await recogniser.close()
    with pytest.raises(RecognitionFailed, match="over before"):
        await text
    with pytest.raises(RecognitionFailed, match="is closed"):
        await recogniser.open()


@pytest.mark.parametrize(
    "wrong", [{"rate_hz": 3999}, {"timeout_s": 0.0}, {"at_once": 0}, {"waiting": -1}]
)
def test_numbers_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        CallbackRecogniser(lambda samples, rate_hz: "", **wrong)


def test_it_is_told_which_rate_is_wanted() -> None:
    recogniser: Recogniser = CallbackRecogniser(lambda samples, rate_hz: "", rate_hz=8000)
    assert recogniser.rate_hz == 8000
    assert CallbackRecogniser(lambda samples, rate_hz: "").rate_hz == RATE
