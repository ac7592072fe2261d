"""How a telephone call stands, as the page that is joined to it is told."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal

from qwen3tts_pacer.states import PacerError
from qwen3tts_phone.call.call import Call, CallEvent, TransferAsked
from qwen3tts_phone.call.events import (
    CallAnswered,
    CallEarlyMedia,
    CallEnded,
    CallForwarded,
    CallHeld,
    CallQueued,
    CallResumed,
    CallRinging,
)
from qwen3tts_phone.softphone.mixer import Mixer, RingbackTone
from qwen3tts_speech.line import Utterance, VoiceOptions
from qwen3tts_speech.sound import LiveSound
from qwen3tts_wire.errors import SpeechError, log_text

LineStateName = Literal["connecting", "ringing", "up", "ended"]


@dataclass(frozen=True, slots=True)
class LineState:
    """Where the call stands."""

    state: LineStateName
    cause: str = ""
    """In plain words; empty = nothing to add."""
    remedy: str = ""
    by: str = ""
    """Who ended it: ``local``, ``remote``, ``timeout`` or ``error``."""
    code: str = ""
    """Name of the kind of error; empty = none."""


CONNECTING = LineState("connecting")
UP = LineState("up")


def state_of_event(event: CallEvent) -> LineState | None:
    """What an event of the call changes; None = nothing."""
    match event:
        case CallRinging():
            return LineState("ringing")
        case CallForwarded():
            return LineState("ringing", "The call is being forwarded.")
        case CallQueued():
            return LineState("ringing", "The call is queued.")
        case CallEarlyMedia():
            return LineState("ringing", "The other side plays something before it answers.")
        case CallAnswered() | CallResumed():
            return UP
        case CallHeld():
            return LineState("up", "The other side has put the call on hold.")
        case CallEnded():
            return LineState("ended", event.cause, event.remedy, event.by, event.code)
        case _:
            return None


class StateHistory:
    """All states so far, for any number of readers."""

    def __init__(self, first: LineState) -> None:
        self._states = [first]
        self._news = asyncio.Event()

    @property
    def last(self) -> LineState:
        """The one that holds now."""
        return self._states[-1]

    def add(self, state: LineState) -> None:
        """It changes, if it does; nothing follows ``ended``."""
        if state != self.last and self.last.state != "ended":
            self._states.append(state)
            self._news.set()
            self._news = asyncio.Event()

    async def all(self) -> AsyncIterator[LineState]:
        """From the first to ``ended``."""
        count = 0
        while True:
            news = self._news
            for state in self._states[count:]:
                count += 1
                yield state
            if self.last.state == "ended" and count == len(self._states):
                return
            if count == len(self._states):
                await news.wait()


__all__ = ["DialledBridge", "MonitorBridge", "CallBridge", "LineState"]

logger = logging.getLogger(__name__)

PTIME_MS = 20
"""Length of a frame of the mix."""
FAR, OURS, RINGBACK = "far", "ours", "ringback"


class CallBridge(ABC):
    """Made by `Gateway`; runs until `close`, or until one of the two calls is over.

    ``page`` is the call of the page, ``call`` the other one.
    """

    def __init__(self, page: Call, call: Call, *, talking: bool, first: LineState) -> None:
        self.page = page
        self.call = call
        self.talking = talking
        """Whether the page's microphone is in the other call."""
        self.on_moved: Callable[[Call], None] | None = None
        """Is given a call that has taken the place of ``call``, once it is there."""
        self._states = StateHistory(first)
        self._moved_at = -math.inf
        self._end: LineState | None = None
        """How the other call has ended; another one may go on in its place."""
        self._live: LiveSound | None = None
        """The microphone in the other call."""
        self._far_sounds = False
        """Whether the other call's far end has sent sound."""
        self._over = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None
        self._running = asyncio.create_task(self._run(), name=f"page joined to {call.id}")

    # --- what the page asks for

    def speak(
        self, words: str | AsyncIterable[str], options: VoiceOptions | None = None
    ) -> Utterance:
        """Say something in the other call; it is heard in the page, too. As `Call.speak`."""
        return self.call.speak(words, options)

    def interrupt(self) -> list[Utterance]:
        """Stop what is being said in the other call; the microphone stays."""
        return self.call.interrupt()

    async def press(self, digits: str) -> None:
        """Press keys in the other call; raises CallError."""
        await self.call.send_dtmf(digits)

    def talk(self, on: bool) -> None:
        """Put the page's microphone into the other call, or take it out."""
        self.talking = on
        if not on:
            self._close_live()

    # --- what happens

    def states(self) -> AsyncIterator[LineState]:
        """Where the other call stands, at once and whenever it changes; ends after ``ended``.

        For any number of readers.
        """
        return self._states.all()

    async def over(self) -> None:
        """Wait until the two are no longer joined, and nothing of it runs any more."""
        await self._over.wait()

    async def close(self) -> None:
        """The page leaves; returns when all is cleared away. Harmless when it is over.

        A call that it dialled is hung up, one that it listened to goes on.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._leave(), name="page leaves")
        await asyncio.shield(self._closing)

    # --- what the kinds differ in

    @abstractmethod
    async def _follow(self) -> None:
        """Tell the states, to the end of the other call; how that ended is kept in ``_end``."""

    @abstractmethod
    async def _next_call(self) -> Call | None:
        """Wait for the call that takes the place of ``call``; None = that ends and none does."""

    @abstractmethod
    def _talk_in(self) -> LiveSound:
        """The microphone comes into the other call."""

    @abstractmethod
    async def _left(self) -> None:
        """The page has gone."""

    # --- inside

    async def _run(self) -> None:
        """To the end of the page's call, or of the last of those that it is joined to."""
        page_over = asyncio.create_task(_to_the_end(self.page))
        try:
            while (following := await self._join(page_over)) is not None:
                self._moved_to(following)
        finally:
            page_over.cancel()
        if self._closing is None:
            # Not from inside `close`, which waits for this task.
            self._closing = asyncio.create_task(self._leave(), name="page leaves")

    async def _join(self, page_over: asyncio.Task[None]) -> Call | None:
        """Join the page with one call; the one that takes its place."""
        following = asyncio.create_task(self._follow())
        moving = asyncio.create_task(self._next_call())
        streams = [self._give_microphone(), self._give_sound()]
        running = [asyncio.create_task(_ended_quietly(each)) for each in streams]
        ends: set[asyncio.Task[Any]] = {following, moving, page_over}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if following.done() and not page_over.done():
                # A call that is over may have asked for a transfer that is not answered yet.
                await asyncio.wait({moving, page_over}, return_when=asyncio.FIRST_COMPLETED)
            return moving.result() if moving.done() else None
        finally:
            for task in (following, moving, *running):
                task.cancel()
            outcomes = await asyncio.gather(following, moving, *running, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, Exception):
                    logger.error("a joined call broke", exc_info=outcome)
            self._close_live()
            if isinstance(outcomes[1], Call):  # it is ours, whatever ends this
                self.call, self._end, self._far_sounds = outcomes[1], None, False

    def _moved_to(self, call: Call) -> None:
        self._moved_at = self.page.clock.now()
        self._states.add(LineState("up", f"The call goes on with {call.remote_uri}."))
        if self.on_moved is not None:
            self.on_moved(call)

    async def _leave(self) -> None:
        try:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            await self._left()
            if self.call.over:
                await self.page.hangup()
        except SpeechError as error:
            logger.warning("a joined call did not end well: %s", log_text(error))
        finally:
            self._states.add(self._end or LineState("ended", "The page has left.", by="local"))
            self._over.set()

    def _note(self, state: LineState, at: float) -> None:
        if state.state == "ended":
            self._end = state
        elif at > self._moved_at:  # how a call that takes the place of another came up is past
            self._states.add(state)

    def _close_live(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.close()

    async def _give_microphone(self) -> None:
        """What the page hears with, into the other call."""
        await self.page.answered()
        await self.call.answered()
        async with aclosing(self.page.audio(steady=True)) as frames:
            async for frame in frames:
                if not self.talking or self.call.held:
                    continue  # what is said while nobody can hear it is not said later
                if self._live is None:
                    self._live = self._talk_in()
                await self._live.push(frame.samples, frame.rate_hz)

    async def _give_sound(self) -> None:
        """Both sides of the other call, into the page."""
        await self.page.answered()
        speaker = self.page.speaker
        if speaker is None:
            return
        clock, call = self.page.clock, self.call
        rate_hz = speaker.payload.sample_hz
        mixer, ringback = Mixer(rate_hz, PTIME_MS, clock.now()), RingbackTone(rate_hz)
        live = self.page.live()
        hearing = asyncio.create_task(_ended_quietly(self._hear_far(mixer)))
        try:
            with call.sent_audio() as sent:
                while not hearing.done():
                    await clock.sleep_until(deadline := mixer.next_deadline)
                    if self._rings:
                        count = rate_hz * PTIME_MS // 1000
                        mixer.put(RINGBACK, ringback.next(count), rate_hz, deadline)
                    for each in sent.take():
                        if not each.live:  # nobody wants to hear himself a moment later
                            mixer.put(OURS, each.samples, each.rate_hz, each.at)
                    for samples in mixer.due(clock.now()):
                        await live.push(samples, mixer.rate_hz)
        finally:
            live.close()
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)

    @property
    def _rings(self) -> bool:
        """Whether the page is to hear that it rings: nothing has come from the other end."""
        return self._states.last.state == "ringing" and not self._far_sounds

    async def _hear_far(self, mixer: Mixer) -> None:
        async with aclosing(self.call.audio(steady=True)) as frames:
            async for frame in frames:
                self._far_sounds = True
                mixer.put(FAR, frame.samples, frame.rate_hz, frame.at)


