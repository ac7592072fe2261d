"""The calls of a day, one for each way in which a call can end; one that ends otherwise raises.

``far`` is the address of the far end, whose names say what it does (:mod:`far_end`).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import numpy as np

from qwen3tts_phone.call.call import CallTransferred
from qwen3tts_phone.call.events import CallEarlyMedia, CallRinging
from qwen3tts_phone.call.phone_call import PhoneCall
from qwen3tts_phone.errors import CallError, CallRefused, WrongState
from qwen3tts_phone.phone import Phone
from tests.peers.sipp_runner import free_port

LONGEST_S = 40.0
"""A call that is not over by then hangs."""
RATE_HZ = 8000
TONE = (4000 * np.sin(2 * np.pi * 440 * np.arange(RATE_HZ // 2) / RATE_HZ)).astype(np.int16)
"""Half a second."""


class OtherEnd(Exception):
    """A call ended otherwise than it should."""


class TooLate(Exception):
    """The far end had given up before we had its call; the message is what it says."""


@dataclass
class Day:
    """What the calls need."""

    phone: Phone
    far_end: asyncio.subprocess.Process
    port: int
    """The far end's."""

    def __post_init__(self) -> None:
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[str]] = {}
        self._expected: dict[str, asyncio.Future[PhoneCall]] = {}

    def uri(self, who: str) -> str:
        """Somebody at the far end."""
        return f"sip:{who}@127.0.0.1:{self.port}"

    async def hear(self) -> None:
        """Take the far end's words, until cancelled."""
        assert self.far_end.stdout is not None
        while line := await self.far_end.stdout.readline():
            said = json.loads(line)
            self._asked.pop(said["id"]).set_result(said["result"])

    async def take(self) -> None:
        """Hand the calls that come in to whoever expects them, until cancelled."""
        async for call in self.phone.incoming():
            name = call.dialled_uri.partition(":")[2].partition("@")[0]
            if name in self._expected:
                self._expected.pop(name).set_result(call)

    async def called(self, how: str) -> tuple[PhoneCall, asyncio.Future[str]]:
        """Be called by the far end: the call, and what becomes of it there."""
        assert self.far_end.stdin is not None
        loop = asyncio.get_running_loop()
        number = next(self._numbers)
        name = f"agent{number}"
        call = self._expected[name] = loop.create_future()
        result = self._asked[number] = loop.create_future()
        order = {"id": number, "to": f"sip:{name}@127.0.0.1:{self.phone.port}", "how": how}
        self.far_end.stdin.write(f"{json.dumps(order)}\n".encode())
        await asyncio.wait({call, result}, return_when=asyncio.FIRST_COMPLETED)
        if not call.done():
            del self._expected[name]
            raise TooLate(result.result())
        return call.result(), result

    async def up(self, who: str) -> PhoneCall:
        """A call of ours that is answered."""
        call = await self.phone.dial(self.uri(who))
        await call.answered()
        return call


def check(fact: bool, what: str) -> None:
    """Raise where it is not so."""
    if not fact:
        raise OtherEnd(what)


async def refused_with(day: Day, who: str, *statuses: int) -> None:
    call = await day.phone.dial(day.uri(who))
    try:
        await call.answered()
    except CallRefused as error:
        check(error.status in statuses, f"refused with {error.status}")
    else:
        raise OtherEnd("answered")
    await call.ended()


async def we_hang_up(day: Day) -> None:
    call = await day.up("answer")
    check(await call.play(TONE, RATE_HZ), "the tone was not heard")
    await call.hangup()


async def we_hang_up_in_the_middle_of_a_word(day: Day) -> None:
    call = await day.up("answer")
    said = call.speak("This sentence is so long that nobody hears its end, one, two, three, four.")
    await asyncio.sleep(0.3)
    call.interrupt()
    await call.hangup()
    with contextlib.suppress(CallError):
        await said.spoken()


async def we_say_something(day: Day) -> None:
    call = await day.up("answer")
    spoken = await call.say("Good morning.")
    check(spoken.heard.strip() == "Good morning.", "the sentence was not heard to its end")
    await call.hangup()


async def they_hang_up(day: Day) -> None:
    call = await day.phone.dial(day.uri("hangup"))
    listening = asyncio.create_task(_listen(call))
    await call.answered()
    await call.ended()
    check(await listening > 0, "nothing was heard")


async def we_give_up_while_it_rings(day: Day) -> None:
    call = await day.phone.dial(day.uri("ring"))
    async for event in call.events:
        if isinstance(event, CallRinging):
            break
    await call.hangup()


async def we_give_up_at_once(day: Day) -> None:
    call = await day.phone.dial(day.uri("ring"))
    await call.hangup()


async def we_give_up_in_early_media(day: Day) -> None:
    call = await day.phone.dial(day.uri("early"))
    async for event in call.events:
        if isinstance(event, CallEarlyMedia):
            break
    await call.hangup()


async def nobody_is_there(day: Day) -> None:
    call = await day.phone.dial(f"sip:bob@127.0.0.1:{free_port()}")
    await _fails(call)


async def nobody_says_anything(day: Day) -> None:
    await _fails(await day.phone.dial(day.uri("silent")))


