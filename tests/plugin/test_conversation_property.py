"""A conversation under everything that a host can do to it, in any order.

A turn is a task that does one thing after the other, as the host's own is; turns may overlap, stops
come at any moment, and the line and the server answer when they like. The sink is the one that
paces into a SIP service, so that every frame is seen as the caller's side sees it.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mr_qwen3tts.conversation import Conversation
from mr_qwen3tts.reply import Reply
from mr_qwen3tts.settings import Settings
from qwen3tts_codecs.g711 import PCMU
from qwen3tts_pacer.slot import Slot
from qwen3tts_speech.line import Speaker, Utterance, VoiceOptions
from qwen3tts_speech.link import SpeechLink
from qwen3tts_speech.sink import PacerSink
from qwen3tts_wire.client import SpeechClient
from qwen3tts_wire.errors import EngineFailed, SpeechError
from tests.fakes import FakeClock, settle
from tests.speech.fakes import FakeClient

SETTINGS = Settings()
FLAGS = ("cancel_current_turn", "finished_conversation")
ENDS_WITHIN_S = 120.0
"""Of the fake clock: a barrier of 30 s, and partials that are waited for 10 s, fit in."""

Step = tuple[str, int]
Action = Callable[[], Awaitable[object]]


async def choose(client: SpeechClient) -> VoiceOptions:
    return VoiceOptions()


class Turn:
    """The host's task that reads what the model writes, and does it."""

    def __init__(self, after: Turn | None = None) -> None:
        self._after = after
        self._actions: asyncio.Queue[Action | None] = asyncio.Queue()
        self.command: asyncio.Task[bool] | None = None
        self.task = asyncio.create_task(self._run())

    def do(self, action: Action | None) -> None:
        """After what it does now; None ends the turn."""
        self._actions.put_nowait(action)

    async def _run(self) -> None:
        if self._after is not None:
            await asyncio.wait([self._after.task])
        while (action := await self._actions.get()) is not None:
            await action()

    def cancel(self, *, task: bool) -> None:
        """As the host does it: the command that runs, and perhaps the turn itself."""
        if self.command is not None:
            self.command.cancel()
        if task:
            self.task.cancel()


