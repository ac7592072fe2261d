"""A call over any line: it speaks, listens, records, transfers and ends.

    await call.answer()                                  # an incoming call
    spoken = await call.say("Good morning.")             # Spoken: the text that was heard
    pin = await call.ask("Your number, please.", keys=4)  # Gathered: pin.keys
    async for turn in call.hear(recogniser="whisper"):   # speech of the far end
        await call.say(reply_to(turn.text))
    await call.hangup()

A call over SIP is a `PhoneCall` (of `Phone`), a media stream of a PBX or a carrier a `StreamCall`
(of `Streams`).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

import numpy as np
from numpy.typing import NDArray

from qwen3tts_pacer.gain import DUCK_DB, tenths
from qwen3tts_phone.audio.answering import Answerer, AnsweringSettings
from qwen3tts_phone.audio.frames import KeyPressed, SentAudio
from qwen3tts_phone.call.core import CallCore
from qwen3tts_phone.call.dialogue import Gathered, OnMachine, Question, ask, await_greeting
from qwen3tts_phone.call.events import AnswererHeard, LineEvent
from qwen3tts_phone.call.view import CallView
from qwen3tts_phone.errors import CallError, MachineAnswered, NotPossible, WrongState
from qwen3tts_phone.records.recording import Recording
from qwen3tts_speech.line import Saying, Speaker, Spoken, Utterance, VoiceOptions
from qwen3tts_speech.sink import DuckMode
from qwen3tts_speech.sound import LiveSound

if TYPE_CHECKING:
    from qwen3tts_phone.detection.endpointing import TurnDetector
    from qwen3tts_phone.detection.recogniser import Recognise, Recogniser
    from qwen3tts_phone.detection.settings import ListenSettings
    from qwen3tts_phone.detection.speech_detection import SpeechDetection


LINGER_S = 0.2
"""Wait after the last frame before hanging up: the far end's jitter buffer holds it."""