class DialledBridge(CallBridge):
    """A call that a page has made. Its microphone is in it from the answer on.

    While something is said by typing, the microphone waits. When either side ends, so does the
    other; where the far end hands the call on, or another one takes its place, the page is in that.
    """

    def __init__(self, page: Call, call: Call) -> None:
        super().__init__(page, call, talking=True, first=CONNECTING)

    async def _follow(self) -> None:
        async for event in self.call.events:
            if isinstance(event, TransferAsked):
                event.refuse()  # the page knows this one party
            state = state_of_event(event)
            if state is not None:
                self._note(state, event.at)

    async def _next_call(self) -> Call | None:
        return await self.call.successor()

    def _talk_in(self) -> LiveSound:
        return self.call.live(gives_way=True)

    async def _left(self) -> None:
        await self.call.hangup()
        await self._follow()


class MonitorBridge(CallBridge):
    """A page in a call that runs without it: it hears both sides, and is heard where it asks to be.

    When it begins to talk, what the call's agent is saying is interrupted; what it would say next
    waits until the page talks no more. When the call ends, so does the page's, unless another one
    goes on in its place; when the page leaves, the call goes on. ``find``: a call by its name.
    """

    def __init__(
        self, page: Call, call: Call, find: Callable[[str], Call | None] = lambda name: None
    ) -> None:
        super().__init__(page, call, talking=False, first=UP)
        self._find = find

    def talk(self, on: bool) -> None:
        """Be heard in the call, or no more."""
        if on and not self.talking:
            self.call.interrupt()
            with contextlib.suppress(SpeechError):  # not answered yet: it joins with the answer
                self._live = self._talk_in()
        super().talk(on)

    async def _follow(self) -> None:
        async for event in self.call.progress():
            state = state_of_event(event)
            if state is not None:
                self._note(state, event.at)
        if self._end is None:
            self._end = LineState("ended", await self.call.ended())

    async def _next_call(self) -> Call | None:
        """A guest takes no call over: it goes on with what a program or agent goes on with."""
        await self.call.ended()
        following = self._find(self.call.facts.continued_by)
        if following is not None:
            with contextlib.suppress(SpeechError):
                await following.answered()
                return following
        return None

    def _talk_in(self) -> LiveSound:
        return self.call.live(gives_way=False)

    async def _left(self) -> None:
        """The call goes on."""


async def _to_the_end(call: Call) -> None:
    await call.ended()


async def _ended_quietly(work: Coroutine[None, None, None]) -> None:
    """Either call may be over at any moment; what ends it is told elsewhere."""
    with contextlib.suppress(SpeechError, PacerError):
        await work
