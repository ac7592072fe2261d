"""What a page says on its call: with which voice, and the words as they are typed."""

from __future__ import annotations

from collections.abc import Callable

from qwen3tts_phone.softphone.captions import Captions
from qwen3tts_phone.softphone.desk import Desk
from qwen3tts_phone.softphone.typed_words import TypedWords
from qwen3tts_speech.line import Speaker
from qwen3tts_speech.utterance import Utterance, VoiceOptions
from qwen3tts_wire.errors import BadRequest, LimitExceeded

Say = Callable[[TypedWords, VoiceOptions], Utterance]
"""Begins to say typed words; raises WrongState where the call is not up."""
MOST_QUEUED = 20
"""Typed utterances that wait for the call to be up."""


class PageVoice:
    """One call's.

    Args:
        desk: what has the engines.
        captions: are told which utterances were typed.
    """

    def __init__(self, desk: Desk, captions: Captions) -> None:
        self._desk = desk
        self._captions = captions
        self._speaker: Speaker | None = None
        self._typed: TypedWords | None = None
        self._utterance: Utterance | None = None
        self._say: Say | None = None
        """None while the call is not up."""
        self._queued: list[TypedWords] = []
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
        words = TypedWords(number, self._desk.settings.text_chars)
        words.put(text)
        if self._say is None:
            if len(self._queued) >= MOST_QUEUED:
                raise LimitExceeded(
                    f"{MOST_QUEUED} typed utterances wait for the call already.",
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
