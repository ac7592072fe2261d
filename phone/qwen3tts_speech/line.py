"""Speech of one call: text deltas in, encoded frames on the sink's clock out.

::

    speaker = Speaker(link, sink, PCMU)
    utterance = speaker.say(deltas)    # queued behind what is being said
    spoken = await utterance.spoken()  # when it was heard or stopped: the text heard

On barge-in the sink falls silent first; then the context is cancelled at the server; then the heard
text is known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, Callable
from dataclasses import dataclass

from qwen3tts_codecs.payload import Payload
from qwen3tts_codecs.pcm import Pcm
from qwen3tts_pacer.clock import Clock
from qwen3tts_speech.latency import Mark, UtteranceRecord
from qwen3tts_speech.link import ChooseVoice, SpeechLink, VoiceOptions
from qwen3tts_speech.playout_queue import PlayoutQueue, QueuedPlayout
from qwen3tts_speech.record_sinks import RecordSink
from qwen3tts_speech.sink import FrameSink
from qwen3tts_speech.sound import LiveSound, Sound
from qwen3tts_speech.utterance import Spoken, Utterance
from qwen3tts_speech.watchdog import StallWatchdog
from qwen3tts_wire.errors import BadText

__all__ = [
    "ChooseVoice",
    "Saying",
    "Sound",
    "Speaker",
    "Spoken",
    "Utterance",
    "UtteranceLog",
    "VoiceOptions",
]


logger = logging.getLogger(__name__)

SETTLE_S = 5.0
"""Longest wait for a stopped utterance; the server's answer takes at most 2 s of it."""


@dataclass(frozen=True, slots=True)
class UtteranceLog:
    """Records of a call's utterances: how they name the call, and what receives them."""

    call_id: str = ""
    line: str = ""
    """Kind of the call's line."""
    sink: RecordSink | None = None
    """Receives each utterance's record."""
    on_spoken: Callable[[Spoken, float], None] | None = None
    """Called with each utterance's outcome and the time of its end."""


@dataclass(frozen=True, slots=True)
class Saying:
    """Text that is being spoken, of all queued utterances."""

    heard: str
    """Part of the present utterance that was heard."""
    remaining: str
    """What follows, as far as it is known."""
    complete: bool
    """True if nothing follows that."""


