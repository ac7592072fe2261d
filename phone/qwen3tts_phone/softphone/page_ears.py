"""What is heard of a caller, or of the party that a page has dialled, as the page is told it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from qwen3tts_phone.softphone import protocol
from qwen3tts_phone.softphone.protocol import ServerMessage
from qwen3tts_wire.errors import LimitExceeded, SpeechError

if TYPE_CHECKING:
    from qwen3tts_phone.call import Call
    from qwen3tts_phone.listening.listening import Listening
    from qwen3tts_phone.listening.settings import ListenSettings
    from qwen3tts_phone.listening.turn import Turn


MOST_EARLY = 20
"""Typed turns that wait until somebody listens."""


class PageEars:
    """One call's.

    Args:
        tell: is given each message for the page.
        settings: when sound counts as what.
    """

    def __init__(self, tell: Callable[[ServerMessage], None], settings: ListenSettings) -> None:
        self._tell = tell
        self._settings = settings
        self._listening: Listening | None = None
        self._early: list[str] = []
        """Typed before somebody listened."""

    def follow(self, listening: Listening) -> None:
        """Somebody listens: the page is told what is heard."""
        listening.on_voice = self._voice
        listening.followers.append(self._turn)
        self._listening = listening
        early, self._early = self._early, []
        for text in early:
            listening.typed(text)

    def say(self, text: str) -> None:
        """The caller says this, typed; it waits until somebody listens.

        Raises:
            LimitExceeded: too much waits already.
            WrongState: nobody listens any more.
        """
        if self._listening is not None:
            self._listening.typed(text)
        elif len(self._early) < MOST_EARLY:
            self._early.append(text)
        else:
            raise LimitExceeded(
                f"{MOST_EARLY} typed turns wait for the call already.",
                remedy="Type on when the call is up.",
            )

    def listen(self, call: Call, *, barge_in: bool) -> None:
        """Listen ourselves, to the call's end; a voice stops ours where it may.

        Raises MissingDetector where what tells voices from noise is not installed.
        """
        listening = call.hear(replace(self._settings, barge_in=barge_in))
        if call.on_hear is None:
            self.follow(listening)
        listening.start()

    def complain(self, error: SpeechError) -> None:
        """Something did not work beside the call, which goes on."""
        self._tell(protocol.Error(error.code, error.message, error.remedy, "call"))

    def _voice(self, speaking: bool, at: float) -> None:
        self._tell(protocol.Caller(speaking))

    def _turn(self, turn: Turn) -> None:
        if turn.text:  # without a recogniser there is nothing to show
            began_ms, ended_ms = turn.began_at * 1000, turn.ended_at * 1000
            self._tell(protocol.Turn(turn.text, turn.barge_in, began_ms, ended_ms))
        if turn.error is not None:
            self.complain(turn.error)
