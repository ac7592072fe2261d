"""What a call hears, for whoever iterates over it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
)
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

import numpy as np
from numpy.typing import NDArray

from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.audio.answering import Answerer, AnsweringSettings
from qwen3tts_phone.audio.frames import KeyPressed, SentAudio
from qwen3tts_phone.audio.inbound import InboundAudio
from qwen3tts_phone.call.core import CallCore
from qwen3tts_phone.call.dialogue import Gathered, OnMachine, Question, ask, await_greeting
from qwen3tts_phone.call.events import (
    AnswererHeard,
    CallAnswered,
    CallEarlyMedia,
    CallEnded,
    CallForwarded,
    CallHeld,
    CallQueued,
    CallResumed,
    CallRinging,
    CodecChanged,
    InfoHeard,
    MediaBegan,
    MediaSilent,
    TransferProgress,
)
from qwen3tts_phone.call.keys import Keypad
from qwen3tts_phone.errors import CallError, MachineAnswered, NotPossible, WrongState
from qwen3tts_phone.facts import CallFacts
from qwen3tts_phone.records.recording import Recording
from qwen3tts_speech.line import Speaker, Spoken, Utterance, VoiceOptions
from qwen3tts_speech.sound import LiveSound

if TYPE_CHECKING:
    from qwen3tts_phone.detection.endpointing import TurnDetector
    from qwen3tts_phone.detection.recogniser import Recognise, Recogniser
    from qwen3tts_phone.detection.settings import ListenSettings
    from qwen3tts_phone.detection.speech_detection import SpeechDetection
    from qwen3tts_phone.records.record import CallRecord


LINGER_S = 0.2
"""Hanging up waits so long after the last frame of speech: the far end's jitter buffer still
holds the end of the sentence."""


class Call(ABC):
    """A call in either direction; times are seconds of the monotonic clock (`clock`)."""

    def __init__(self, core: CallCore) -> None:
        self._core = core
        self._listening: SpeechDetection | None = None
        self._greeting: asyncio.Task[None] | None = None
        self.on_hear: Callable[[SpeechDetection], None] | None = None
        """Told of each `hear`, for whoever follows what is heard of the far end."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.line}, {self.direction}, {self.id!r})"

    async def __aenter__(self) -> Self:
        """``async with await phone.dial(...) as call``: it is hung up at the end."""
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.hangup()

    # --- what it is

    @property
    def line(self) -> str:
        """What it came or goes by: ``sip``, or the kind of stream, such as ``audiosocket``."""
        return self.facts.line

    @property
    def id(self) -> str:
        """Its name at the line: SIP's Call-ID, a carrier's call id."""
        return self.facts.call_id

    @property
    def direction(self) -> str:
        """``in`` or ``out``."""
        return self.facts.direction

    @property
    def remote_uri(self) -> str:
        """Whom we talk to: a SIP address or a number; empty = the line does not say."""
        return self.facts.remote_uri

    @property
    def dialled_uri(self) -> str:
        """The address or number that was called, by them or by us; empty = not said."""
        return self.facts.dialled_uri

    @property
    def identity(self) -> str:
        """Whom a server says the far end is, else what it says itself."""
        return self.facts.identity or self.remote_uri

    @property
    def display_name(self) -> str:
        """The name that the far end gives itself; empty = none."""
        return self.facts.display_name

    @property
    def account(self) -> str:
        """Name of the account that it is for, or made with; empty = none."""
        return self.facts.account

    @property
    def facts(self) -> CallFacts:
        """All that is known of the call, kept up to date."""
        return self._core.facts

    @property
    def codec(self) -> str:
        """What we send with: PCMU, PCMA, G722, opus or L16; empty = nothing is agreed yet."""
        return self._core.payload.name if self._core.payload is not None else ""

    @property
    def encrypted(self) -> bool:
        """Whether its sound is encrypted on the way."""
        return False

    @property
    def speaking(self) -> bool:
        """Whether something is being said, or waits to be."""
        return self._core.speaker is not None and self._core.speaker.speaking

    @property
    def speaker(self) -> Speaker | None:
        """What speaks on it, for whoever keeps account of utterances himself; None before the
        answer and after the end."""
        core = self._core
        return core.speaker if core.may_speak and not core.over.is_set() else None

    @property
    def held(self) -> bool:
        """Whether the far end has put us on hold: speech waits, nothing of it is lost."""
        return self._core.held

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._core.over.is_set()

    @property
    def clock(self) -> Clock:
        """The time that its events, frames and records are of."""
        return self._core.clock

    @property
    def unheard_frames(self) -> int:
        """Frames of the far end that a listener was too slow to take."""
        return self._core.inbound.unheard_frames

    @property
    def events(self) -> AsyncIterator[CallEvent]:
        """What happens (`call_events`), in order, to its end; for one reader."""
        return cast("AsyncIterator[CallEvent]", self._core.event_stream.all())

    def progress(self) -> AsyncIterator[CallEvent]:
        """The same events once more, from now on; for any number of readers."""
        return cast("AsyncIterator[CallEvent]", self._core.event_stream.following())

    @property
    def detail_record(self) -> CallRecord | None:
        """Its record, once it is over and its recordings are done; None before."""
        return self._core.record

    # --- taking it

    @abstractmethod
    async def answer(self, headers: Mapping[str, str] | None = None) -> None:
        """Take a call that came in; sound flows when it returns.

        ``headers``: further lines of the answer, where the line has such.

        Raises:
            WrongState: it is over, the caller has hung up already; or it is a call of ours.
            CallError: the two sides cannot talk to each other.
        """

    async def up(self) -> Call:
        """Wait as :meth:`answered`; the call that is up: this one, or another that took its place
        while it rang (RFC 3891). Raises as :meth:`answered`."""
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
        """Refuse a call that came in, with a status of SIP (486 = busy, 603 = declined).

        Raises NotPossible where the line brings only calls that are answered already.
        """
        raise NotPossible("A refusal", self.line, remedy="Hang up instead.")

    async def answered(self) -> None:
        """Wait until both ends agree and sound may flow.

        Where the call was dialled with ``on_machine``, it returns when who answered has greeted, or
        a machine records.

        Raises:
            CallRefused: the far end would not take it (busy, declined, not found, ...).
            CalleeUnreachable: nobody answered at that address.
            MachineAnswered: a machine did, and gets no message; it was hung up.
            CallError: it ended otherwise.
        """
        await asyncio.shield(self._core.up)
        if self._greeting is not None:
            await asyncio.shield(self._greeting)

    # --- speaking

    def speak(
        self, words: str | AsyncIterable[str], options: VoiceOptions | None = None
    ) -> Utterance:
        """Begin to say something and return at once; it queues behind what is being said.

        ``words``: a text, or deltas as a language model writes them. ``options``: the voice and
        language for this utterance; None = those of the line's settings.

        Raises:
            WrongState: the call is not answered, or over.
            BadText: an empty text.
        """
        return self._voice().say(words, options)

    async def say(
        self, words: str | AsyncIterable[str], options: VoiceOptions | None = None
    ) -> Spoken:
        """Say a text, or deltas as a model writes them; returns when they were heard or stopped.

        On a call of ours that still rings it waits for the answer. What is given back tells the
        text that was ``heard``, right to the word, and what is ``remaining`` after an
        interruption. Cancelled, it stops waiting, not the speech: that is for :meth:`interrupt`.

        Raises:
            WrongState: the call is over, or came in and is not answered.
            CallError: the call that it waited for was not answered; as :meth:`answered`.
            SpeechError: the words, the server or the engine failed; what had come was said.
        """
        await self._audible()
        return await self.speak(words, options).spoken()

    async def play(self, samples: NDArray[np.int16], rate_hz: int) -> bool:
        """Play samples of shape [n] as they are, behind what is being said.

        Waits for the answer as :meth:`say`. Returns True when they were heard to their end, False
        where something stopped them.

        Raises:
            WrongState: the call is over, or came in and is not answered.
            CallError: it ended before the samples did.
        """
        await self._audible()
        return await self._voice().play(samples, rate_hz).played()

    def live(self, *, gives_way: bool = True) -> LiveSound:
        """Put in sound while it comes, such as the microphone of somebody who joins the call:
        ``await live.push(samples, rate_hz)``, piece by piece in real time, then ``live.close()``.

        It waits nowhere for longer than 0.2 s. ``gives_way``: what is said and played goes first,
        and live sound is dropped meanwhile; False: it has the line until it is closed, and what is
        said waits. An interruption stops what is said, and leaves live sound on the line.

        Raises:
            WrongState: the call is not answered, or over.
        """
        sound = self._voice().live(gives_way=gives_way)
        self._core.outbound.add_live(sound)
        return sound

    def interrupt(self) -> list[Utterance]:
        """Fall silent with the next frame: synchronous, and harmless where nothing is said.

        Returns the utterances that it stopped: ``await utterance.spoken()`` tells what was heard.
        """
        return self._core.speaker.interrupt() if self._core.speaker is not None else []

    async def send_dtmf(
        self, keys: str, *, method: str = "auto", duration_ms: int = 160, gap_ms: int = 80
    ) -> None:
        """Press keys of ``0123456789*#ABCD``; speech waits meanwhile. Returns when the last is out.

        Raises NotPossible where the line takes none, CallError where the call is not up.
        """
        raise NotPossible("Pressing keys", self.line)

    # --- listening

    @property
    def audio(self) -> InboundAudio:
        """What the far end says, frame by frame (`HeardFrame`), until the call ends.

        For any number of readers: ``async for frame in call.audio`` gives frames as they come, at
        once; ``call.audio(steady=True)`` on our clock, one for each packet time, without holes,
        behind an adaptive jitter buffer.
        """
        return self._core.inbound

    @property
    def dtmf(self) -> Keypad:
        """The keys that the far end presses: ``async for key in call.dtmf`` (`KeyPressed`), or
        ``await call.dtmf.collect(most=4)``. Keys pressed before somebody reads wait for him."""
        return self._core.keypad

    def hear(
        self,
        settings: ListenSettings | None = None,
        recogniser: Recogniser | Recognise | str | None = None,
        *,
        turn_detector: TurnDetector | None = None,
    ) -> SpeechDetection:
        """What the far end says, turn by turn: ``async for turn in call.hear(...)`` (`Turn`).

        From the first ``async for`` on, until the call or the loop ends, the far end that cuts in
        interrupts what is being said, unless ``settings`` say otherwise. A call is listened to
        once at a time: a further `hear` ends the one before.

        Args:
            settings: when sound counts as speech, as cutting in, and as the end of a turn.
            recogniser: makes text of the turns: a `Recogniser`; a function that is given the
                samples of a turn and their rate, async or not (`CallbackRecogniser`); or a name,
                such as ``"whisper"`` (`recogniser_named`). What is made of a function or a name
                is shared by all calls of the line. None: a turn has its times and its samples,
                and no text.
            turn_detector: may end a turn before its pause does, or let it wait.

        Raises:
            MissingDetector: the voice activity detector of the settings is not installed.
            BadRequest: it is no recogniser, or none has that name.
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
        """Say a question and wait for its answer: keys, or with ``hear`` words as well.

        The first key, or the far end's voice, silences the question. Keys that were pressed before
        it count, and it is not said then. On a call of ours that still rings it waits for the
        answer of the phone. While an `Agent` talks on the call, it asks; this is for other calls.

        Args:
            question: what is said.
            keys: most keys of an answer, which is complete with the last; None = any number, 0 =
                keys are no answer.
            hear: makes text of what is said, as in :meth:`Call.hear`; None = keys alone.
            until: keys that complete the answer and are no part of it; empty = none.
            first_s: seconds after the question's end within which the answer must begin.
            pause_s: seconds after a key within which the next one must come.
            tries: how often it is asked in all where nothing comes, or nothing is understood.
            again: said from the second time on; empty = the question.

        Raises:
            ValueError: a bound that makes no sense; its text begins with the name.
            WrongState: the call is over, or came in and is not answered.
            SpeechError: the voice failed; as :meth:`Call.say`.
        """
        asked = Question(question, keys, until, first_s, pause_s, tries, again)
        await self._audible()
        return await ask(self, asked, hear)

    def sent_audio(self) -> SentAudio:
        """What goes out from now on, as samples: ``take()`` gives what came since the last time.

        For any number of takers; ``close`` it when it is needed no more.
        """
        return SentAudio(self._core.outbound)

    def record(self, path: str | PathLike[str], *, notice: bool = True) -> Recording:
        """Record both sides from now on, the caller left and the agent right, to the call's end.

        ``path`` ends in ``.wav``, ``.opus`` or ``.ogg``, and is written over. On a call that is not
        answered yet it begins with the answer. ``notice``: whether the far end first hears what
        the settings' ``consent`` asks for, if it has not yet. What comes back can be awaited
        (until it has begun), stopped, and used with ``async with``.

        Raises:
            WrongState: the call is over.
            ValueError: another kind of file, or one that this call is recorded into already.
            OSError: the file cannot be written.
            CallError: the library for Opus is not installed.
        """
        self._core.check_up()
        return self._core.recordings.record(Path(path), notice=notice)

    # --- changing and ending it

    async def hold(self) -> None:
        """Put the far end on hold; raises CallError where it refuses or the line has no hold."""
        raise NotPossible("Hold", self.line)

    async def resume(self) -> None:
        """Take the far end back; raises CallError as :meth:`hold`."""
        raise NotPossible("Hold", self.line)

    async def transfer(self, target: str, *, headers: dict[str, str] | None = None) -> None:
        """Hand the call on to ``target``; returns when it is there, and ours has ended.

        Raises:
            CallNotAllowed: a rule of ours forbids that target.
            CallRefused: the far end does not take transfers.
            TransferFailed: the target was not reached; the call goes on.
            NotPossible: the line has no transfer.
        """
        raise NotPossible("A transfer", self.line)

    @abstractmethod
    async def hangup(self, headers: Mapping[str, str] | None = None) -> None:
        """End it, whatever its state. Harmless when it is over.

        What is being said is interrupted; what has been said is let out of the far end's buffer.
        """

    async def ended(self) -> str:
        """Wait until it is over and cleared away; why, in plain words."""
        await self._core.cleared.wait()
        return self._core.cause

    async def successor(self) -> Call | None:
        """Wait until another call goes on in place of this one, which is taken over by that.

        So it is after a transfer by the far end that was followed (setting ``transfers``), and
        where a call with the header Replaces took this one's place. The new call is up. None where
        this call ends and none follows it. A call that nothing takes over is hung up.
        """
        return cast("Call | None", await self._core.succession.wait())

    def claim(self) -> None:
        """Take over a call that follows another one; else it is hung up. For `Succession`."""
        self._core.claimed.set()

    async def claimed(self) -> None:
        """Wait until a program has taken over a call that follows another one."""
        await self._core.claimed.wait()

    def await_claim(self) -> None:
        """Hang up unless a program takes over this call, which follows another one. For lines."""
        self._core.await_claim()

    def screen(self, wanted: OnMachine, settings: AnsweringSettings | None = None) -> None:
        """Listen to who answers this call of ours, before anything is said. For `Phone`."""
        self._greeting = asyncio.create_task(self._greeted(wanted, settings), name="greeting")
        self._greeting.add_done_callback(lambda task: task.cancelled() or task.exception())

    # --- inside

    async def _audible(self) -> None:
        """Wait for the answer of a call of ours that still rings, and for a greeting."""
        core = self._core
        rings = self.direction == "out" and not (core.may_speak or core.over.is_set())
        if rings or self._greeting is not None:
            await self.answered()

    async def _greeted(self, wanted: OnMachine, settings: AnsweringSettings | None) -> None:
        """Return when it is time to speak; a machine that gets no message is hung up on."""

        def tell(heard: Answerer) -> None:
            self._core.tell(AnswererHeard(self.clock.now(), heard.kind, heard.words))

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
        """Stop speaking; what has been said is let out of the far end's buffer."""
        self.interrupt()
        sink = self._core.sink
        if sink is not None and sink.last_at is not None:
            await self.clock.sleep_until(sink.last_at + LINGER_S)