class Speaker(PlayoutQueue):
    """Speaker of one call's utterances, in order without gaps.

    Args:
        link: connection to the speech server, shared by calls.
        sink: receiver of the frames; this call's alone.
        payload: format that the far end decodes.
        ptime_ms: packet time.
        voice: default options of utterances.
        call_id: names the call in records.
        line: kind of the call's line, for records.
        log: receives each utterance's record.
        stall_s: an utterance ends with ConnectionLost after this silence although the server has
            text to speak: all of it, or 200 characters more than it has spoken; None = never.
        on_spoken: called with each utterance's outcome and the time of its end.
    """

    def __init__(
        self,
        link: SpeechLink,
        sink: FrameSink,
        payload: Payload,
        *,
        ptime_ms: int = 20,
        voice: VoiceOptions | None = None,
        log: UtteranceLog | None = None,
        clock: Clock | None = None,
        stall_s: float | None = None,
    ) -> None:
        StallWatchdog(stall_s)  # an invalid time is refused here, not by the first utterance
        super().__init__(link, sink, payload, ptime_ms=ptime_ms, clock=clock, stall_s=stall_s)
        self.voice = voice or VoiceOptions()
        """Default options of utterances begun from now on."""
        self.followers: list[Callable[[Utterance], None]] = []
        """Called with each utterance as it begins; they must not raise."""
        self._log = log or UtteranceLog()
        self.utterances = 0
        self.interrupted = 0
        self._prepared: set[Utterance] = set()
        """Prepared utterances, which are not in the queue."""

    def say(
        self,
        words: str | AsyncIterable[str],
        options: VoiceOptions | ChooseVoice | None = None,
    ) -> Utterance:
        """Begin to say ``words``: a string, or a model's deltas.

        It queues; its text goes to the server immediately. ``options`` may be a function called
        once there is a connection. Raises BadText for an empty string or no text; an iterator may
        be empty.
        """
        utterance = self._utterance(words, options, self._number + 1)
        self._enqueue(utterance)
        return utterance

    def prepare(
        self,
        words: str | AsyncIterable[str],
        options: VoiceOptions | ChooseVoice | None = None,
    ) -> Utterance:
        """Synthesise ``words`` as :meth:`say`, and hold the first sound.

        Until ``release()`` nothing is played, and the utterance is in no queue, count or record;
        ``drop()`` ends it. Raises BadText.
        """

        def release(utterance: Utterance) -> None:
            self._prepared.discard(utterance)
            utterance.number = self._number + 1
            utterance.record.context = str(utterance.number)
            self._enqueue(utterance)

        utterance = self._utterance(words, options, 0, release)
        self._prepared.add(utterance)
        return utterance

    def _utterance(
        self,
        words: str | AsyncIterable[str],
        options: VoiceOptions | ChooseVoice | None,
        number: int,
        release: Callable[[Utterance], None] | None = None,
    ) -> Utterance:
        if isinstance(words, str):
            if not words.strip():
                raise BadText("The text is empty.", remedy="Give some words to say.")
        elif not isinstance(words, AsyncIterable):
            raise BadText(
                f"A {type(words).__name__} is no text.",
                remedy="Give a string, or an asynchronous iterator of strings.",
            )
        record = UtteranceRecord(
            call_id=self._log.call_id,
            context=str(number),
            line=self._log.line,
            codec=self.payload.name,
        )
        record.mark(Mark.TEXT_IN, self.clock.now())
        return Utterance(self, number, words, options or self.voice, record, release)

    def _enqueue(self, utterance: Utterance) -> None:
        self._number = utterance.number
        self._queued[utterance.number] = utterance
        self.utterances += 1
        for follower in list(self.followers):
            follower(utterance)

    def play(self, samples: Pcm, rate_hz: int) -> Sound:
        self._number += 1
        sound = Sound(self, self._number, samples, rate_hz)
        self._queued[self._number] = sound
        return sound

    def live(self, *, gives_way: bool = True) -> LiveSound:
        return LiveSound(self, gives_way=gives_way)

    def change(self, payload: Payload, ptime_ms: int) -> None:
        self.payload, self.ptime_ms = payload, ptime_ms
        for each in [*self._queued.values(), *self._prepared]:
            each.change()

    def saying(self) -> Saying | None:
        """Return the text that is being spoken; None = none, or a sound has no text."""
        queued = [each for each in self._queued.values() if not (each.live or each.stopped)]
        utterances = [each for each in queued if isinstance(each, Utterance)]
        if not queued or len(utterances) < len(queued):
            return None
        now = utterances[0].outcome()
        following = " ".join(each.text for each in utterances[1:])
        remaining = f"{now.remaining} {following}" if following else now.remaining
        return Saying(now.heard, remaining, all(each.text_complete for each in utterances))

    def interrupt(self) -> list[Utterance]:
        """Fall silent with the next frame (barge-in); return stopped utterances.

        Synchronous. Live sound loses a frame or two and goes on.
        """
        if self._queued and not self.speaking and not self.closed:
            return []
        self.sink.interrupt()
        stopped = list(self._queued.values())
        utterances = [each for each in stopped if isinstance(each, Utterance)]
        self.interrupted += sum(not each.stopped for each in utterances)
        for each in stopped:
            each.stop()
        return utterances

    async def close(self) -> None:
        """Stop for good; wait for all utterances, `SETTLE_S` at most."""
        self.closed = True
        stopped = [*self._queued.values(), *self._prepared]
        for prepared in list(self._prepared):
            prepared.drop()
        self.interrupt()
        await asyncio.gather(*(each.settled(SETTLE_S) for each in stopped))
        for each in stopped:
            if self._queued.get(each.number) is each:
                logger.warning(
                    "%s: the source of utterance %d's words does not end when it is stopped",
                    self._log.call_id,
                    each.number,
                )

    def ended(self, item: QueuedPlayout) -> None:
        if not isinstance(item, Utterance):
            super().ended(item)
            return
        if item.held:
            self._prepared.discard(item)
            return
        super().ended(item)
        if self._log.sink is not None:
            self._log.sink.append(item.record)
        if self._log.on_spoken is not None:
            self._log.on_spoken(item.outcome(), self.clock.now())
