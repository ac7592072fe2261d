"""The straight line of one call: text deltas in, encoded frames on the sink's clock out.

    speaker = Speaker(link, sink, PCMU)
    utterance = speaker.say(deltas)          # at once; queues behind what is being said
    spoken = await utterance.spoken()        # heard to its end, or stopped: what was heard

An interruption runs the same line backwards: the sink falls silent first, at once; then the context
is cancelled at the server; then it is known what the caller has heard.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, Callable
from typing import Protocol, TypeVar

from qwen3tts_codecs.payload import Payload
from qwen3tts_codecs.pcm import Pcm
from qwen3tts_pacer.clock import Clock, LoopClock
from qwen3tts_speech.latency import Mark, UtteranceRecord
from qwen3tts_speech.link import SpeechLink
from qwen3tts_speech.record_sinks import RecordSink
from qwen3tts_speech.sink import FrameSink
from qwen3tts_speech.sound import LiveSound, LiveSpell, Sound
from qwen3tts_speech.utterance import ChooseVoice, Spoken, Utterance, VoiceOptions
from qwen3tts_speech.watchdog import Patience
from qwen3tts_wire.errors import BadText

__all__ = ["ChooseVoice", "Sound", "Speaker", "Spoken", "Utterance", "VoiceOptions"]


logger = logging.getLogger(__name__)

SETTLE_S = 5.0
"""Longest wait for what was stopped: the server's answer takes at most 2 s of it."""


T = TypeVar("T", bound="Live")


class Live(Protocol):
    """What is being said or played, or waits to be."""

    number: int
    """The sink's name for it."""
    written: asyncio.Event
    """Set when all of its frames are with the sink."""

    @property
    def stopped(self) -> bool:
        """Whether it was interrupted."""

    def give_way(self) -> None:
        """Something else has frames to write, and waits for its turn."""

    def stop(self) -> None:
        """The sink is silent already."""

    def change(self) -> None:
        """The speaker has another codec from now on."""

    def pump(self) -> None:
        """Write what was made by the change, as far as there is room."""

    async def settled(self, most_s: float | None = None) -> None:
        """Wait for its end."""


