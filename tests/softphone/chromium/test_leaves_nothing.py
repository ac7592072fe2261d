"""Ten calls from one page, one after the other: nothing of them stays in the process."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import Counter

import pytest

from tests.soak.left_over import Held, now_held
from tests.softphone.browser import Chromium
from tests.softphone.served import Person, at_the_page, served

pytestmark = [pytest.mark.network, pytest.mark.asyncio(loop_scope="module")]

CALLS = 10
KEPT_OBJECTS = ("WebCall", "PageCall", "RTCPeerConnection", "RTCRtpSender", "Recording", "Speaker")


async def one_call(person: Person) -> None:
    await person.call()
    before = len(person.visit.received)
    await person.put("Yes.")
    await person.visit.message("spoken", after=before)
    await person.hang_up()


async def quiet() -> None:
    """Wait until what the server still does for calls has ended."""
    names = {"call of a page", "work of a page's call"}
    if at_work := [each for each in asyncio.all_tasks() if each.get_name() in names]:
        await asyncio.wait(at_work)


def held() -> tuple[Held, int, Counter[str]]:
    """What the process holds, its threads, and objects of calls."""
    now = now_held(())
    of_calls = Counter(
        type(each).__name__ for each in gc.get_objects() if type(each).__name__ in KEPT_OBJECTS
    )
    return now, threading.active_count(), of_calls


async def test_ten_calls_leave_no_task_socket_thread_or_memory(chromium: Chromium) -> None:
    async with served() as here, at_the_page(chromium, here.url) as person:
        for _ in range(2):  # what is made once and kept is made now
            await one_call(person)
        await quiet()
        first, threads, of_calls = held()
        for _ in range(CALLS):
            await one_call(person)
        await quiet()
        last, threads_after, of_calls_after = held()
        peers = await person.page.evaluate(
            "() => window.testEars.peers.map((each) => each.connectionState)"
        )
        under_way = list(here.softphone.calls)
    beyond = last.beyond(first)
    assert of_calls_after == of_calls  # those of the page's last call
    assert beyond["tasks"] <= 0
    assert beyond["handles"] <= 0
    assert threads_after <= threads
    # A call holds some 100 kB while it lasts; Playwright keeps a little of each message.
    assert beyond["memory_kb"] < CALLS * 1024
    assert set(peers) == {"closed"}
    assert not under_way
