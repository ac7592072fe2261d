"""The parent's side of one recognising process: start it, have it hear, notice when it is gone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import qwen3tts_agent
import qwen3tts_wire
from qwen3tts_agent.recognition.settings import WhisperSettings
from qwen3tts_agent.recognition.whisper_messages import BadMessage, Decoder, Message
from qwen3tts_phone.detection.recogniser import RecogniserUnavailable, RecognitionFailed, Samples
from qwen3tts_wire.process import child_environment
from qwen3tts_wire.whisper.guards import Answer
from qwen3tts_wire.whisper.models import variables_for

log = logging.getLogger(__name__)

END_S = 5.0
"""How long the process may take to end before it is killed."""
LAST_WORDS = 2000
"""Characters of what it wrote to its standard error that are kept."""


class WhisperProcess:
    """One process; it hears one piece at a time. See `start`."""

    def __init__(self, settings: WhisperSettings, process: asyncio.subprocess.Process) -> None:
        self.settings = settings
        self.on_gone: Callable[[], None] = lambda: None
        """Called once, when it has ended."""
        self.facts: dict[str, Any] = {}
        """What it told of itself when it was ready: load_s, model, source, languages, device,
        dtype, threads."""
        self._process = process
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answer: asyncio.Future[Message] | None = None
        self._job = 0
        self._why = ""
        self._last_words = ""
        self._gone = asyncio.Event()
        self._readers = [
            asyncio.create_task(self._read(), name="read a recogniser's answers"),
            asyncio.create_task(self._read_errors(), name="read a recogniser's complaints"),
        ]

    @classmethod
    async def start(cls, settings: WhisperSettings) -> WhisperProcess:
        """Start the process and have it load the model: seconds to minutes.

        Raises:
            RecogniserUnavailable: the software, the model or the device are not there.
            RecognitionFailed: it ended, or was not ready in time.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                *command(settings),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=_environment(settings.model),
            )
        except OSError as error:
            raise RecognitionFailed(f"Whisper's process cannot be started: {error}.") from error
        self = cls(settings, process)
        try:
            async with asyncio.timeout(settings.load_timeout_s):
                await asyncio.shield(self._ready)
        except TimeoutError:
            await self.close()
            raise RecognitionFailed(
                f"The Whisper model {settings.model} was not loaded within"
                f" {settings.load_timeout_s:g} s.",
                remedy="Fetch the model beforehand, name a smaller one, or raise load_timeout_s.",
            ) from None
        except BaseException:
            # Also a cancelled start: nobody else knows of the process.
            await self.close()
            raise
        return self

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return not self._gone.is_set() and not self._why

    async def hear(self, samples: Samples) -> Answer:
        """The words of at most 30 s at 16 kHz, int16 [n]; one call at a time.

        When it is cancelled the process is told, and may be asked again once `idle` returns.

        Raises:
            RecognitionFailed: the process ended, or could not do it.
        """
        if not self.alive:
            raise self._failure()
        if self._answer is not None:
            raise RuntimeError("the process hears something else")
        self._job += 1
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answer = answer
        self._write(Message("hear", {"job": self._job}, samples.tobytes()))
        stalled = asyncio.get_running_loop().call_later(
            self.settings.stall_s, self._kill, f"it worked for {self.settings.stall_s:g} s"
        )
        answer.add_done_callback(lambda _: stalled.cancel())
        try:
            message = await asyncio.shield(answer)
        except asyncio.CancelledError:
            self._write(Message("drop", {"job": self._job}))
            raise
        return _answer(message)

    async def idle(self) -> None:
        """Return when it hears nothing any more, or is gone."""
        if self._answer is not None:
            await asyncio.wait([self._answer])

    async def close(self) -> None:
        """End it."""
        self._why = self._why or "it was closed"
        if self._process.stdin is not None:
            self._process.stdin.close()  # it ends when it sees this
        _, late = await asyncio.wait(self._readers, timeout=END_S)
        if late:
            self._kill("it did not end")
            await asyncio.wait(late)

    def _write(self, message: Message) -> None:
        stdin = self._process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(message.encode())

    def _kill(self, why: str) -> None:
        self._why = self._why or why
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def _read(self) -> None:
        """Read what it says until it ends."""
        assert self._process.stdout is not None
        decoder = Decoder()
        try:
            while data := await self._process.stdout.read(1 << 16):
                for message in decoder.push(data):
                    self._take(message)
        except BadMessage as error:
            self._kill(f"it sent no message: {error}")
        except asyncio.CancelledError:
            self._kill("its reader was cancelled")
            raise
        finally:
            await self._ended()

    def _take(self, message: Message) -> None:
        fields = message.fields
        match message.type:
            case "loading":
                log.info("loading the Whisper model %s", self.settings.model)
            case "ready":
                self.facts = fields
                log.info("%s, ready after %.1f s", model_line(fields), float(fields["load_s"]))
                if not self._ready.done():
                    self._ready.set_result(None)
            case "missing":
                error = RecogniserUnavailable(
                    str(fields.get("reason", "")), remedy=str(fields.get("remedy", ""))
                )
                self._why = self._why or "it could not begin"
                if not self._ready.done():
                    self._ready.set_exception(error)
                    self._ready.exception()  # whether or not anybody waits for it
            case "text" | "dropped" | "failed" if fields.get("job") == self._job:
                answer, self._answer = self._answer, None
                if answer is not None and not answer.done():
                    answer.set_result(message)
            case other:
                raise BadMessage(f"{other[:20]!r}")

    async def _read_errors(self) -> None:
        """Keep the end of what it complains about; a full pipe would hold it up."""
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(1 << 12):
            text = self._last_words + data.decode("utf-8", "replace")
            self._last_words = text[-LAST_WORDS:]

    async def _ended(self) -> None:
        status = await self._reap()
        self._why = self._why or _how(status)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._gone.set()
        failure = self._failure()
        for waiting in (self._ready, self._answer):
            if waiting is not None and not waiting.done():
                waiting.set_exception(failure)
                waiting.exception()
        self._answer = None
        self.on_gone()

    async def _reap(self) -> int:
        try:
            async with asyncio.timeout(END_S):
                return await self._process.wait()
        except TimeoutError:
            self._kill("it did not end")
            return await self._process.wait()

    def _failure(self) -> RecognitionFailed:
        failure = RecognitionFailed(
            f"Whisper's process is gone: {self._why}.", remedy="Another one is started by itself."
        )
        if self._last_words:
            failure.add_note(self._last_words)
        return failure


