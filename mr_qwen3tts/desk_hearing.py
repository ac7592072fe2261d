"""What the caller of one call says: turns become messages, and cutting in stops the agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from .desk_recogniser import DeskRecogniser
from .desk_wishes import DeskHost

if TYPE_CHECKING:
    from qwen3tts_phone.detection.events import ListenEvent, Turn
    from qwen3tts_phone.detection.listening import SpeechDetection

NOT_UNDERSTOOD = (
    "SYSTEM: The caller said something that could not be understood. Ask them to say it again."
)


class CallerTurns:
    """One call's: its turns go to ``said``; while the caller speaks the agent is silent.

    What was being said is stopped the moment the caller cuts in, and goes on where nothing came of
    it; words drop the rest of it.

    Args:
        recogniser: for all calls.
        host: silences the agent, and lets it go on.
        context: the host's context of the chat session.
        said: takes a caller's words, or `NOT_UNDERSTOOD`; it silences the agent for good.
    """

    def __init__(
        self,
        recogniser: DeskRecogniser,
        host: DeskHost,
        context: Any,
        said: Callable[[str], Awaitable[None]],
    ) -> None:
        self._recogniser = recogniser
        self._host = host
        self._context = context
        self._said = said
        self._unknown = 0
        """Turns that are over and whose words are not known yet."""

    async def follow(self, call: Any) -> None:
        """Listen to the end of the call; raises SpeechError where that cannot be."""
        listening = self._recogniser.listening(call)
        if listening is None:
            return
        listening.on_event = lambda event: self._event(event, listening)
        try:
            async for turn in listening:
                await self._turn(turn, listening)
        finally:
            self._host.go_on(self._context)

    def _event(self, event: ListenEvent, listening: SpeechDetection) -> None:
        """In the step of the event loop in which it was decided."""
        from qwen3tts_phone.detection.events import (
            CallerCutIn,
            OnsetHeard,
            SpeechResumed,
            TurnEnded,
        )

        match event:
            case CallerCutIn():
                self._host.hold(self._context, cut_in=True)
            case OnsetHeard() | SpeechResumed():
                self._host.hold(self._context, cut_in=False)
            case TurnEnded(why=why, cut_in=cut_in):
                if why != "noise" or cut_in:
                    self._unknown += 1
                else:
                    self._silent(listening)
            case _:
                pass

    async def _turn(self, turn: Turn, listening: SpeechDetection) -> None:
        self._unknown = max(0, self._unknown - 1)
        if turn.error is not None:
            self._recogniser.failed(turn.error)
        elif turn.text.strip():
            self._recogniser.understood()
        if words := turn.text.strip():
            await self._said(words)
        elif turn.error is not None and turn.why != "call_over":
            await self._said(NOT_UNDERSTOOD)
        self._silent(listening)

    def _silent(self, listening: SpeechDetection) -> None:
        """A turn is done with: unless there is another, the agent may speak."""
        if self._unknown or listening.caller_speaking:
            self._host.hold(self._context, cut_in=False)
        else:
            self._host.go_on(self._context)
