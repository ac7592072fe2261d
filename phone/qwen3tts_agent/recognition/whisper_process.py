"""Whisper's process as its parent sees it.

Messages (`qwen3tts_wire.child.messages`):

    to the process    hear {job} + samples (int16, native, 16 kHz) · drop {job}
    from it           ready {load_s, model, source, languages, window_s, device, dtype, threads}
                      missing {reason, remedy, package} · dropped {job} · failed {job, reason}
                      text {job, text, language, logprob, no_speech}
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from qwen3tts_agent.recognition.settings import WhisperSettings
from qwen3tts_phone.detection.recogniser import RecogniserUnavailable, RecognitionFailed, Samples
from qwen3tts_wire.child.messages import BadMessage, Message
from qwen3tts_wire.child.process import (
    ChildProcess,
    ChildUnable,
    StartFailed,
    StartTimeout,
    command,
    environment,
)
from qwen3tts_wire.whisper.guards import Decoding
from qwen3tts_wire.whisper.models import variables_for

log = logging.getLogger(__name__)

WORKER = "qwen3tts_agent.recognition.whisper_worker"
END_S = 5.0
"""Time limit of the process's end before it is killed."""
KEPT_ERRORS = 2000
"""Characters of its standard error that are kept."""
MOST_LANGUAGES = 8
"""Languages that are named; of more, their number."""


class WhisperProcess:
    """One process, one piece of speech at a time."""

    def __init__(self, settings: WhisperSettings) -> None:
        self.settings = settings
        self.on_gone: Callable[[], None] = lambda: None
        """Called once, when it has ended."""
        self.gone = asyncio.Event()
        """Set when it has ended."""
        self.facts: dict[str, Any] = {}
        """Fields of its message ``ready``."""
        self._child = ChildProcess(
            command(WORKER, json.dumps(settings.load_options())),
            _environment(settings.model),
            on_message=self._receive,
            on_end=self._ended,
            name="Whisper",
            end_s=END_S,
            keep_errors=KEPT_ERRORS,
        )
        self._answer: asyncio.Future[Message] | None = None
        self._job = 0

    @classmethod
    async def start(cls, settings: WhisperSettings) -> WhisperProcess:
        """Start the process with its model: seconds to minutes.

        Raises RecogniserUnavailable, RecognitionFailed.
        """
        self = cls(settings)
        log.info("loading the Whisper model %s", settings.model)
        try:
            self.facts = await self._child.start(settings.load_timeout_s)
        except StartTimeout:
            raise RecognitionFailed(
                f"The Whisper model {settings.model} was not loaded within"
                f" {settings.load_timeout_s:g} s.",
                remedy="Fetch the model beforehand, name a smaller one, or raise load_timeout_s.",
            ) from None
        except ChildUnable as error:
            raise RecogniserUnavailable(error.reason, remedy=error.remedy) from None
        except StartFailed as error:
            raise self._failure(error.reason) from error
        log.info("%s, ready after %.1f s", model_line(self.facts), self.facts.get("load_s", 0.0))
        if (window_s := self.facts.get("window_s", settings.window_s)) != settings.window_s:
            log.warning("Whisper takes windows of %s s alone, which is slower", window_s)
        return self

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def alive(self) -> bool:
        return not self._child.ended and not self._child.reason

    async def hear(self, samples: Samples) -> Decoding:
        """Recognise at most 30 s at 16 kHz, int16 [n], one at a time.

        Cancellation reaches the process, which takes work again once `idle` returns.

        Raises RecognitionFailed.
        """
        if not self.alive:
            raise self._failure(self._child.reason)
        if self._answer is not None:
            raise RuntimeError("the process recognises something else")
        self._job += 1
        loop = asyncio.get_running_loop()
        self._answer = answer = loop.create_future()
        self._child.send(Message("hear", {"job": self._job}, samples.tobytes()))
        stall_s = self.settings.stall_s
        stalled = loop.call_later(stall_s, self._child.kill, f"it worked for {stall_s:g} s")
        answer.add_done_callback(lambda _: stalled.cancel())
        try:
            message = await asyncio.shield(answer)
        except asyncio.CancelledError:
            self._child.send(Message("drop", {"job": self._job}))
            raise
        return _answer(message)

    async def idle(self) -> None:
        if self._answer is not None:
            await asyncio.wait([self._answer])

    async def close(self) -> None:
        await self._child.close()

    def _receive(self, message: Message) -> None:
        if message.kind not in ("text", "dropped", "failed"):
            raise BadMessage(f"{message.kind[:20]!r}")
        if message.fields.get("job") != self._job:
            raise BadMessage("an answer to another job")
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result(message)

    def _ended(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(self._failure(self._child.reason))
            answer.exception()  # it may have been cancelled meanwhile
        self.gone.set()
        self.on_gone()

    def _failure(self, reason: str) -> RecognitionFailed:
        failure = RecognitionFailed(
            f"Whisper's process is gone: {reason}.", remedy="Another one is started by itself."
        )
        if self._child.errors:
            failure.add_note(self._child.errors)
        return failure


def model_line(facts: Mapping[str, Any]) -> str:
    known = tuple(map(str, facts.get("languages", ())))
    languages = ", ".join(known) or "any language"
    if len(known) > MOST_LANGUAGES:
        languages = f"{len(known)} languages"
    return (
        f"Whisper {facts.get('model')} ({facts.get('source')}), {languages},"
        f" {facts.get('dtype')} on {facts.get('device')}"
    )


def _environment(model: str) -> dict[str, str]:
    return {
        **environment(WORKER, also=variables_for(model)),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def _answer(message: Message) -> Decoding:
    fields = message.fields
    if message.kind == "text":
        try:
            return Decoding(
                str(fields["text"]),
                str(fields["language"]),
                float(fields["logprob"]),
                float(fields["no_speech"]),
            )
        except (KeyError, TypeError, ValueError):
            raise RecognitionFailed("Whisper's process sent an answer without its parts.") from None
    if message.kind == "failed":
        raise RecognitionFailed(
            f"Whisper could not recognise a turn: {str(fields.get('reason'))[:100]}."
        )
    raise RecognitionFailed("The turn was given up.")
