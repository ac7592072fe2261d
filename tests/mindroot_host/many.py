"""Many calls at once, each with a voice and words of its own: does anybody hear anybody else?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.mindroot_host.call import Call, Visit
from tests.mindroot_host.hearing import by_voice, heard_whole, words
from tests.mindroot_host.host import XML, Host
from tests.mindroot_host.playout import Event, played
from tests.mindroot_host.speech_server import Said, SpeechServer, said

VOICES = [f"en-us+{kind}{number}" for kind in "fm" for number in range(1, 6)]
NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
PAUSE_S = 0.4
"""Between two turns of a call: longer than the response is kept open."""


@dataclass
class Heard:
    """What came of it."""

    turns: int = 0
    silent_ticks: int = 0
    wrong: list[str] = field(default_factory=list)
    """Turns in which a caller heard something else than the words of this call."""
    resident_mb: list[float] = field(default_factory=list)
    """The host's memory, at each second."""

    @property
    def growth_mb(self) -> float:
        """From a third of the time, when all has been loaded, to the end."""
        third = len(self.resident_mb) // 3
        return self.resident_mb[-1] - self.resident_mb[third] if self.resident_mb else 0.0


@dataclass(frozen=True)
class Turn:
    """One that is to be looked at when nobody speaks any more: that takes the machine's time."""

    text: str
    record: list[Event]


async def many_calls(host: Host, speech: SpeechServer, calls: int, seconds: float) -> Heard:
    """So many calls talk for so long, half of them in XML mode."""
    before = len(said(speech.folder))
    heard = Heard()
    async with host.visit() as admin:
        talkers = [await _begun(host, admin, number) for number in range(calls)]
        watching = asyncio.create_task(_watch(admin, heard))
        until = time.monotonic() + seconds
        talks = await asyncio.gather(
            *(_talk(call, number, until) for number, call in enumerate(talkers))
        )
        watching.cancel()
    segments = said(speech.folder, before)
    for voice, turns in zip(VOICES, talks, strict=False):
        _look(turns, by_voice(segments, voice), heard)
    return heard


def _look(turns: Sequence[Turn], segments: Sequence[Said], heard: Heard) -> None:
    """The turns of one call, one after the other, and what was said in its voice."""
    rest = list(segments)
    for turn in turns:
        own: list[Said] = []
        while rest and len(words(" ".join(each.text for each in own))) < len(words(turn.text)):
            own.append(rest.pop(0))
        playout = played(turn.record)
        heard.turns += 1
        heard.silent_ticks += playout.silent_ticks
        try:
            heard_whole(playout, own, turn.text)
        except AssertionError as error:
            heard.wrong.append(f"{turn.text} {str(error)[:300]}")


async def _begun(host: Host, admin: Visit, number: int) -> Call:
    voice = VOICES[number]
    mode = "xml" if number % 2 else "json"
    name = f"{mode} of many {voice}"
    host.add_agent(name, voice_id=voice, env=XML if mode == "xml" else {})
    return await admin.call(name)


async def _talk(call: Call, number: int, until: float) -> list[Turn]:
    turns: list[Turn] = []
    while time.monotonic() < until:
        tens, units = divmod(len(turns), 10)
        text = (
            f"Caller {NUMBERS[number]} hears sentence {NUMBERS[tens]} {NUMBERS[units]} from its "
            "own agent, and nothing of what is said to others."
        )
        begun = await call.now()
        await call.speak(text, token_ms=20)
        await call.finished()
        await call.silence(PAUSE_S, after=begun)
        call.events.clear()
        turns.append(Turn(text, await call.take_record()))
    return turns


async def _watch(admin: Visit, heard: Heard) -> None:
    while True:
        resident = (await admin.client.get("/recording_sip/memory")).json()["resident"]
        heard.resident_mb.append(resident / 1e6)
        await asyncio.sleep(1.0)
