"""Speech on a page's call: text as it is typed, the voice that says it, and captions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.errors import traceback_without_message
from qwen3tts_phone.softphone import messages as protocol
from qwen3tts_phone.softphone.messages import ServerMessage
from qwen3tts_phone.softphone.services import SoftphoneServices
from qwen3tts_speech.latency import UtteranceRecord
from qwen3tts_speech.line import Speaker
from qwen3tts_speech.utterance import RATE_HZ, Utterance, VoiceOptions
from qwen3tts_wire.errors import BadRequest, LimitExceeded, SpeechError
from qwen3tts_wire.heard import Word


class TypedText:
    """An asynchronous iterator of the words of one typed utterance; for one reader.

    Args:
        number: the page's number of the utterance.
        most_chars: no more than that is taken.
    """

    def __init__(self, number: int, most_chars: int) -> None:
        self.number = number
        self.ended = False
        """Whether no more will come."""
        self._most = most_chars
        self._chars = 0
        self._waiting: list[str] = []
        self._news = asyncio.Event()

    def put(self, text: str) -> None:
        """More words.

        Raises:
            LimitExceeded: it would be too long; nothing of this is taken.
            BadRequest: it has ended.
        """
        if self.ended:
            raise BadRequest("This utterance has ended.", remedy="Begin another one.")
        if self._chars + len(text) > self._most:
            raise LimitExceeded(
                f"An utterance has at most {self._most} characters.",
                remedy="End it and begin another one.",
            )
        if text:
            self._chars += len(text)
            self._waiting.append(text)
            self._news.set()

    def end(self) -> None:
        """No more words; harmless a second time."""
        self.ended = True
        self._news.set()

    def take(self) -> str:
        """What waits and was not taken yet: it is taken with this."""
        text = "".join(self._waiting)
        self._waiting.clear()
        return text

    async def __aiter__(self) -> AsyncIterator[str]:
        while True:
            if text := self.take():
                yield text
            elif self.ended:
                return
            else:
                self._news.clear()
                await self._news.wait()


logger = logging.getLogger(__name__)

STEP_S = 0.1
"""How often a page is told how far it is."""
SETTLE_TIMEOUT_S = 1.0
"""Longest wait for what was said to be known, once the call is over."""
Tell = Callable[[ServerMessage], None]


@dataclass(slots=True)
class Caption:
    """One utterance's, as far as the page has been told."""

    id: int
    who: str
    typed: int | None = None
    text: str | None = field(default=None, repr=False)
    words: int = 0
    position: int = -1

    def news(
        self, text: str, words: list[Word], position: int, time_ms: float
    ) -> list[ServerMessage]:
        """What the page has not been told yet; ``position`` is at the caller's ear by now."""
        told: list[ServerMessage] = []
        if text != self.text:
            self.text = text
            told.append(protocol.Utterance(self.id, self.who, text, self.typed))
        if len(words) < self.words:  # another server says some of them again
            self.words = 0
        if len(words) > self.words:
            fresh = words[self.words :]
            self.words = len(words)
            spans = tuple((each.char_start, each.char_end, each.start, each.end) for each in fresh)
            told.append(protocol.Words(self.id, spans, RATE_HZ))
        if position > self.position and (position or self.words):
            self.position = position
            told.append(protocol.Heard(self.id, position, time_ms))
        return told

    def again(self) -> None:
        """The page has forgotten: all of it is news."""
        self.text, self.words, self.position = None, 0, -1


class Captions:
    """One call's; `close` it when the call is over.

    Args:
        tell: is given each message.
        clock: the call's time.
    """

    def __init__(self, tell: Tell, clock: Clock) -> None:
        self._tell = tell
        self._clock = clock
        self._speaker: Speaker | None = None
        self._number = 0
        self._live: dict[Utterance, Caption] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._steps: asyncio.Task[None] | None = None

    def follow(self, speaker: Speaker) -> None:
        """Tell of all that it says from now on: the agent's words, if `add` says nothing else."""
        self._speaker = speaker
        speaker.followers.append(self._begun)

    def add(self, utterance: Utterance, typed: int) -> None:
        """One that was typed, of whatever speaker; ``typed``: the page's number of it."""
        if utterance in self._live:
            self._live[utterance].who, self._live[utterance].typed = "typed", typed
        else:
            self._begin(utterance, typed)

    def repeat(self) -> None:
        """A page has come back: tell all of what is being said once more."""
        for caption in self._live.values():
            caption.again()
        self._step()

    async def close(self) -> None:
        """Follow no more; what has ended by now is told."""
        if self._speaker is not None and self._begun in self._speaker.followers:
            self._speaker.followers.remove(self._begun)
        if self._steps is not None:
            self._steps.cancel()
            await asyncio.wait([self._steps])
        if self._tasks:  # the call is over: what was said is settled in a moment
            await asyncio.wait(set(self._tasks), timeout=SETTLE_TIMEOUT_S)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- inside

    def _begun(self, utterance: Utterance) -> None:
        self._begin(utterance, None)

    def _begin(self, utterance: Utterance, typed: int | None) -> None:
        self._number += 1
        who = "agent" if typed is None else "typed"
        self._live[utterance] = Caption(self._number, who, typed)
        task = asyncio.create_task(self._see_through(utterance), name="caption")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._steps is None or self._steps.done():
            self._steps = asyncio.create_task(self._follow(), name="captions")

    async def _follow(self) -> None:
        while self._live:
            self._step()
            await self._clock.sleep_until(self._clock.now() + STEP_S)

    def _step(self) -> None:
        time_ms = self._clock.now() * 1000
        for utterance, caption in self._live.items():
            for message in caption.news(
                utterance.text, utterance.words, utterance.position, time_ms
            ):
                self._tell(message)

    async def _see_through(self, utterance: Utterance) -> None:
        error: Exception | None = None
        try:
            spoken = await utterance.spoken()
        except Exception as failure:
            spoken, error = utterance.outcome(), failure
            if not isinstance(failure, SpeechError):
                logger.error(
                    "what is said on a page's call broke\n%s", traceback_without_message(failure)
                )
        caption = self._live.pop(utterance)
        time_ms = self._clock.now() * 1000
        for message in caption.news(utterance.text, utterance.words, spoken.position, time_ms):
            self._tell(message)
        record = spoken.record
        known = error if isinstance(error, SpeechError) else None
        self._tell(
            protocol.Spoken(
                caption.id,
                spoken.heard,
                spoken.remaining,
                spoken.interrupted,
                error=None if error is None else known.message if known else "It broke here.",
                remedy=known.remedy if known else None,
                stages=stages(record),
                clock_error_ms=max(0.0, record.clock_error_ms),
                starvations=record.starvations,
                longest_gap_ms=max(0.0, record.longest_gap_ms),
                typed=caption.typed,
            )
        )