class World:
    """A call, its host and its server. Every word that is ever said has its own number."""

    def __init__(self, asking_rounds: int = 0) -> None:
        self.clock = FakeClock()
        self.client = FakeClient()
        self.context = SimpleNamespace(log_id="call", data={})
        self.halted = False
        self.asking_rounds = asking_rounds
        """How many rounds of the loop the line takes to say whether it wants sound."""
        self.faults: list[str] = []
        self.begun = 0
        """Utterances begun."""
        self.silenced = 0
        """The last of them that was stopped: none up to it may be heard any more."""
        self.speaks: list[asyncio.Task[bool]] = []
        self.turns = [Turn()]
        self.words: list[str] = []
        self.numbers = iter(range(1_000_000))
        self.cmd = 0
        self.given: list[str] = []
        """Texts of commands and of other plugins, all of which should be said."""
        self.hindered = False
        """Whether something happened after which words may be left out."""
        self.last: tuple[Turn, str, str] | None = None
        """The last command that was given: its turn, name and text."""

        async def connect(url: str) -> FakeClient:
            return self.client

        self.sink = PacerSink(
            self.take,
            silence=b"\xff" * 160,
            clock=self.clock,
            on_refused=self.refused,
        )
        link = SpeechLink("ws://test", connect=cast(Any, connect))
        self.speaker = Speaker(link, self.sink, PCMU, clock=self.clock)
        say = self.speaker.say

        def counted(*args: Any) -> Utterance:
            self.begun += 1
            return say(*args)

        self.speaker.say = counted  # type: ignore[method-assign, assignment]
        self.conversation = Conversation(
            "call",
            clock=self.clock,
            speaker=lambda: self.speaker,
            halted=self.asked,
            ended=self.ended,
        )
        stop = self.conversation.stop

        def seen(why: str) -> bool:
            self.silenced = self.begun
            return stop(why)

        self.conversation.stop = seen  # type: ignore[method-assign]

    async def take(self, payload: bytes, slot: Slot) -> bool:
        if self.halted:
            return False
        if slot.frame is not None and slot.frame.context <= self.silenced:
            self.faults.append(f"a frame of {slot.frame.context} after the stop")
        return True

    def refused(self) -> None:
        self.conversation.stop("refused")

    async def asked(self, context: Any) -> bool:
        await settle(self.asking_rounds)
        return self.halted

    def ended(self, reply: Reply, utterance: Utterance, error: SpeechError | None) -> None:
        """Nothing of it is wanted here."""

    # --- what the host does

    @property
    def turn(self) -> Turn:
        return self.turns[-1]

    @property
    def cmd_id(self) -> str:
        return f"cmd {self.cmd}"

    def write(self, count: int) -> str:
        """The model writes some words more; all of the command's text so far."""
        self.words += [f"w{next(self.numbers)}" for _ in range(count)]
        return " ".join(self.words)

    def partial(self, count: int) -> None:
        words, cmd_id, turn = self.write(count), self.cmd_id, self.turn
        turn.do(lambda: self.show(cmd_id, words, turn))

    def stale(self) -> None:
        """The last command is shown once more after it was run."""
        if self.last is not None:
            turn, cmd_id, words = self.last
            more = f"{words} w{next(self.numbers)} and so on"
            turn.do(lambda: self.show(cmd_id, more, turn))

    async def show(self, cmd_id: str, words: str, turn: Turn) -> None:
        await self.conversation.partial(cmd_id, words, self.context, choose, SETTINGS, turn.task)

    def complete(self, count: int) -> None:
        words, cmd_id, turn = self.write(count), self.cmd_id, self.turn
        self.cmd += 1
        self.words = []
        self.last = turn, cmd_id, words
        self.given.append(words)
        turn.do(lambda: self.run(cmd_id, words, turn))

    async def run(self, cmd_id: str, words: str, turn: Turn) -> None:
        await self.show(cmd_id, words, turn)
        speaking = self.conversation.speak(cmd_id, words, self.context, choose, SETTINGS, turn.task)
        turn.command = asyncio.create_task(speaking)
        self.speaks.append(turn.command)
        await turn.command

    def plugin(self, count: int) -> None:
        words = " ".join(f"w{next(self.numbers)}" for _ in range(count))
        self.given.append(words)
        speaking = self.conversation.speak(None, words, self.context, choose, SETTINGS)
        self.speaks.append(asyncio.create_task(speaking))

    def other(self, wait: int) -> None:
        turn = self.turn
        self.cmd += 1
        self.words = []
        wait_s = 30.0 if wait else None
        turn.do(lambda: self.conversation.other(None, turn.task, wait_s))

    def new_turn(self, how: int) -> None:
        """0: the old one ends; 1: it is cancelled; 2: it goes on, which no host should do."""
        self.hindered = self.hindered or how != 0
        if how == 0:
            self.turn.do(None)
        elif how == 1:
            self.flags(2)
            self.turn.cancel(task=True)
        for name in FLAGS:
            self.context.data[name] = False
        self.turns.append(Turn(after=self.turn if how == 0 else None))
        self.cmd += 1
        self.words = []

    def flags(self, which: int) -> None:
        for name in FLAGS[: which + 1]:
            self.context.data[name] = True

    def stop(self, way: int) -> None:
        self.hindered = True
        match way:
            case 0:  # cancel_active_response
                self.flags(0)
                self.conversation.interrupt(self.context)
                self.turn.cancel(task=False)
            case 1:  # the page's stop button
                self.flags(1)
                self.turn.cancel(task=False)
            case 2:  # cancel_and_wait
                self.flags(1)
                self.turn.cancel(task=True)
            case 3:  # the caller cuts in
                self.halted = True
            case 4:
                self.halted = False
            case 5:  # the host takes its flag away at the next token
                self.context.data.pop(FLAGS[0], None)
            case 6:
                self.flags(0)
            case 7:
                for speaking in self.speaks[-1:]:
                    speaking.cancel()

    def server(self, what: str, value: int) -> None:
        for each in self.client.contexts[-1 - value % 3 :][:1]:
            if what == "sound":
                each.sound(20 + 40 * value)
            elif what == "done":
                self.hindered = self.hindered or not each.ended
                each.done()
            else:
                self.hindered = True
                each.fail(EngineFailed("It broke."))

    async def take_step(self, step: Step) -> None:
        what, value = step
        match what:
            case "partial":
                self.partial(value)
            case "stale":
                self.stale()
            case "speak":
                self.complete(value)
            case "plugin":
                self.plugin(1 + value)
            case "other":
                self.other(value % 2)
            case "turn":
                self.new_turn(value % 3)
            case "stop":
                self.stop(value)
            case "time":
                await self.clock.advance(value * 0.015)
            case "wait":
                await self.clock.advance(value * 2.0)
            case "settle":
                await settle(value)
            case _:
                self.server(what, value)

    # --- what must be true

    async def end(self) -> None:
        """The server says all, the turns end, time goes on: everything comes to its end."""
        for turn in self.turns:
            turn.do(None)
        self.halted = False
        until = self.clock.now() + ENDS_WITHIN_S
        finished: set[int] = set()
        while self.clock.now() < until:
            await settle(30)
            for number, each in enumerate(self.client.contexts):
                if each.ended and number not in finished:
                    finished.add(number)
                    each.done()
            await self.clock.advance(0.5)
            if not self.conversation.busy and all(turn.task.done() for turn in self.turns):
                break

    def check_said(self) -> None:
        said = Counter(
            word for each in self.client.contexts for word in re.findall(r"w\d+", each.text)
        )
        assert not [word for word, times in said.items() if times > 1], "said twice"
        if not self.hindered:
            words = " ".join(self.given).split()
            assert not [word for word in words if word not in said], "not said"

    async def check_end(self) -> None:
        assert all(each.done() for each in self.speaks), "a speak does not return"
        for speaking in self.speaks:
            if not speaking.cancelled():
                assert speaking.exception() is None
        assert not self.conversation.busy
        assert not self.conversation.speaking
        assert self.conversation.unplayed_s == 0
        await self.conversation.close()
        await self.sink.close()
        for turn in self.turns:
            with suppress(asyncio.CancelledError):
                await turn.task
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left


COUNT = st.integers(1, 4)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["partial", "speak"]), COUNT),
    st.tuples(st.sampled_from(["sound", "done", "fail"]), st.integers(0, 5)),
    st.tuples(st.just("stop"), st.integers(0, 7)),
    st.tuples(st.sampled_from(["time", "settle", "turn", "other", "plugin", "stale"]), COUNT),
    st.tuples(st.just("wait"), st.integers(0, 6)),
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEPS, max_size=40), asking_rounds=st.integers(0, 6))
async def test_whatever_the_host_does_stops_are_stops_and_everything_ends(
    steps: list[Step], asking_rounds: int
) -> None:
    world = World(asking_rounds)
    for step in steps:
        await world.take_step(step)
    await world.end()
    assert not world.faults
    world.check_said()
    await world.check_end()
