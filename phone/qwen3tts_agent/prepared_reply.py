"""Reply that is prepared to the caller's open turn, and adopted or dropped at its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qwen3tts_agent.chat.messages import ChatMessage
from qwen3tts_agent.guess import TurnGuesses, same_words
from qwen3tts_agent.reply import Reply
from qwen3tts_agent.settings import AgentSettings
from qwen3tts_agent.turn_log import TurnLog
from qwen3tts_agent.turn_record import TurnRecord
from qwen3tts_phone.detection.events import (
    OnsetHeard,
    SpeechPaused,
    SpeechResumed,
    WordsGuessed,
)

MakeReply = Callable[[str, TurnRecord], Reply]
"""Prepares a reply to a text of the caller's, with a record that is in no log."""


class PreparedReply:
    """Prepared reply of one session, if there is one.

    Args:
        settings: of the agent.
        make: prepares a reply.
        log: waits for what is dropped.
    """

    def __init__(self, settings: AgentSettings, make: MakeReply, log: TurnLog) -> None:
        self._settings = settings
        self._make = make
        self._log = log
        self._reply: Reply | None = None
        self._words = ""
        self._turn = TurnGuesses()
        self._began_at = self._paused_at = 0.0
        """First voiced sample of the turn, and the last before its pause."""
        self._closing: list[Reply] = []
        """Dropped ones, whose requests may not be closed yet."""

    def spoke(self, event: OnsetHeard | SpeechPaused | SpeechResumed) -> None:
        """Note that the caller's turn begins, pauses or goes on, which drops the reply."""
        if isinstance(event, OnsetHeard):
            self._began_at = event.began_at
        elif isinstance(event, SpeechPaused):
            self._paused_at = event.ended_at
        else:
            self.drop()
            self._turn.resumed()

    def guessed(self, guess: WordsGuessed) -> None:
        """Prepare a reply to these words; drop one prepared to others."""
        words = same_words(guess.text)
        if self._reply is not None and words != self._words:
            self.drop()
        speech_s = self._paused_at - self._began_at
        if words and self._turn.may_prepare(self._settings, speech_s):
            self._turn.prepared()
            self._words = words
            self._reply = self._make(guess.text, TurnRecord(0, "caller"))

    def over(self) -> None:
        self.drop()
        self._turn = TurnGuesses()

    def drop(self) -> None:
        """Drop the prepared reply without a trace but its count."""
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.give_up()
            self._turn.requests += reply.record.requests
            self._closing.append(reply)
            self._log.start(reply.settled(), "a dropped reply")

    def adopted(self, messages: Sequence[ChatMessage]) -> Reply | None:
        """Return the prepared reply where it answers ``messages``; else drop it."""
        if self._reply is None or not self._reply.answers(messages):
            self.drop()
            return None
        reply, self._reply = self._reply, None
        return reply

    def closing(self) -> list[Reply]:
        self._closing = [each for each in self._closing if not each.ended]
        return list(self._closing)

    def count(self, record: TurnRecord, *, used: bool) -> None:
        """Add the turn's guesses to its record, and begin with the next turn."""
        record.guesses, record.guess_used = self._turn.made, used
        record.requests += self._turn.requests
        self._turn = TurnGuesses()