def command(settings: WhisperSettings) -> list[str]:
    """What starts the process. ``-P``: the current folder is no place to import from."""
    module = "qwen3tts_agent.recognition.whisper_worker"
    return [sys.executable, "-P", "-m", module, json.dumps(settings.wishes())]


MOST_LANGUAGES = 8
"""Languages that are named; of more, their number."""


def model_line(facts: Mapping[str, Any]) -> str:
    """The model in use, where it is from, its language and device, as its process told them."""
    known = tuple(map(str, facts.get("languages", ())))
    languages = ", ".join(known) or "any language"
    if len(known) > MOST_LANGUAGES:
        languages = f"{len(known)} languages"
    return (
        f"Whisper {facts.get('model')} ({facts.get('source')}), {languages},"
        f" {facts.get('dtype')} on {facts.get('device')}"
    )


def _environment(model: str) -> dict[str, str]:
    """What it needs, with the folders of our packages on the path, installed or not."""
    roots = [
        str(Path(each.__path__[0]).resolve().parent) for each in (qwen3tts_agent, qwen3tts_wire)
    ]
    return {
        **child_environment(also=variables_for(model), roots=roots),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def _answer(message: Message) -> Answer:
    fields = message.fields
    if message.type == "text":
        try:
            return Answer(
                str(fields["text"]),
                str(fields["language"]),
                float(fields["logprob"]),
                float(fields["no_speech"]),
            )
        except (KeyError, TypeError, ValueError):
            raise RecognitionFailed("Whisper's process sent an answer without its parts.") from None
    if message.type == "failed":
        raise RecognitionFailed(
            f"Whisper could not write a turn down: {str(fields.get('reason'))[:100]}."
        )
    raise RecognitionFailed("The turn was given up.")


def _how(status: int) -> str:
    if status < 0:
        try:
            return f"it was ended by {signal.Signals(-status).name}"
        except ValueError:
            return f"it was ended by signal {-status}"
    return f"it ended with status {status}"
