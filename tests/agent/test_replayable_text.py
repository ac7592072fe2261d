from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress

from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_agent.replayable_text import ReplayableText
from tests.fakes import settle


async def test_who_writes_waits_while_nobody_reads_and_nothing_is_dropped() -> None:
    words = ReplayableText(4)
    written: list[str] = []

    async def write() -> None:
        for delta in ["ab", "cd", "ef", "gh"]:
            await words.write(delta)
            written.append(delta)
        words.end()

    task = asyncio.create_task(write())
    await settle()
    assert written == ["ab"], "the second fills it"
    assert words.text == "abcd"
    assert "".join([delta async for delta in words.read_from(0)]) == "abcdefgh"
    await task


async def test_reading_begins_anew_where_the_caller_was() -> None:
    words = ReplayableText(100)
    await words.write("one two three")
    async with aclosing(words.read_from(0)) as first:
        assert await anext(first) == "one two three"
    assert words.unread == 0
    again = words.read_from(4)
    assert await anext(again) == "two three"
    reading = asyncio.ensure_future(anext(again))
    await words.write(" four")
    assert await reading == " four"
    words.end()
    assert await anext(again, None) is None


async def test_what_was_being_written_when_it_was_given_up_is_there() -> None:
    words = ReplayableText(1)
    task = asyncio.create_task(words.write("abc"))
    await settle()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert words.text == "abc"


async def test_the_end_frees_who_waits_to_write() -> None:
    words = ReplayableText(1)
    task = asyncio.create_task(words.write("abc"))
    await settle()
    words.end()
    await task


@given(st.lists(st.text(min_size=1, max_size=5), max_size=20), st.integers(1, 8))
def test_any_text_comes_out_whole_whatever_the_bound(deltas: list[str], most: int) -> None:
    async def run() -> None:
        words = ReplayableText(most)

        async def write() -> None:
            for delta in deltas:
                assert words.unread < most or not words.unread
                await words.write(delta)
            words.end()

        task = asyncio.create_task(write())
        assert "".join([delta async for delta in words.read_from(0)]) == "".join(deltas)
        await task

    asyncio.run(run())