class Call(CallView, ABC):
    """A call in either direction; an async context manager that hangs up.

    Times are seconds of the monotonic clock (`clock`).
    """

    def __init__(self, core: CallCore) -> None:
        super().__init__(core)
        self._listening: SpeechDetection | None = None
        self._greeting: asyncio.Task[None] | None = None
        self.on_hear: Callable[[SpeechDetection], None] | None = None
        """Called with each `hear`."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.line}, {self.direction}, {self.id!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.hangup()

    # --- events

    @property
    def events(self) -> AsyncIterator[CallEvent]:
        return cast("AsyncIterator[CallEvent]", self._core.event_stream.all())

    def progress(self) -> AsyncIterator[CallEvent]:
        """Return the events from now on; for any number of readers."""
        return cast("AsyncIterator[CallEvent]", self._core.event_stream.following())

    # --- taking it

    @abstractmethod
    async def answer(self, headers: Mapping[str, str] | None = None) -> None:
        """Answer an incoming call, with further header lines where the line has such.

        Sound flows when it returns. Raises WrongState (over, or outgoing), CallError (no common
        media).
        """

    async def up(self) -> Call:
        """Wait as :meth:`answered`; return the call that is up.

        This one, or its replacement while ringing (RFC 3891).
        """
        moving = asyncio.ensure_future(self.successor())
        try:
            await self.answered()
        except CallError:
            following = await moving
            if following is None:
                raise
            return await following.up()
        finally:
            moving.cancel()
        return self

    async def reject(
        self, status: int = 486, reason: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Refuse an incoming call with a SIP status (486 = busy, 603 = declined).

        Raises NotPossible where the line brings only answered calls.
        """
        raise NotPossible("A refusal", self.line, remedy="Hang up instead.")

    async def answered(self) -> None:
        """Wait for the answer, and with ``on_machine`` for a greeting or the beep.

        Raises:
            CallRefused: refused (busy, declined, not found, ...).
            CalleeUnreachable: no answer came from that address.
            MachineAnswered: an answering machine took it; it was hung up.
            CallError: it ended otherwise.
        """
        await asyncio.shield(self._core.up)
        if self._greeting is not None:
            await asyncio.shield(self._greeting)

    # --- speaking

    def speak(
        self, words: str | AsyncIterable[str], options: VoiceOptions | None = None
    ) -> Utterance:
        """Queue an utterance and return immediately.

        Args:
            words: a text, or deltas of a language model.
            options: voice and language; None = those of the line's settings.

        Raises WrongState (not answered, or over), BadText (empty).
        """
        return self._voice().say(words, options)

    def prepare(
        self, words: str | AsyncIterable[str], options: VoiceOptions | None = None
    ) -> Utterance:
        """Synthesise an utterance ahead, and hold it: nothing is played or counted.

        ``release()`` queues it, ``drop()`` ends it without a trace. As :meth:`speak` otherwise.
        """
        return self._voice().prepare(words, options)

    async def say(
        self, words: str | AsyncIterable[str], options: VoiceOptions | None = None
    ) -> Spoken:
        """Say a text, or a language model's deltas, until heard or interrupted.

        It waits for the answer of an outgoing call. The result has the text ``heard`` and, after an
        interruption, ``remaining``. Cancelling it stops the wait, not the speech.

        Raises:
            WrongState: the call is over, or incoming and not answered.
            CallError: the call was not answered, or ended meanwhile.
            SpeechError: the source of the text, the server or the engine failed.
        """
        await self._audible()
        return await self.speak(words, options).spoken()

    async def play(self, samples: NDArray[np.int16], rate_hz: int) -> bool:
        """Play samples of shape [n], queued as an utterance; False: interrupted.

        Raises as :meth:`say`.
        """
        await self._audible()
        return await self._voice().play(samples, rate_hz).played()

    def live(self, *, gives_way: bool = True) -> LiveSound:
        """Mix in live sound: ``await live.push(samples, rate_hz)``, ``close()``.

        Latency is at most 0.2 s. ``gives_way``: live sound is dropped during utterances; False:
        utterances wait until it is closed. An interruption does not end it. Raises WrongState.
        """
        sound = self._voice().live(gives_way=gives_way)
        self._core.outbound.add_live(sound)
        return sound

    def interrupt(self) -> list[Utterance]:
        """Flush all speech with the next frame; synchronous, harmless without speech.

        Returns the interrupted utterances; see ``await utterance.spoken()``.
        """
        return self._core.speaker.interrupt() if self._core.speaker is not None else []

    def duck(self, db: float = DUCK_DB) -> DuckMode:
        """Lower our speech by ``db`` decibels (0 to 40) with the next frame.

        Words and positions go on. It lasts until :meth:`unduck`, an interruption, or the end of
        the speech; without speech there is no effect. Returns ``"hold"`` where the codec's frames
        cannot be scaled (G.722, Opus): then the speech pauses. Raises ValueError.
        """
        if self._core.speaker is not None:
            return self._core.speaker.duck(db)
        tenths(db)
        return "duck"

    def unduck(self) -> None:
        """Return to full level with the next frame; harmless without :meth:`duck`."""
        if self._core.speaker is not None:
            self._core.speaker.unduck()

    def saying(self) -> Saying | None:
        """Return the text that is being spoken; None = none, or it has no text."""
        return self._core.speaker.saying() if self._core.speaker is not None else None

    async def send_dtmf(
        self, keys: str, *, method: str = "auto", duration_ms: int = 160, gap_ms: int = 80
    ) -> None:
        """Send keys of ``0123456789*#ABCD`` while speech waits; returns after the last.

        Raises NotPossible (the line has no DTMF), CallError (the call is not up).
        """
        raise NotPossible("Pressing keys", self.line)

    # --- listening

    def hear(
        self,
        settings: ListenSettings | None = None,
        recogniser: Recogniser | Recognise | str | None = None,
        *,
        turn_detector: TurnDetector | None = None,
    ) -> SpeechDetection:
        """Listen to the far end, turn by turn: ``async for turn in call.hear(...)`` (`Turn`).

        Barge-in interrupts speech from the first ``async for`` on, unless ``settings`` say
        otherwise. A further `hear` ends the one before.

        Args:
            settings: thresholds of speech detection, barge-in and endpointing.
            recogniser: a `Recogniser`; a function, async or not, of a turn's samples and their
                rate; or a name, such as ``"whisper"`` (shared by the line's calls). None: turns
                without text.
            turn_detector: may end a turn before its pause does, or extend it.

        Raises MissingDetector (no voice activity detector), BadRequest (unknown recogniser).
        """
        from qwen3tts_phone.detection.speech_detection import SpeechDetection

        chosen = self._core.recognisers.chosen(recogniser)
        listening = SpeechDetection(self, settings, chosen, turn_detector=turn_detector)
        if self._listening is not None:
            self._listening.stop()
        self._listening = listening
        if self.on_hear is not None:
            self.on_hear(listening)
        return listening

    async def ask(
        self,
        question: str,
        *,
        keys: int | None = None,
        hear: Recogniser | Recognise | str | None = None,
        until: str = "#",
        first_s: float = 8.0,
        pause_s: float = 3.0,
        tries: int = 1,
        again: str = "",
    ) -> Gathered:
        """Ask a question and wait for keys, or with ``hear`` speech as well.

        The first key or speech interrupts the question; keys pressed before it count. On an
        outgoing call it waits for the answer of the phone.

        Args:
            question: text of the question.
            keys: maximum number of keys, which completes the answer; None = any number, 0 = no
                keys.
            hear: recogniser, as in :meth:`Call.hear`; None = keys alone.
            until: keys that complete the answer and are no part of it; empty = none.
            first_s: seconds after the question within which the answer must begin.
            pause_s: most seconds between two keys.
            tries: number of times it is asked without an answer.
            again: text from the second time on; empty = the question.

        Raises ValueError: an argument out of bounds; else as :meth:`say`.
        """
        asked = Question(question, keys, until, first_s, pause_s, tries, again)
        await self._audible()
        return await ask(self, asked, hear)

    def sent_audio(self) -> SentAudio:
        """Buffer outbound audio; ``take()`` reads it, ``close()`` ends it."""
        return SentAudio(self._core.outbound)

    def record(self, path: str | PathLike[str], *, notice: bool = True) -> Recording:
        """Record both sides in stereo, the caller on the left, to the call's end.

        ``path`` ends in ``.wav``, ``.opus`` or ``.ogg`` and is overwritten. It begins with the
        answer at the earliest. ``notice``: the far end first hears the notice of the settings'
        ``consent``. The result can be awaited (begun), stopped, and used with ``async with``.

        Raises WrongState, ValueError (another kind of file, or one in use), OSError, or CallError
        (no Opus library).
        """
        self._core.check_up()
        return self._core.recordings.record(Path(path), notice=notice)

    # --- changing and ending it

    async def hold(self) -> None:
        """Put the far end on hold; raises CallError where it refuses."""
        raise NotPossible("Hold", self.line)

    async def resume(self) -> None:
        """Resume from hold; raises CallError as :meth:`hold`."""
        raise NotPossible("Hold", self.line)

    async def transfer(self, target: str, *, headers: dict[str, str] | None = None) -> None:
        """Transfer the call to ``target`` (blind); ours has ended on return.

        Raises:
            CallNotAllowed: the guard forbids that target.
            CallRefused: the far end does not take transfers.
            TransferFailed: the target was not reached; the call goes on.
            NotPossible: the line has no transfer.
        """
        raise NotPossible("A transfer", self.line)

    @abstractmethod
    async def hangup(self, headers: Mapping[str, str] | None = None) -> None:
        """End the call in any state, after the far end's buffer has played out."""

    async def ended(self) -> str:
        """Wait until the call is over and recorded; return the cause in words."""
        await self._core.cleared.wait()
        return self._core.cause

    async def successor(self) -> Call | None:
        """Wait for the call that replaces this one and take it over; None: no such call.

        It is up, and follows a transfer by the far end (setting ``transfers``) or a Replaces
        header. A successor that is not taken over is hung up.
        """
        return cast("Call | None", await self._core.succession.wait())

    def claim(self) -> None:
        self._core.claimed.set()

    async def claimed(self) -> None:
        await self._core.claimed.wait()

    def await_claim(self) -> None:
        self._core.await_claim()

    def screen(self, wanted: OnMachine, settings: AnsweringSettings | None = None) -> None:
        self._greeting = asyncio.create_task(self._greeted(wanted, settings), name="greeting")
        self._greeting.add_done_callback(lambda task: task.cancelled() or task.exception())

    # --- inside

    async def _audible(self) -> None:
        core = self._core
        rings = self.direction == "out" and not (core.may_speak or core.over.is_set())
        if rings or self._greeting is not None:
            await self.answered()

    async def _greeted(self, wanted: OnMachine, settings: AnsweringSettings | None) -> None:

        def tell(heard: Answerer) -> None:
            self._core.publish(AnswererHeard(self.clock.now(), heard.kind, heard.words))

        await asyncio.shield(self._core.up)
        try:
            await await_greeting(self, wanted, settings, tell)
        except MachineAnswered:
            await self.hangup()
            raise

    def _voice(self) -> Speaker:
        core = self._core
        core.check_up()
        if core.speaker is None or not core.may_speak:
            raise WrongState(
                "Nothing can be said: the call is not answered yet.",
                remedy="Await call.answer() for one that came in, call.answered() for one of ours.",
            )
        return core.speaker

    async def _linger(self) -> None:
        self.interrupt()
        sink = self._core.sink
        if sink is not None and sink.last_at is not None:
            await self.clock.sleep_until(sink.last_at + LINGER_S)


@dataclass(frozen=True, slots=True)
class TransferAsked:
    """Transfer request of the far end (REFER): ``await accept()`` or ``refuse()``."""

    at: float
    target: str
    referred_by: str
    """Header Referred-By; empty = there was no such header."""
    accept: Callable[[], Awaitable[Call]] = field(repr=False)
    """Call the target and tell the far end how it goes; the new call. Raises CallError."""
    refuse: Callable[[], None] = field(repr=False)


@dataclass(frozen=True, slots=True, match_args=False)
class CallTransferred:
    """Transfer by the far end: ``call`` is up with the other party."""

    at: float
    _call: Call = field(repr=False)

    __match_args__ = ("at", "call")

    @property
    def call(self) -> Call:
        """The new call; reading takes it over, else it is hung up."""
        self._call.claim()
        return self._call


CallEvent = LineEvent | KeyPressed | TransferAsked | CallTransferred
