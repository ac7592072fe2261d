"""Bridge between a page's call and another one.

    microphone ─ steady frames ─ LiveSound ─ the other call's speaker and sink
    the other call's far end ─ steady frames ─┐
    the other call's own speech ─ sent audio ─┴ Mixer ─ LiveSound ─ the page's speaker and sink

The jitter buffers that the frames come from (`Playout`) adapt both far ends' clocks to ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from typing import Any

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
from qwen3tts_phone.softphone.messages import State
from qwen3tts_phone.softphone.mixer import Mixer, RingbackTone
from qwen3tts_speech.line import Utterance, VoiceOptions
from qwen3tts_speech.sound import LiveSound
from qwen3tts_wire.errors import SpeechError, log_text

CONNECTING = State("connecting")
UP = State("up")


def state_of_event(event: CallEvent) -> State | None:
    match event:
        case CallRinging():
            return State("ringing")
        case CallForwarded():
            return State("ringing", "The call is being forwarded.")
        case CallQueued():
            return State("ringing", "The call is queued.")
        case CallEarlyMedia():
            return State("ringing", "The other side plays something before it answers.")
        case CallAnswered() | CallResumed():
            return UP
        case CallHeld():
            return State("up", "The other side has put the call on hold.")
        case CallEnded():
            return State("ended", event.cause, event.remedy, event.by, event.code)
        case _:
            return None


class StateHistory:
    def __init__(self, first: State) -> None:
        self._states = [first]
        self._news = asyncio.Event()

    @property
    def last(self) -> State:
        return self._states[-1]

    def add(self, state: State) -> None:
        if state != self.last and self.last.state != "ended":
            self._states.append(state)
            self._news.set()
            self._news = asyncio.Event()

    async def all(self) -> AsyncIterator[State]:
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


logger = logging.getLogger(__name__)

PTIME_MS = 20
FAR, OURS, RINGBACK = "far", "ours", "ringback"


class CallBridge(ABC):
    """Bridge of two calls, made by `Gateway`; ends with either of them."""

    def __init__(self, page: Call, call: Call, *, talking: bool, first: State) -> None:
        self.page = page
        self.call = call
        self.talking = talking
        self.on_moved: Callable[[Call], None] | None = None
        """Called with the call that has replaced ``call``."""
        self._states = StateHistory(first)
        self._moved_at = -math.inf
        self._end: State | None = None
        """End of the other call; another one may replace it."""
        self._live: LiveSound | None = None
        self._far_sounds = False
        self._over = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None
        self._running = asyncio.create_task(self._run(), name=f"page joined to {call.id}")

    # --- requests of the page

    def speak(
        self, words: str | AsyncIterable[str], options: VoiceOptions | None = None
    ) -> Utterance:
        return self.call.speak(words, options)

    def interrupt(self) -> list[Utterance]:
        return self.call.interrupt()

    async def press(self, digits: str) -> None:
        await self.call.send_dtmf(digits)

    def talk(self, on: bool) -> None:
        self.talking = on
        if not on:
            self._close_live()

    # --- state

    def states(self) -> AsyncIterator[State]:
        """Yield the other call's states so far and further ones, to ``ended``."""
        return self._states.all()

    async def over(self) -> None:
        await self._over.wait()

    async def close(self) -> None:
        """Take the page out; a dialled call is hung up, a monitored one continues."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._leave(), name="page leaves")
        await asyncio.shield(self._closing)

    # --- kinds of bridges

    @abstractmethod
    async def _follow(self) -> None: ...

    @abstractmethod
    async def _next_call(self) -> Call | None: ...

    @abstractmethod
    def _talk_in(self) -> LiveSound: ...

    @abstractmethod
    async def _left(self) -> None: ...

    # --- inside

    async def _run(self) -> None:
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
        following = asyncio.create_task(self._follow())
        moving = asyncio.create_task(self._next_call())
        streams = [self._give_microphone(), self._give_sound()]
        running = [asyncio.create_task(_until_ended(each)) for each in streams]
        ends: set[asyncio.Task[Any]] = {following, moving, page_over}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if following.done() and not page_over.done():
                # A call that is over may have a pending transfer.
                await asyncio.wait({moving, page_over}, return_when=asyncio.FIRST_COMPLETED)
            return moving.result() if moving.done() else None
        finally:
            for task in (following, moving, *running):
                task.cancel()
            outcomes = await asyncio.gather(following, moving, *running, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, Exception):
                    logger.error("a bridged call failed", exc_info=outcome)
            self._close_live()
            if isinstance(outcomes[1], Call):  # ours, also when the page has ended
                self.call, self._end, self._far_sounds = outcomes[1], None, False

    def _moved_to(self, call: Call) -> None:
        self._moved_at = self.page.clock.now()
        self._states.add(State("up", f"The call goes on with {call.remote_uri}."))
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
            logger.warning("a bridged call did not end properly: %s", log_text(error))
        finally:
            self._states.add(self._end or State("ended", "The page has left.", by="local"))
            self._over.set()

    def _note(self, state: State, at: float) -> None:
        if state.state == "ended":
            self._end = state
        elif at > self._moved_at:  # states of the replacing call before it replaced are past
            self._states.add(state)

    def _close_live(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.close()

    async def _give_microphone(self) -> None:
        await self.page.answered()
        await self.call.answered()
        async with aclosing(self.page.audio(steady=True)) as frames:
            async for frame in frames:
                if not self.talking or self.call.held:
                    continue  # dropped, not sent later
                if self._live is None:
                    self._live = self._talk_in()
                await self._live.push(frame.samples, frame.rate_hz)

    async def _give_sound(self) -> None:
        await self.page.answered()
        speaker = self.page.speaker
        if speaker is None:
            return
        clock, call = self.page.clock, self.call
        rate_hz = speaker.payload.sample_hz
        mixer, ringback = Mixer(rate_hz, PTIME_MS, clock.now()), RingbackTone(rate_hz)
        live = self.page.live()
        hearing = asyncio.create_task(_until_ended(self._hear_far(mixer)))
        try:
            with call.sent_audio() as sent:
                while not hearing.done():
                    await clock.sleep_until(deadline := mixer.next_deadline)
                    if self._rings:
                        count = rate_hz * PTIME_MS // 1000
                        mixer.put(RINGBACK, ringback.next(count), rate_hz, deadline)
                    for each in sent.take():
                        if not each.live:  # not an echo of the page's own microphone
                            mixer.put(OURS, each.samples, each.rate_hz, each.at)
                    for samples in mixer.due(clock.now()):
                        await live.push(samples, mixer.rate_hz)
        finally:
            live.close()
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)

    @property
    def _rings(self) -> bool:
        return self._states.last.state == "ringing" and not self._far_sounds

    async def _hear_far(self, mixer: Mixer) -> None:
        async with aclosing(self.call.audio(steady=True)) as frames:
            async for frame in frames:
                self._far_sounds = True
                mixer.put(FAR, frame.samples, frame.rate_hz, frame.at)


class DialledBridge(CallBridge):
    """Bridge to a dialled call, with the microphone from the answer on.

    The microphone gives way to typed speech. Either side's end ends the other; the page follows a
    transfer or replacement.
    """

    def __init__(self, page: Call, call: Call) -> None:
        super().__init__(page, call, talking=True, first=CONNECTING)

    async def _follow(self) -> None:
        async for event in self.call.events:
            if isinstance(event, TransferAsked):
                event.refuse()  # the page called this party only
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
    """Bridge that monitors a running call; the page is heard on request.

    Talking interrupts the call's agent, whose next speech waits. The page's call ends with the
    call, unless that is replaced, but not the reverse. ``find``: returns a call by name.
    """

    def __init__(
        self, page: Call, call: Call, find: Callable[[str], Call | None] = lambda name: None
    ) -> None:
        super().__init__(page, call, talking=False, first=UP)
        self._find = find

    def talk(self, on: bool) -> None:
        if on and not self.talking:
            self.call.interrupt()
            with contextlib.suppress(SpeechError):  # not answered yet
                self._live = self._talk_in()
        super().talk(on)

    async def _follow(self) -> None:
        async for event in self.call.progress():
            state = state_of_event(event)
            if state is not None:
                self._note(state, event.at)
        if self._end is None:
            self._end = State("ended", await self.call.ended())

    async def _next_call(self) -> Call | None:
        await self.call.ended()
        following = self._find(self.call.facts.continued_by)
        if following is not None:
            with contextlib.suppress(SpeechError):
                await following.answered()
                return following
        return None

    def _talk_in(self) -> LiveSound:
        return self.call.live(gives_way=False)

    async def _left(self) -> None: ...


async def _to_the_end(call: Call) -> None:
    await call.ended()


async def _until_ended(work: Coroutine[None, None, None]) -> None:
    # Either call may end at any moment, which is reported elsewhere.
    with contextlib.suppress(SpeechError, PacerError):
        await work
