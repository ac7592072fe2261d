"""Recognition: turns become messages, barge-in stops the agent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, cast

from qwen3tts_wire.errors import SpeechError

from .options import CallHost, CallSettings

if TYPE_CHECKING:
    from qwen3tts_phone.detection.events import ListenEvent, Turn
    from qwen3tts_phone.detection.recogniser import Recogniser
    from qwen3tts_phone.detection.settings import OverlapMode
    from qwen3tts_phone.detection.speech_detection import SpeechDetection


log = logging.getLogger(__name__)

DEAF = "Callers are not understood, and the telephone works without that: "


class CallRecogniser:
    """Recogniser of ``sip_stt``, shared by calls.

    Args:
        settings: read by `start`.
        problem: reports each distinct failure once.
    """

    def __init__(
        self,
        settings: Callable[[], CallSettings],
        problem: Callable[[str, BaseException | str], None],
    ) -> None:
        self.trouble = ""
        """Failure; empty if it works or is off."""
        self._settings = settings
        self._problem = problem
        self._recogniser: Recogniser | None = None
        self._pause_ms = 0
        self._smart_turn = ""
        self._overlap = "stop"
        self._warming: asyncio.Task[None] | None = None

    @property
    def hears(self) -> bool:
        return self._recogniser is not None

    def start(self) -> None:
        """Load in the background; raises nothing."""
        settings = self._settings()
        if not settings.sip_stt or self._recogniser is not None:
            return
        try:
            self._recogniser = _made(settings)
        except (SpeechError, ImportError) as error:
            self._failed(error)
            return
        self._pause_ms = settings.sip_pause_ms
        self._smart_turn = settings.sip_smart_turn or ""
        self._overlap = settings.sip_overlap
        # An empty context: an agent's turn must not be remembered by what outlives it.
        self._warming = asyncio.create_task(
            self._warm(self._recogniser), name="qwen3tts: load the recogniser", context=Context()
        )

    def listening(self, call: Any) -> SpeechDetection | None:
        """Return a call's turns without keys, or None."""
        if self._recogniser is None:
            return None
        from qwen3tts_phone.detection.settings import ListenSettings

        usual = ListenSettings()
        settings = ListenSettings(
            keys=False,
            pause_ms=self._pause_ms,
            notice_ms=min(usual.notice_ms, self._pause_ms),
            longest_pause_ms=max(usual.longest_pause_ms, self._pause_ms),
            smart_turn=self._smart_turn,
            overlap=cast("OverlapMode", self._overlap),
        )
        listening: SpeechDetection = call.hear(settings, self._recogniser)
        return listening

    def failed(self, error: SpeechError) -> None:
        """Report a failed turn, each cause once."""
        if str(error) != self.trouble:
            self.trouble = str(error)
            self._problem("telephone", error)

    def understood(self) -> None:
        self.trouble = ""

    async def close(self) -> None:
        recogniser, self._recogniser = self._recogniser, None
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.wait([self._warming])
        if recogniser is not None:
            await recogniser.close()

    async def _warm(self, recogniser: Recogniser) -> None:
        from qwen3tts_phone.detection.recogniser import RecogniserUnavailable

        try:
            await recogniser.warm()
        except RecogniserUnavailable as error:
            self._recogniser = None
            self._failed(error)
            await recogniser.close()
        except SpeechError as error:  # it may come later: each turn tries again
            self._failed(error)
        except Exception as error:
            # A package of somebody else's that breaks while it loads.
            log.exception("the recogniser broke while it was loaded")
            self._recogniser = None
            self._failed(error)
            await recogniser.close()
        else:
            log.info("callers are understood")

    def _failed(self, error: BaseException) -> None:
        self.trouble = f"{DEAF}{error}"
        self._problem("telephone", self.trouble)


def _made(settings: CallSettings) -> Recogniser:
    from qwen3tts_agent.recognition.kinds import recogniser_named
    from qwen3tts_phone.detection.settings import ListenSettings
    from qwen3tts_phone.detection.smart_turn import turn_detector_of
    from qwen3tts_phone.detection.vad import make_detector

    make_detector(ListenSettings().detector)
    turn_detector_of(ListenSettings(smart_turn=settings.sip_smart_turn or ""))
    languages = tuple(settings.sip_stt_languages)
    return recogniser_named(
        settings.sip_stt or "", **({"languages": languages} if languages else {})
    )


NOT_UNDERSTOOD = (
    "SYSTEM: The caller said something that could not be understood. Ask them to say it again."
)


class CallerTurns:
    """Turns of one call; the agent is silent meanwhile.

    Barge-in stops the agent; its reply resumes after noise and is dropped after text.

    Args:
        recogniser: shared by calls.
        host: stops and resumes the agent.
        context: the session's.
        said: takes the text, or `NOT_UNDERSTOOD`.
    """

    def __init__(
        self,
        recogniser: CallRecogniser,
        host: CallHost,
        context: Any,
        said: Callable[[str], Awaitable[None]],
    ) -> None:
        self._recogniser = recogniser
        self._host = host
        self._context = context
        self._said = said
        self._unknown = 0
        """Turns without a transcript yet."""

    async def follow(self, call: Any) -> None:
        """Follow the call; raises SpeechError where recognition fails to start."""
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
        from qwen3tts_phone.detection.events import (
            CallerCutIn,
            OnsetHeard,
            SpeechResumed,
            TurnEnded,
        )

        if isinstance(event, OnsetHeard):
            listening.expect(self._host.heard_text(self._context))
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
        if self._unknown or listening.caller_speaking:
            self._host.hold(self._context, cut_in=False)
        else:
            self._host.go_on(self._context)
