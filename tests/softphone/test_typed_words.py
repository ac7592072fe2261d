from __future__ import annotations

import asyncio

import pytest

from qwen3tts_phone.softphone.page_speech import TypedText
from qwen3tts_wire.errors import BadRequest, LimitExceeded
from tests.fakes import settle


async def all_of(words: TypedText) -> list[str]:
    return [text async for text in words]


async def test_words_come_as_they_are_typed_and_end_when_told() -> None:
    words = TypedText(1, 100)
    reading = asyncio.create_task(all_of(words))
    words.put("Good ")
    await settle()
    words.put("morn")
    words.put("ing.")
    await settle()
    assert not reading.done()
    words.end()
    words.end()
    assert await reading == ["Good ", "morning."]


async def test_what_was_typed_before_anybody_reads_is_not_lost() -> None:
    words = TypedText(1, 100)
    words.put("Good ")
    words.put("morning.")
    words.end()
    assert await all_of(words) == ["Good morning."]


def test_too_much_is_refused_and_nothing_of_it_taken() -> None:
    words = TypedText(1, 10)
    words.put("12345678")
    with pytest.raises(LimitExceeded, match="at most 10"):
        words.put("901")
    words.put("90")
    assert words.take() == "1234567890"


def test_what_has_ended_takes_no_more() -> None:
    words = TypedText(1, 10)
    words.end()
    with pytest.raises(BadRequest):
        words.put("a")