class Speaker:
    """Says utterances on one call, one after the other without a gap.

    Args:
        link: the connection to the synthesis server; shared by calls.
        sink: where the frames go; this call's alone.
        payload: what the other side decodes, such as PCMU.
        ptime_ms: duration of one frame.
        voice: how utterances are spoken that say nothing else.
        call_id: names the call in the records.
        line: says in the records what the call came over.
        log: where each utterance's record goes when it ends, such as a LatencyLog.
        stall_s: an utterance whose caller has heard nothing for so long, though the server has
            text to say, ends with ConnectionLost. The text is there when it has ended, or when 200
            characters of it are unsaid. None: never.
        on_spoken: told what became of each utterance when it has ended, and when that was.
    """

    def __init__(
        self,
        link: SpeechLink,
        sink: FrameSink,
        payload: Payload,
        *,
        ptime_ms: int = 20,
        voice: VoiceOptions | None = None,
        call_id: str = "",
        line: str = "",
        log: RecordSink | None = None,
        clock: Clock | None = None,
        stall_s: float | None = None,
        on_spoken: Callable[[Spoken, float], None] | None = None,
    ) -> None:
        self.link = link
        self.sink = sink
        self.payload = payload
        self.ptime_ms = ptime_ms
        self.clock: Clock = clock or LoopClock()
        Patience(stall_s)  # what is no time is refused here, not by the first utterance
        self.stall_s = stall_s
        self.voice = voice or VoiceOptions()
        """How utterances are spoken that say nothing else; those begun later, if it is changed."""
        self.followers: list[Callable[[Utterance], None]] = []
        """Called with each utterance as it begins; they must not raise."""
        self._call_id = call_id
        self._line = line
        self._log = log
        self._on_spoken = on_spoken
        self.closed = False
        """Whether nothing more is to be said."""
        self._number = 0
        self._live: dict[int, Live] = {}
        self.utterances = 0
        """How many have been begun."""
        self.interrupted = 0
        """How many of them were stopped before their end."""

    @property
    def speaking(self) -> bool:
        """Whether something is being said or played, or waits to be; live sound is neither."""
        return any(not isinstance(each, LiveSpell) for each in self._live.values())

    def say(
        self,
        words: str | AsyncIterable[str],
        options: VoiceOptions | ChooseVoice | None = None,
    ) -> Utterance:
        """Begin to say ``words``: a string, or deltas as a model writes them.

        It queues behind what is being said, and its text is already on its way to the server.
        ``options`` may also be a function that is asked for them once the connection is there.

        Raises:
            BadText: a string with nothing in it, or something that is no text. (An iterator that
                gives nothing is no error: a model may have nothing to say.)
        """
        if isinstance(words, str):
            if not words.strip():
                raise BadText("The text is empty.", remedy="Give some words to say.")
        elif not isinstance(words, AsyncIterable):
            raise BadText(
                f"A {type(words).__name__} is no text.",
                remedy="Give a string, or an asynchronous iterator of strings.",
            )
        self._number += 1
        record = UtteranceRecord(
            call_id=self._call_id,
            context=str(self._number),
            line=self._line,
            codec=self.payload.name,
        )
        record.mark(Mark.TEXT_IN, self.clock.now())
        utterance = Utterance(
            self,
            self._number,
            words,
            options or self.voice,
            record,
        )
        self._live[self._number] = utterance
        self.utterances += 1
        for follower in list(self.followers):
            follower(utterance)
        return utterance

    def play(self, samples: Pcm, rate_hz: int) -> Sound:
        """Begin to play int16 samples, shape [n], as they are; they queue behind what is said."""
        self._number += 1
        sound = Sound(self, self._number, samples, rate_hz)
        self._live[self._number] = sound
        return sound

    def live(self, *, gives_way: bool = True) -> LiveSound:
        """Sound that comes while it is heard, such as a microphone's; see `LiveSound`."""
        return LiveSound(self, gives_way=gives_way)

    def change(self, payload: Payload, ptime_ms: int) -> None:
        """The call has another codec: what waits here, and what comes, is said in it.

        The sink takes care of what it holds; once it takes frames again, :meth:`pump`.
        """
        self.payload, self.ptime_ms = payload, ptime_ms
        for each in list(self._live.values()):
            each.change()

    def pump(self) -> None:
        """The sink takes frames again after a change of the codec."""
        for each in list(self._live.values()):
            each.pump()

    def interrupt(self) -> list[Utterance]:
        """Fall silent now: synchronous; nothing said so far is heard after the next frame.

        Live sound has a frame or two cut out of it, and goes on; alone on the line it is let be.

        Returns:
            The utterances that it stopped; ``await utterance.spoken()`` tells what was heard.
        """
        if self._live and not self.speaking and not self.closed:
            return []
        self.sink.interrupt()
        stopped = list(self._live.values())
        utterances = [each for each in stopped if isinstance(each, Utterance)]
        self.interrupted += sum(not each.stopped for each in utterances)
        for each in stopped:
            each.stop()
        return utterances

    async def close(self) -> None:
        """Stop speaking for good and wait until all is settled.

        A source of words that does not let itself be stopped is left to itself after `SETTLE_S`.
        """
        self.closed = True
        stopped = list(self._live.values())
        self.interrupt()
        await asyncio.gather(*(each.settled(SETTLE_S) for each in stopped))
        for each in stopped:
            if each.number in self._live:
                logger.warning(
                    "%s: the source of utterance %d's words does not end when it is stopped",
                    self._call_id,
                    each.number,
                )

    # --- for what is said

    def history_key(self, voice: str | None) -> str:
        """Names what arrival times depend on: the server and the voice."""
        return f"{self.link.url} {voice or ''}"

    async def turn_of(self, owner: Live) -> None:
        """Wait until all that was said before it is with the sink."""
        for earlier in [each for each in self._live.values() if each.number < owner.number]:
            earlier.give_way()
        for earlier in [each for each in self._live.values() if each.number < owner.number]:
            await earlier.written.wait()

    def next_to_write(self, utterance: Utterance) -> bool:
        """Whether all that was said before it is with the sink."""
        return all(
            each.written.is_set() for each in self._live.values() if each.number < utterance.number
        )

    def takes_live(self, before: int | None = None) -> bool:
        """Whether live sound can begin: nothing else is said or played, or waits to be.

        ``before``: only what is numbered below it counts.
        """
        return not self.closed and all(
            each.stopped or (isinstance(each, LiveSpell) and each.written.is_set())
            for each in self._live.values()
            if before is None or each.number < before
        )

    def begins(self, make: Callable[[int], T]) -> T:
        """What ``make`` makes of the next number is under way."""
        self._number += 1
        each = make(self._number)
        self._live[self._number] = each
        return each

    def ended(self, each: Live) -> None:
        """It has ended."""
        self._live.pop(each.number, None)
        if not isinstance(each, Utterance):
            return
        if self._log is not None:
            self._log.append(each.record)
        if self._on_spoken is not None:
            self._on_spoken(each.outcome(), self.clock.now())