def stages(record: UtteranceRecord) -> dict[str, float]:
    """Milliseconds of each mark after the first one; empty = there is none."""
    if not record.marks:
        return {}
    first = min(record.marks.values())
    return {name: round(1000 * (at - first), 3) for name, at in record.marks.items()}


Say = Callable[[TypedText, VoiceOptions], Utterance]
"""Begins to say typed words; raises WrongState where the call is not up."""
MAX_QUEUED = 20
"""Typed utterances that wait for the call to be up."""


class PageVoice:
    """One call's.

    Args:
        desk: what has the engines.
        captions: are told which utterances were typed.
    """

    def __init__(self, desk: SoftphoneServices, captions: Captions) -> None:
        self._desk = desk
        self._captions = captions
        self._speaker: Speaker | None = None
        self._typed: TypedText | None = None
        self._utterance: Utterance | None = None
        self._say: Say | None = None
        """None while the call is not up."""
        self._queued: list[TypedText] = []
        """Typed before the call was up."""
        self.engine = desk.engines.all[0]
        self.options = VoiceOptions()

    def choose(self, engine: str | None, voice: str | None, language: str | None) -> None:
        """Speak so from the next utterance on. Raises NoSuchEngine."""
        self.engine = self._desk.engines.chosen(engine)
        self.options = self._desk.options(self.engine, voice, language)
        if self._speaker is not None:
            self.leads(self._speaker)

    def leads(self, speaker: Speaker) -> None:
        """What this speaker says is said as the page has chosen, from now on."""
        self._speaker = speaker
        speaker.link, speaker.voice = self.engine.link, self.options

    async def check(self) -> None:
        """Ask the server whether it has that voice; raises UnknownVoice and others."""
        await self.engine.link.check(self.options)

    def begin(self, say: Say) -> None:
        """The call is up: say what was typed before, in order, and from now on what is typed."""
        self._say = say
        queued, self._queued = self._queued, []
        for words in queued:
            self._utterance = say(words, self.options)
            self._captions.add(self._utterance, words.number)

    def drop_queued(self) -> None:
        """Forget what waits for the call to be up."""
        if self._queued:
            self._queued.clear()
            self._typed = None

    def type(self, number: int, text: str) -> None:
        """More typed words; those after an interruption are an utterance of their own.

        Before the call is up they wait for it.

        Raises WrongState where the call is over, BadRequest, LimitExceeded.
        """
        current = self._typed
        if current is not None and number < current.number:
            raise BadRequest("The number of a typed utterance does not fall.")
        stopped = self._utterance is not None and self._utterance.stopped
        if current is not None and number == current.number and not stopped:
            current.put(text)
            return
        if not text.strip():
            return
        self.end()
        words = TypedText(number, self._desk.settings.text_chars)
        words.put(text)
        if self._say is None:
            if len(self._queued) >= MAX_QUEUED:
                raise LimitExceeded(
                    f"{MAX_QUEUED} typed utterances wait for the call already.",
                    remedy="Type on when the call is up.",
                )
            self._queued.append(words)
            self._typed = words
            return
        self._utterance = self._say(words, self.options)
        self._typed = words
        self._captions.add(self._utterance, number)

    def type_end(self, number: int) -> None:
        """A typed utterance is complete; harmless where there is none of that number."""
        if self._typed is not None and number >= self._typed.number:
            self._typed.end()

    def end(self) -> None:
        """No more words come."""
        if self._typed is not None:
            self._typed.end()
