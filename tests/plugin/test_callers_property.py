"""Several callers at once, whose commands are given each other's contexts: each hears its own.

The host keeps one context for all commands and yields before it uses it. Here each command gets the
context of any caller; what its own task's pipe has seen is all that tells whose it is.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qwen3tts_codecs.g711 import decode_ulaw
from qwen3tts_wire.events import Audio
from tests.fakes import settle
from tests.plugin.test_conversation_property import Turn
from tests.plugin.test_plugin import World, context

LEVELS = {"a": 1000, "b": 3500, "c": 12_000}
"""What the server says for each caller's words is a constant, by which it is known."""

Step = tuple[str, str, int]


class Host:
    """What the host and the server do."""

    def __init__(self) -> None:
        self.world = World()
        self.contexts: dict[str, Any] = {name: context(name) for name in LEVELS}
        self.turns = {name: Turn() for name in LEVELS}
        self.numbers = dict.fromkeys(LEVELS, 0)
        self.words: dict[str, list[str]] = {name: [] for name in LEVELS}
        self.commands: list[asyncio.Task[str | None]] = []

    def write(self, caller: str, count: int) -> tuple[str, str]:
        """The name of the command under way, and its text so far."""
        words = self.words[caller]
        words += [f"{caller}{self.numbers[caller]}x{len(words) + each}" for each in range(count)]
        return f"{caller} {self.numbers[caller]}", " ".join(words)

    def partial(self, caller: str, count: int) -> None:
        cmd_id, words = self.write(caller, count)
        self.turns[caller].do(lambda: self.show(caller, cmd_id, words))

    async def show(self, caller: str, cmd_id: str, words: str) -> None:
        data = {"command": "speak", "params": {"text": words}, "cmd_id": cmd_id}
        await self.world.plugin.partial(data, self.contexts[caller])

    def speak(self, caller: str, other: int) -> None:
        cmd_id, words = self.write(caller, 1)
        self.numbers[caller] += 1
        self.words[caller] = []
        given = list(self.contexts.values())[other % len(LEVELS)]

        async def run() -> None:
            await self.show(caller, cmd_id, words)
            command = asyncio.create_task(self.world.plugin.speak(words, None, given, {}))
            self.commands.append(command)
            await command

        self.turns[caller].do(run)

    def sound(self, number: int, ms: int) -> None:
        for one in self.world.client.contexts[-1 - number :][:1]:
            level = LEVELS[one.text[:1]]
            one._events.put_nowait(Audio(level.to_bytes(2, "little") * (24 * ms), 0, 0.0))

    async def step(self, what: str, caller: str, value: int) -> None:
        match what:
            case "partial":
                self.partial(caller, value)
            case "speak":
                self.speak(caller, value)
            case "sound":
                self.sound(value % 3, 20 * value)
            case "done":
                for one in self.world.client.contexts[-1 - value % 3 :][:1]:
                    if one.ended:
                        one.done()
            case "stop":
                await self.world.plugin.interrupt(self.contexts[caller])
            case "time":
                await self.world.clock.advance(value * 0.03)
            case _:
                await settle(value)

    async def end(self) -> None:
        for turn in self.turns.values():
            turn.do(None)
        for _ in range(200):
            await settle(30)
            for one in self.world.client.contexts:
                if one.ended:
                    one.done()
            await self.world.clock.advance(0.2)
            if all(turn.task.done() for turn in self.turns.values()):
                break
        for turn in self.turns.values():
            with suppress(asyncio.CancelledError):
                await turn.task
        assert all(each.done() for each in self.commands)

    def check(self) -> None:
        for one in self.world.client.contexts:
            assert len({word[0] for word in one.text.split()}) <= 1, one.text
        said = [word for one in self.world.client.contexts for word in one.text.split()]
        assert len(said) == len(set(said)), "said twice"
        for caller, chunk in self.world.chunks:
            level = np.abs(decode_ulaw(chunk).astype(np.int32))
            # Between sounds there are edges; the louder callers are heard in them, too.
            assert level.max() < 1.2 * LEVELS[caller], f"{caller} hears somebody else"
            if level.min() > 0.9 * level.max() > 500:
                assert level.min() > 0.8 * LEVELS[caller], f"{caller} hears somebody else"


STEPS = st.tuples(
    st.sampled_from(["partial", "partial", "speak", "sound", "sound", "done", "stop", "time", "-"]),
    st.sampled_from(list(LEVELS)),
    st.integers(1, 6),
)


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEPS, min_size=5, max_size=50))
async def test_whatever_contexts_commands_are_given_each_caller_hears_its_own_words(
    steps: list[Step],
) -> None:
    host = Host()
    try:
        for what, caller, value in steps:
            await host.step(what, caller, value)
        await host.end()
        host.check()
    finally:
        closing = asyncio.create_task(host.world.plugin.shutdown())
        await host.world.clock.advance(1.0)
        await closing
