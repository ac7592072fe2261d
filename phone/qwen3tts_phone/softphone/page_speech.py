"""Speech on a page's call: typed text, its voice, captions."""

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
from qwen3tts_speech.link import VoiceOptions
from qwen3tts_speech.utterance import RATE_HZ, Utterance
from qwen3tts_wire.errors import BadRequest, LimitExceeded, SpeechError
from qwen3tts_wire.heard import Word


class TypedText:
    """Text of one typed utterance, an iterator for one reader.

    ``number`` is the page's; at most ``max_chars`` are taken.
    """

    def __init__(self, number: int, max_chars: int) -> None:
        self.number = number
        self.ended = False
        self._max_chars = max_chars
        self._chars = 0
        self._waiting: list[str] = []
        self._changed = asyncio.Event()

    def put(self, text: str) -> None:
        if self.ended:
            raise BadRequest("This utterance has ended.", remedy="Begin another one.")
        if self._chars + len(text) > self._max_chars:
            raise LimitExceeded(
                f"An utterance has at most {self._max_chars} characters.",
                remedy="End it and begin another one.",
            )
        if text:
            self._chars += len(text)
            self._waiting.append(text)
            self._changed.set()

    def end(self) -> None:
        self.ended = True
        self._changed.set()

    def take(self) -> str:
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
                self._changed.clear()
                await self._changed.wait()


logger = logging.getLogger(__name__)

INTERVAL_S = 0.1
SETTLE_TIMEOUT_S = 1.0
Tell = Callable[[ServerMessage], None]


@dataclass(slots=True)
class Caption:
    id: int
    who: str
    typed: int | None = None
    text: str | None = field(default=None, repr=False)
    words: int = 0
    position: int = -1

    def updates(
        self, text: str, words: list[Word], position: int, time_ms: float
    ) -> list[ServerMessage]:
        told: list[ServerMessage] = []
        if text != self.text:
            self.text = text
            told.append(protocol.Utterance(self.id, self.who, text, self.typed))
        if len(words) < self.words:  # another server has repeated some of them
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

    def reset(self) -> None:
        self.text, self.words, self.position = None, 0, -1


class Captions:
    """Captions of utterances: text, aligned words, playout position, outcome.

    They follow a `Speaker`; ``tell`` gets messages ten times a second during speech.
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
        self._speaker = speaker
        speaker.followers.append(self._begun)

    def add(self, utterance: Utterance, typed: int) -> None:
        if utterance in self._live:
            self._live[utterance].who, self._live[utterance].typed = "typed", typed
        else:
            self._begin(utterance, typed)

    def repeat(self) -> None:
        for caption in self._live.values():
            caption.reset()
        self._step()

    async def close(self) -> None:
        if self._speaker is not None and self._begun in self._speaker.followers:
            self._speaker.followers.remove(self._begun)
        if self._steps is not None:
            self._steps.cancel()
            await asyncio.wait([self._steps])
        if self._tasks:  # their outcome is known in a moment
            await asyncio.wait(set(self._tasks), timeout=SETTLE_TIMEOUT_S)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begun(self, utterance: Utterance) -> None:
        self._begin(utterance, None)

    def _begin(self, utterance: Utterance, typed: int | None) -> None:
        self._number += 1
        who = "agent" if typed is None else "typed"
        self._live[utterance] = Caption(self._number, who, typed)
        task = asyncio.create_task(self._await_outcome(utterance), name="caption")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._steps is None or self._steps.done():
            self._steps = asyncio.create_task(self._follow(), name="captions")

    async def _follow(self) -> None:
        while self._live:
            self._step()
            await self._clock.sleep_until(self._clock.now() + INTERVAL_S)

    def _step(self) -> None:
        time_ms = self._clock.now() * 1000
        for utterance, caption in self._live.items():
            for message in caption.updates(
                utterance.text, utterance.words, utterance.position, time_ms
            ):
                self._tell(message)

    async def _await_outcome(self, utterance: Utterance) -> None:
        error: Exception | None = None
        try:
            spoken = await utterance.spoken()
        except Exception as failure:
            spoken, error = utterance.outcome(), failure
            if not isinstance(failure, SpeechError):
                logger.error(
                    "an utterance on a page's call failed\n%s", traceback_without_message(failure)
                )
        caption = self._live.pop(utterance)
        time_ms = self._clock.now() * 1000
        for message in caption.updates(utterance.text, utterance.words, spoken.position, time_ms):
            self._tell(message)
        record = spoken.record
        known = error if isinstance(error, SpeechError) else None
        self._tell(
            protocol.Spoken(
                caption.id,
                spoken.heard,
                spoken.remaining,
                spoken.interrupted,
                error=None if error is None else known.message if known else "Internal error.",
                remedy=known.remedy if known else None,
                stages=stages(record),
                clock_error_ms=max(0.0, record.clock_error_ms),
                starvations=record.starvations,
                longest_gap_ms=max(0.0, record.longest_gap_ms),
                typed=caption.typed,
            )
        )


def stages(record: UtteranceRecord) -> dict[str, float]:
    if not record.marks:
        return {}
    first = min(record.marks.values())
    return {name: round(1000 * (at - first), 3) for name, at in record.marks.items()}


Say = Callable[[TypedText, VoiceOptions], Utterance]
MAX_QUEUED = 20


class PageVoice:
    def __init__(self, services: SoftphoneServices, captions: Captions) -> None:
        self._services = services
        self._captions = captions
        self._speaker: Speaker | None = None
        self._typed: TypedText | None = None
        self._utterance: Utterance | None = None
        self._say: Say | None = None
        self._queued: list[TypedText] = []
        self.engine = services.engines.all[0]
        self.options = VoiceOptions()

    def choose(self, engine: str | None, voice: str | None, language: str | None) -> None:
        self.engine = self._services.engines.chosen(engine)
        self.options = self._services.options(self.engine, voice, language)
        if self._speaker is not None:
            self.set_speaker(self._speaker)

    def set_speaker(self, speaker: Speaker) -> None:
        self._speaker = speaker
        speaker.link, speaker.voice = self.engine.link, self.options

    async def check(self) -> None:
        await self.engine.link.check(self.options)

    def begin(self, say: Say) -> None:
        self._say = say
        queued, self._queued = self._queued, []
        for words in queued:
            self._utterance = say(words, self.options)
            self._captions.add(self._utterance, words.number)

    def drop_queued(self) -> None:
        if self._queued:
            self._queued.clear()
            self._typed = None

    def type(self, number: int, text: str) -> None:
        """Add typed text; after an interruption it begins another utterance.

        Raises WrongState (over), BadRequest, LimitExceeded.
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
        words = TypedText(number, self._services.settings.text_chars)
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
        if self._typed is not None and number >= self._typed.number:
            self._typed.end()

    def end(self) -> None:
        if self._typed is not None:
            self._typed.end()
