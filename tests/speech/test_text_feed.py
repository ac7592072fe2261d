from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from qwen3tts_speech.text_feed import TextFeed
from qwen3tts_wire.errors import BadText, ConnectionLost, LimitExceeded
from tests.fakes import settle
from tests.speech.fakes import FakeContext


class Book(FakeContext):
    """Notes each message, and takes so many characters."""

    def __init__(self, most: int = 1000) -> None:
        super().__init__()
        self.appended: list[str] = []
        self._most = most

    async def append(self, text: str) -> None:
        if len(self.text) + len(text) > self._most:
            raise LimitExceeded(f"at most {self._most}")
        await super().append(text)
        self.appended.append(text)


class Source:
    """Gives what a test pushes."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[str | Exception | None] = asyncio.Queue()

    def push(self, *items: str | Exception | None) -> None:
        for item in items:
            self._queue.put_nowait(item)

    async def __aiter__(self) -> AsyncIterator[str]:
        while (item := await self._queue.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item


def fed(*items: str | Exception | None) -> tuple[Source, TextFeed]:
    source = Source()
    source.push(*items)
    return source, TextFeed(source, lambda: None)


async def test_each_delta_is_one_message_at_once() -> None:
    source, feed = fed("Good ")
    assert await feed.first()
    context = Book()
    await feed.into(cast(Any, context))
    task = asyncio.create_task(feed.run())
    for delta in ("mor", "ning", "."):
        source.push(delta)
        await settle()
        assert context.appended[-1] == delta
    source.push(None)
    await task
    assert context.appended == ["Good ", "mor", "ning", "."]
    assert (context.ended, feed.unsent) == (True, "")


async def test_what_comes_before_there_is_a_context_is_known_and_sent_with_it() -> None:
    _, feed = fed("One ", "two ", "three", None)
    assert await feed.first()
    await feed.run()
    assert feed.text == feed.unsent == "One two three"
    context = Book()
    await feed.into(cast(Any, context))
    assert context.appended == ["One ", "two ", "three"]
    assert (context.ended, feed.unsent) == (True, "")


async def test_deltas_keep_their_order_when_the_context_comes_while_they_do() -> None:
    source, feed = fed("a", "b", "c")
    assert await feed.first()
    context = Book()

    async def slow(text: str) -> None:
        context.appended.append(text)
        await asyncio.sleep(0)  # the connection is full

    context.append = slow  # type: ignore[method-assign]
    task = asyncio.create_task(feed.run())
    await settle()
    joined = asyncio.create_task(feed.into(cast(Any, context)))
    source.push("d", "e", None)
    await task
    await joined
    assert context.appended == ["a", "b", "c", "d", "e"]
    assert context.ended


async def test_what_the_context_refuses_stays_unsent_with_all_after_it() -> None:
    _, feed = fed("12345", "678901", "2", None)
    assert await feed.first()
    context = Book(most=10)
    await feed.into(cast(Any, context))
    await feed.run()
    assert context.appended == ["12345"], "nothing is said without what comes before it"
    assert isinstance(feed.failed, LimitExceeded)
    assert context.ended
    assert feed.unsent == "678901"


async def test_of_what_waited_for_a_context_that_refuses_it_the_good_part_is_said() -> None:
    _, feed = fed("12345", "678901", "2", None)
    assert await feed.first()
    await feed.run()
    context = Book(most=10)
    await feed.into(cast(Any, context))
    assert context.appended == ["12345"]
    assert isinstance(feed.failed, LimitExceeded)
    assert (context.ended, feed.unsent) == (True, "6789012")


async def test_a_broken_context_is_raised_and_what_it_did_not_take_is_unsent() -> None:
    _, feed = fed("One ", "two ", None)
    assert await feed.first()
    context = Book()
    await feed.into(cast(Any, context))
    context.error = ConnectionLost("gone")
    with pytest.raises(ConnectionLost):
        await feed.run()
    assert feed.failed is None
    assert feed.unsent == "two "


@pytest.mark.parametrize("early", [True, False])
async def test_a_source_that_breaks_ends_the_words_after_what_was_good(early: bool) -> None:
    _, feed = fed("Good ", cast(Any, 7))
    assert await feed.first()
    context = Book()
    if not early:
        await feed.into(cast(Any, context))
    await feed.run()
    if early:
        await feed.into(cast(Any, context))
    assert isinstance(feed.failed, BadText)
    assert (context.appended, context.ended) == (["Good "], True)


async def test_there_may_be_no_words() -> None:
    _, feed = fed("", "", None)
    assert not await feed.first()
    assert feed.text == ""
