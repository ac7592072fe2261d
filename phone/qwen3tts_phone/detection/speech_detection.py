"""Speech detection on a call: core, recogniser and barge-in joined into turns.

    listening = SpeechDetection(call, ListenSettings(), recogniser)
    async for turn in listening:
        await call.say(reply_to(turn.text))

A barge-in silences the agent in the event loop step that takes the deciding frame.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, Final, Protocol

from qwen3tts_phone.audio.frames import HeardFrame, KeyPressed, SentAudio
from qwen3tts_phone.detection.core import SpeechDetectionCore
from qwen3tts_phone.detection.endpointing import (
    EndpointState,
    KeyGroup,
    KeyTurns,
    TurnDetector,
)
from qwen3tts_phone.detection.events import (
    CallerCutIn,
    ListenEvent,
    MissingDetector,
    OnsetHeard,
    SpeechPaused,
    SpeechResumed,
    Turn,
    TurnEnded,
    WordsGuessed,
)
from qwen3tts_phone.detection.overlap_control import OverlapControl, OverlappedCall
from qwen3tts_phone.detection.pause_control import PauseControl
from qwen3tts_phone.detection.recogniser import Recogniser
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.detection.smart_turn import turn_detector_of
from qwen3tts_phone.detection.turn_transcriber import TurnTranscriber
from qwen3tts_phone.errors import WrongState
from qwen3tts_phone.facts import CallFacts
from qwen3tts_speech.utterance import Utterance
from qwen3tts_wire.errors import log_text

logger = logging.getLogger(__name__)

TICK_S: Final = 0.05
"""Interval of checks for a far end that sends nothing."""
MAX_UNREAD_TURNS: Final = 100
"""Unread turns that are kept; the oldest are dropped first."""


class DetectedCall(OverlappedCall, Protocol):
    """Part of a `Call` that speech detection uses."""

    @property
    def audio(self) -> Callable[[], AsyncIterator[HeardFrame]]: ...

    @property
    def dtmf(self) -> Callable[[], AsyncIterator[KeyPressed]]: ...

    @property
    def facts(self) -> CallFacts: ...

    def interrupt(self) -> list[Utterance]: ...

    def sent_audio(self) -> SentAudio: ...


class SpeechDetection:
    """Speech detection of one call: an asynchronous iterator of `Turn`.

    It works from the first ``async for`` (or `start`) to the call's end or `aclose`.

    Args:
        call: the call.
        settings: VAD, endpointing and barge-in.
        recogniser: None = turns have no text.
        turn_detector: may end a turn before its pause does, or extend it; None = as
            ``settings`` say, else the pause alone.
        on_event: called with each `ListenEvent` when decided, after its barge-in.

    Raises MissingDetector.
    """

    def __init__(
        self,
        call: DetectedCall,
        settings: ListenSettings | None = None,
        recogniser: Recogniser | None = None,
        *,
        turn_detector: TurnDetector | None = None,
        on_event: Callable[[ListenEvent], None] | None = None,
    ) -> None:
        self.settings = settings or ListenSettings()
        self.on_event = on_event
        self.on_voice: Callable[[bool, float], None] | None = None
        """Called with True at an onset or resumption, with False at a turn's end."""
        self.followers: list[Callable[[Turn], None]] = []
        """Called with each turn the moment it is there."""
        self.quiet = asyncio.Event()
        """Set while no turn is open, and when the call is over."""
        self.quiet.set()
        self.interrupted: set[Utterance] = set()
        """All utterances that the caller has stopped."""
        self.unread_turns = 0
        """Turns dropped because they were not read."""
        self._call = call
        self._clock = call.clock
        self._core = SpeechDetectionCore(self.settings, self._clock.now())
        self._keys = KeyTurns(self.settings)
        self._hearer = TurnTranscriber(
            recogniser, self._clock, self.settings.max_turn_s, self.settings.noise_suppression
        )
        self._hearer.on_guess = self._guessed
        self.overlaps = OverlapControl(
            *(call, self.settings, self._core.turns, self._hearer, self._silence, self._tell),
            echo=lambda: self._core.hears_echo,
        )
        """Speech of the caller over the agent's."""
        self._pauses = PauseControl(
            self.settings,
            self._core.turns,
            self._hearer,
            turn_detector or _configured(self.settings),
            self._clock,
            self._handle,
        )
        self._sent: SentAudio | None = None
        self._stopped: list[Utterance] = []
        """Utterances stopped by the open turn."""
        self._ready: deque[Turn] = deque()
        self._news = asyncio.Event()
        self._over = False
        self._running: asyncio.Task[None] | None = None

    @property
    def caller_speaking(self) -> bool:
        """True during the caller's turn, its pauses included."""
        return self._core.speaking

    @property
    def partial(self) -> str:
        return self._hearer.partial

    def expect(self, said: str) -> None:
        """Note the agent's last words: digits, a spelling, an address that they ask for."""
        self._pauses.rules.expect(said)

    # --- turns

    def __aiter__(self) -> AsyncIterator[Turn]:
        return self._turns()

    async def _turns(self) -> AsyncIterator[Turn]:
        try:
            while True:
                try:
                    turn = await anext(self)
                except StopAsyncIteration:
                    return
                yield turn
        finally:
            await self.aclose()

    async def __anext__(self) -> Turn:
        self.start()
        while not self._ready:
            if self._over:
                await self._raise_failure()
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._ready.popleft()

    def start(self) -> None:
        if self._running is None and not self._over:
            self._running = asyncio.create_task(self._run(), name="listening")

    def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
        self._ended()

    async def aclose(self) -> None:
        self.stop()
        if self._running is not None:
            await asyncio.wait([self._running])

    async def __aenter__(self) -> SpeechDetection:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # --- running

    async def _run(self) -> None:
        self._sent = self._call.sent_audio()
        try:
            await self._hearer.open()
            async with asyncio.TaskGroup() as group:
                others = [group.create_task(self._watch())]
                if self.settings.keys:
                    others.append(group.create_task(self._read_keys()))
                async for frame in self._call.audio():
                    self._frame(frame)
                for other in others:
                    other.cancel()
            self._handle(self._core.finish("call_over", self._clock.now()))
            self._key_turn(self._keys.take(self._clock.now()))
            await self._hearer.settled()
        except BaseExceptionGroup as group:
            raise _first(group) from None
        finally:
            self._pauses.close()
            self.overlaps.close()
            self._sent.close()
            await self._hearer.close()
            self._ended()

    def _frame(self, frame: HeardFrame) -> None:
        assert self._sent is not None
        now = self._clock.now()
        self._core.agent_speaking(self._call.speaking, now)
        events = self._core.push(frame, self._sent.take(), now)
        self._hearer.push(frame)
        self._handle(events)
        self._pauses.progress(self._call.speaking)
        self.overlaps.progress()

    async def _watch(self) -> None:
        assert self._sent is not None
        while True:
            now = self._clock.now()
            await self._clock.sleep_until(now + TICK_S)
            now = self._clock.now()
            self._core.agent_speaking(self._call.speaking, now)
            self._handle(self._core.tick(now, self._sent.take()))
            self._pauses.progress(self._call.speaking)
            self.overlaps.progress()
            if self._keys.complete or not self._core.speaking:
                self._key_turn(self._keys.due(now))

    async def _read_keys(self) -> None:
        async for key in self._call.dtmf():
            if self.settings.keys_interrupt and self._call.speaking:
                self._interrupt("key")
            dropped = self._keys.dropped
            complete = self._keys.press(key.digit, key.at)
            self._call.facts.keys_ignored += self._keys.dropped - dropped
            if complete is not None:
                self._key_turn(complete)

    # --- deciding

    def _handle(self, events: list[ListenEvent]) -> None:
        for event in events:
            self._pauses.note(event)
            match event:
                case OnsetHeard(began_at=began_at):
                    self._hearer.begin(began_at)
                case CallerCutIn():
                    if self.overlaps.cut_in(event):
                        continue
                    self._interrupt()
                case SpeechPaused(ended_at=ended_at):
                    self._hearer.pause(ended_at)
                case SpeechResumed():
                    self._hearer.resume()
                    self.overlaps.resumed()
                case TurnEnded():
                    event = self._turn(event)
                case _:
                    pass
            self._tell(event)
            if isinstance(event, SpeechPaused) and self._hearer.guess:
                self._guessed(self._hearer.guess)  # it came before, in an overlap

    def _interrupt(self, rule: str = "") -> None:
        self.overlaps.interrupt(rule)
        self._silence()

    def _silence(self, late: bool = False) -> list[Utterance]:
        stopped = self._call.interrupt()
        if not late:  # by the open turn
            self._stopped += stopped
        self.interrupted.update(stopped)
        return stopped

    def _tell(self, event: ListenEvent) -> None:
        if isinstance(event, OnsetHeard | SpeechResumed | TurnEnded):
            ended = isinstance(event, TurnEnded)
            if ended and not self._core.speaking:
                self.quiet.set()
            elif not ended:
                self.quiet.clear()
            if self.on_voice is not None:
                self.on_voice(not ended, event.at)
        if self.on_event is not None:
            self.on_event(event)

    def _guessed(self, text: str) -> None:
        if self._core.turns.state is EndpointState.PAUSED:
            now = self._clock.now()
            self._tell(WordsGuessed(now, text, self._core.turns.speech_s))
            self._pauses.guessed(text)

    def _turn(self, ended: TurnEnded) -> TurnEnded:
        told, judged = self.overlaps.turn_ended(ended)
        stopped, self._stopped = tuple(self._stopped), []
        if judged is None and told.why == "noise" and not told.cut_in:
            self._hearer.give_up()
            return told
        ended = told if judged is None else replace(told, why=ended.why)
        keys = self._keys.take(self._clock.now()) if ended.why != "noise" else None

        def deliver(turn: Turn) -> None:
            delivered = turn if judged is None else judged(turn)
            if delivered is not None:
                self._deliver(delivered)

        self._hearer.end(ended, stopped, keys.digits if keys else "", deliver)
        return told

    def _key_turn(self, keys: KeyGroup | None) -> None:
        if keys is None:
            return
        if self._core.speaking:
            self._keys.restore()
            self._handle(self._core.finish("keys", self._clock.now()))
            keys = self._keys.take(self._clock.now())  # there still where that was noise
            if keys is None:
                return
        moments = _moments(keys.began_at, keys.ended_at, self._clock.now())
        self._unspoken(Turn(keys=keys.digits, why="keys", **moments))

    def typed(self, text: str) -> None:
        """Take a typed turn, ignored where blank. Raises WrongState.

        It interrupts the agent if ``barge_in``.
        """
        if self._over:
            raise WrongState("The speech detection has ended.", remedy="Call again.")
        if not text.strip():
            return
        if self.settings.barge_in and self._call.speaking:
            self._interrupt("typed")
        now = self._clock.now()
        self._unspoken(Turn(text=text.strip(), why="typed", **_moments(now, now, now)))

    def _unspoken(self, turn: Turn) -> None:
        stopped, self._stopped = tuple(self._stopped), []
        turn = replace(turn, barge_in=bool(stopped), interrupted=stopped)
        self._hearer.deliver(turn, self._deliver)

    def _deliver(self, turn: Turn) -> None:
        self.overlaps.note_language(turn)
        if turn.why != "noise":
            self._call.facts.note_turn(turn.text, turn.began_at, barge_in=turn.barge_in)
        for follower in list(self.followers):
            follower(turn)
        self._ready.append(turn)
        if len(self._ready) > MAX_UNREAD_TURNS:
            self._ready.popleft()
            self.unread_turns += 1
        self._news.set()

    # --- the end

    def _ended(self) -> None:
        self._over = True
        self.quiet.set()
        self._news.set()

    async def _raise_failure(self) -> None:
        running = self._running
        if running is not None:
            await asyncio.wait([running])
            if not running.cancelled() and (error := running.exception()) is not None:
                raise error


def _configured(settings: ListenSettings) -> TurnDetector | None:
    try:
        return turn_detector_of(settings)
    except MissingDetector as error:  # checked before a call where a program asks for that
        logger.error("no turn detector, the pause decides: %s", log_text(error))
        return None


def _moments(began_at: float, ended_at: float, now: float) -> dict[str, Any]:
    return {
        "began_at": began_at,
        "ended_at": ended_at,
        "decided_at": now,
        "transcribed_at": now,
    }


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
