"""Recogniser made of a function of a turn's samples."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from qwen3tts_agent.recognition.threads import BoundedThreads, TooManyThreads
from qwen3tts_agent.recognition.turns import (
    OpenRecognitions,
    TurnRecognition,
    TurnRecognitionOptions,
)
from qwen3tts_phone.detection.recogniser import (
    PartialCallback,
    Recognise,
    RecogniserBusy,
    RecognitionFailed,
    Samples,
    Transcript,
)
from qwen3tts_wire.errors import SpeechError

MOST_TEXT = 20_000
"""Characters of one turn; a longer text is cut."""


class CallbackRecogniser:
    """Recogniser that calls a function with each turn's samples.

        >>> async def ask(samples, rate_hz):
        ...     return (await my_service(samples.tobytes(), rate_hz)).text
        >>> recogniser = CallbackRecogniser(ask)

    An ``async`` function is cancelled when not needed any more; any other runs in a thread and may
    block.
    """

    def __init__(
        self,
        function: Recognise,
        *,
        rate_hz: int = 16_000,
        early: bool = False,
        timeout_s: float = 15.0,
        at_once: int = 8,
        waiting: int = 32,
    ) -> None:
        """Store the function without a call.

        Args:
            function: recognises the samples of a turn.
            rate_hz: rate of these samples.
            early: call it at every pause, for an earlier text.
            timeout_s: time limit after the end of a turn.
            at_once: concurrent calls of it, over all telephone calls.
            waiting: further turns that may wait; then `RecogniserBusy`.

        Raises:
            ValueError: a number out of range; the text begins with its name.
        """
        if not 4000 <= rate_hz <= 48_000:
            raise ValueError(f"rate_hz={rate_hz} is not between 4000 and 48000")
        if not timeout_s > 0:
            raise ValueError(f"timeout_s={timeout_s} must be above 0")
        if at_once < 1 or waiting < 0:
            raise ValueError(f"at_once={at_once} must be above 0, waiting={waiting} not below")
        self._function = function
        self._rules = TurnRecognitionOptions(rate_hz, early=early, timeout_s=timeout_s)
        self._places = asyncio.Semaphore(at_once)
        self._most = at_once + waiting
        self._running = 0
        self._threads = BoundedThreads("recognise", self._most)
        self._open = OpenRecognitions[TurnRecognition]()

    @property
    def rate_hz(self) -> int:
        return self._rules.rate_hz

    async def warm(self) -> None: ...

    async def open(self, on_partial: PartialCallback | None = None) -> TurnRecognition:
        self._open.check()
        return self._open.add(TurnRecognition(self._recognise, self._rules, on_partial))

    async def close(self) -> None:
        """Close all recognitions without waiting for threads."""
        await self._open.close()

    async def _recognise(self, samples: Samples) -> Transcript:
        if self._running >= self._most:
            raise RecogniserBusy(
                f"{self._running} turns are being recognised or wait for it.",
                remedy="Allow more concurrent calls (at_once), or take fewer calls.",
            )
        self._running += 1
        try:
            async with self._places:
                answer = await self._ask(samples)
        except SpeechError:
            raise
        # The program's function may raise anything, which costs the turn, not the call. Its text
        # is not shown: it may hold what the caller said.
        except Exception as error:
            raise RecognitionFailed(
                f"The recogniser's function failed: {type(error).__name__}.",
                remedy="The cause of this error has the traceback.",
            ) from error
        finally:
            self._running -= 1
        return _transcript(answer)

    async def _ask(self, samples: Samples) -> Any:
        function, rate_hz = self._function, self._rules.rate_hz
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - whether calling it gives a coroutine
        ):
            return await function(samples, rate_hz)  # type: ignore[misc]
        try:
            answer = await self._threads.run(function, samples, rate_hz)
        except TooManyThreads:
            raise RecogniserBusy(
                f"{self._threads.running} calls of the recogniser's function have not ended.",
                remedy="See why it hangs; nothing can stop a thread.",
            ) from None
        return await answer if inspect.isawaitable(answer) else answer


def _transcript(answer: object) -> Transcript:
    if isinstance(answer, str):
        answer = Transcript(answer)
    if not isinstance(answer, Transcript):
        raise RecognitionFailed(
            f"The recogniser's function returned {type(answer).__name__}, which is not text.",
            remedy='Return the words as a string, "" where there are none.',
        )
    text = answer.text.strip()[:MOST_TEXT]
    return Transcript(text, answer.language, answer.confidence)