@dataclass(frozen=True, slots=True)
class TransferAsked:
    """The far end wants us to call ``target`` in its place (REFER).

    Nobody has agreed to it yet: await ``accept()``, or call ``refuse()``.
    """

    at: float
    target: str
    referred_by: str
    """Who asks, as it says; empty = it does not say."""
    accept: Callable[[], Awaitable[Call]] = field(repr=False)
    """Call the target and tell the far end how it goes; the new call. Raises CallError."""
    refuse: Callable[[], None] = field(repr=False)


@dataclass(frozen=True, slots=True, match_args=False)
class CallTransferred:
    """The far end has handed us on: ``call`` is the one to the other party, and up.

    This call ends, as the far end hangs up.
    """

    at: float
    _call: Call = field(repr=False)

    __match_args__ = ("at", "call")

    @property
    def call(self) -> Call:
        """The new call. Reading this takes it over; a call that nothing takes over is hung up."""
        self._call.claim()
        return self._call


CallEvent = (
    CallRinging
    | CallForwarded
    | CallQueued
    | CallEarlyMedia
    | CallAnswered
    | AnswererHeard
    | CodecChanged
    | MediaBegan
    | CallHeld
    | CallResumed
    | KeyPressed
    | InfoHeard
    | MediaSilent
    | TransferProgress
    | TransferAsked
    | CallTransferred
    | CallEnded
)
