"""Keys of the far end, for whoever reads them."""

from __future__ import annotations

import asyncio

import pytest

from qwen3tts_phone.audio.frames import KeyPressed
from qwen3tts_phone.call.keys import UNREAD_KEYS, Keypad
from tests.fakes import FakeClock, settle


def press(keypad: Keypad, keys: str) -> None:
    for key in keys:
        keypad.pressed(KeyPressed(0.0, key, 100))


async def all_of(keypad: Keypad) -> str:
    return "".join([key.digit async for key in keypad])


async def test_keys_come_one_by_one_to_the_end_of_the_call() -> None:
    keypad = Keypad(FakeClock())
    reading = asyncio.create_task(all_of(keypad))
    press(keypad, "12")
    await settle()
    press(keypad, "#")
    keypad.close()
    assert await reading == "12#"


async def test_keys_pressed_while_nobody_reads_wait_for_the_next_reader() -> None:
    keypad = Keypad(FakeClock())
    press(keypad, "4711")
    assert keypad.unread == "4711"
    assert await keypad.collect(most=2) == "47"
    assert await keypad.collect(most=2) == "11"
    press(keypad, "9")
    keypad.clear()
    keypad.close()
    assert await all_of(keypad) == ""


async def test_every_reader_gets_every_key() -> None:
    keypad = Keypad(FakeClock())
    readers = [asyncio.create_task(all_of(keypad)) for _ in range(3)]
    await settle()
    press(keypad, "123")
    keypad.close()
    assert await asyncio.gather(*readers) == ["123"] * 3


async def test_an_answer_ends_with_its_key_which_is_no_part_of_it() -> None:
    keypad = Keypad(FakeClock())
    press(keypad, "12#34")
    assert await keypad.collect() == "12"
    assert await keypad.collect(most=2, until="*") == "34"


async def test_with_no_ending_key_every_key_counts() -> None:
    keypad = Keypad(FakeClock())
    press(keypad, "1#*")
    assert await keypad.collect(most=3, until="") == "1#*"


async def test_an_answer_ends_when_no_further_key_comes() -> None:
    clock = FakeClock()
    keypad = Keypad(clock)
    answer = asyncio.create_task(keypad.collect(most=4, pause_s=3.0))
    await settle()
    press(keypad, "1")
    await clock.advance(2.9)
    press(keypad, "2")
    await clock.advance(2.9)
    assert not answer.done()
    await clock.advance(0.2)
    assert await answer == "12"


async def test_a_caller_who_presses_nothing_is_not_waited_for_for_ever() -> None:
    clock = FakeClock()
    keypad = Keypad(clock)
    answer = asyncio.create_task(keypad.collect(most=4, first_s=10.0))
    await clock.advance(9.9)
    assert not answer.done()
    await clock.advance(0.2)
    assert await answer == ""


async def test_the_end_of_the_call_ends_the_answer() -> None:
    keypad = Keypad(FakeClock())
    answer = asyncio.create_task(keypad.collect(most=4, first_s=None))
    await settle()
    press(keypad, "1")
    await settle()
    keypad.close()
    assert await answer == "1"
    assert await keypad.collect() == ""


async def test_a_caller_cannot_fill_the_memory_with_keys() -> None:
    keypad = Keypad(FakeClock())
    press(keypad, "1" * 10_000 + "2")
    assert keypad.unread == "1" * (UNREAD_KEYS - 1) + "2"


async def test_what_a_reader_leaves_is_the_next_ones() -> None:
    keypad = Keypad(FakeClock())
    answer = asyncio.create_task(keypad.collect(most=1))
    await settle()
    press(keypad, "123")
    assert await answer == "1"
    assert keypad.unread == "23"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"most": 0}, "most=0"),
        ({"until": "x"}, "'x' is no key"),
        ({"pause_s": 0.0}, "pause_s"),
        ({"first_s": float("nan")}, "first_s"),
    ],
)
async def test_bounds_that_make_no_sense_are_refused(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        await Keypad(FakeClock()).collect(**wrong)  # type: ignore[arg-type]