async def they_vanish(day: Day) -> None:
    call = await day.up("vanish")
    cause = await call.ended()
    check(bool(cause), "no cause")


async def they_hold_and_resume(day: Day) -> None:
    call = await day.up("hold")
    await call.play(TONE, RATE_HZ)
    await asyncio.sleep(0.3)
    await call.hangup()


async def they_move(day: Day) -> None:
    call = await day.up("moves")
    for _ in range(3):
        await call.play(TONE, RATE_HZ)
    check(await _listen(call, 20) > 0, "nothing was heard from the new address")
    await call.hangup()


async def we_transfer(day: Day) -> None:
    call = await day.up("answer")
    await call.transfer(day.uri("answer"))
    await call.ended()


async def they_transfer_us(day: Day) -> None:
    call = await day.up("sends_on")
    others = [event.call async for event in call.events if isinstance(event, CallTransferred)]
    check(len(others) == 1, f"transferred {len(others)} times")
    await others[0].hangup()


async def we_hold_and_hang_up(day: Day) -> None:
    call = await day.up("answer")
    await call.hold()
    await call.hangup()


async def a_caller_hangs_up(day: Day) -> None:
    call, result = await day.called("talk")
    await call.answer()
    await call.play(TONE, RATE_HZ)
    await call.ended()
    check(await result == "ended", await result)


async def we_hang_up_on_a_caller(day: Day) -> None:
    call, result = await day.called("stays")
    await call.answer()
    await call.play(TONE, RATE_HZ)
    await call.hangup()
    check(await result == "ended", await result)


async def a_caller_gives_up(day: Day) -> None:
    try:
        call, result = await day.called("ring")
    except TooLate as error:
        check(str(error) == "cancelled", str(error))
        return
    with contextlib.suppress(WrongState):
        call.ringing()
    await call.ended()
    check(await result == "cancelled", await result)


async def a_caller_gives_up_at_once(day: Day) -> None:
    try:
        call, result = await day.called("cancel_at_once")
    except TooLate as error:
        check(str(error) == "cancelled", str(error))
        return
    await call.ended()
    check(await result == "cancelled", await result)


async def we_refuse_a_caller(day: Day) -> None:
    call, result = await day.called("talk")
    await call.reject(486)
    check(await result == "refused: 486", await result)


async def a_caller_vanishes(day: Day) -> None:
    call, result = await day.called("vanish")
    await call.answer()
    await call.ended()
    check(await result == "ended", await result)


async def a_caller_holds(day: Day) -> None:
    call, result = await day.called("hold")
    await call.answer()
    await call.ended()
    check(await result == "ended", await result)


async def a_caller_hangs_up_while_we_are_on_hold(day: Day) -> None:
    call, result = await day.called("hold_and_end")
    await call.answer()
    said = call.speak("Nobody hears this to its end, since we are put on hold in the middle.")
    await call.ended()
    with contextlib.suppress(CallError):
        await said.spoken()
    check(await result == "ended", await result)


async def a_caller_presses_keys(day: Day) -> None:
    call, result = await day.called("keys")
    await call.answer()
    await call.ended()
    check(await result == "ended", await result)
    check(call.facts.keys_in == "12#", "the keys were not told")


async def we_hang_up_on_a_caller_who_still_rings(day: Day) -> None:
    call, result = await day.called("talk")
    call.ringing()
    await call.hangup()
    check((await result).startswith("refused"), await result)


async def _fails(call: PhoneCall) -> None:
    try:
        await call.answered()
    except CallError:
        await call.ended()
    else:
        raise OtherEnd("answered")


async def _listen(call: PhoneCall, most: int = 1_000_000) -> int:
    """Frames that are heard, until the call ends or there were enough."""
    frames = 0
    async for _ in call.audio():
        frames += 1
        if frames >= most:
            break
    return frames


def refusal(who: str, *statuses: int) -> Callable[[Day], Awaitable[None]]:
    """A call that the far end does not take."""

    async def ending(day: Day) -> None:
        await refused_with(day, who, *statuses)

    return ending


ENDINGS: dict[str, Callable[[Day], Awaitable[None]]] = {
    "busy": refusal("busy", 486),
    "declined": refusal("declined", 603),
    "no such number": refusal("missing", 404),
    "no common codec": refusal("codec", 488),
    "not there after ringing": refusal("away", 480),
    "busy after early media": refusal("earlybusy", 486),
    **{
        each.__name__.replace("_", " "): each
        for each in (
            we_hang_up,
            we_say_something,
            we_hang_up_in_the_middle_of_a_word,
            they_hang_up,
            we_give_up_while_it_rings,
            we_give_up_at_once,
            we_give_up_in_early_media,
            nobody_is_there,
            nobody_says_anything,
            they_vanish,
            they_hold_and_resume,
            they_move,
            we_hold_and_hang_up,
            we_transfer,
            they_transfer_us,
            a_caller_hangs_up,
            we_hang_up_on_a_caller,
            a_caller_gives_up,
            a_caller_gives_up_at_once,
            we_refuse_a_caller,
            a_caller_vanishes,
            a_caller_holds,
            a_caller_hangs_up_while_we_are_on_hold,
            a_caller_presses_keys,
            we_hang_up_on_a_caller_who_still_rings,
        )
    },
}
