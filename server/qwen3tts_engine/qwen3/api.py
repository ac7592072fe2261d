"""Qwen3-TTS for functions without a server or an event loop.

>>> tts = Qwen3TTS.load("Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice")  # doctest: +SKIP
>>> for pcm, rate in tts.stream("Good morning.", voice="ryan"):  # doctest: +SKIP
...     play(pcm, rate)

Thread-safe; concurrent calls share the batch.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from qwen3tts_engine.base import (
    SAMPLE_RATE,
    LoadedVoice,
    Voice,
)
from qwen3tts_engine.qwen3.api_speech import (
    TEXT_MAX,
    Speech,
    SpeechOptions,
    StreamOptions,
    TextReader,
    audio_source,
    check_kinds,
    check_whole_text,
    in_equal_pieces,
    not_text_error,
    per_text_arguments,
    speak_all,
    to_float,
    voice_name,
)
from qwen3tts_engine.qwen3.engine.engine import Qwen3Engine
from qwen3tts_engine.qwen3.engine.settings import Qwen3Settings
from qwen3tts_engine.qwen3.kernels.runner import Progress
from qwen3tts_engine.qwen3.model.config import FRAME_SAMPLES, Samples
from qwen3tts_engine.qwen3.model.prompt import NO_SPEAKER
from qwen3tts_engine.qwen3.voices.content import ClonePrompt, Codes
from qwen3tts_engine.qwen3.voices.recording import Source
from qwen3tts_engine.text_plan import PlanMode
from qwen3tts_settings.constraints import with_changes
from qwen3tts_wire.errors import BadRequest, EngineUnavailable

__all__ = ["NO_SPEAKER", "TEXT_MAX", "ClonePrompt", "Qwen3TTS", "Samples", "StreamOptions"]

T = TypeVar("T")
AHEAD_S = 4.0
"""Audio made ahead of a slow reader."""


class Qwen3TTS:
    """Loaded model; made by ``load``. ``close`` it, or use ``with``."""

    def __init__(self, settings: Qwen3Settings, progress: Progress | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="qwen3 speech", daemon=True
        )
        self._thread.start()
        self._engine = Qwen3Engine(settings, progress)
        self._lock = threading.RLock()
        self._closed = False
        try:
            self._wait(self._engine.start())
        except BaseException:
            self._closed = True
            self._stop()
            raise

    @classmethod
    def load(
        cls,
        model: str,
        *,
        warmup: bool = False,
        progress: Progress | None = None,
        **settings: Any,
    ) -> Self:
        """Load a checkpoint.

        Args:
            model: Folder or hub id.
            warmup: Also do what ``warmup`` does.
            progress: Called from another thread with activity, steps done and steps in all.
            settings: Fields of Qwen3Settings: ``device``, ``dtype``, ``slots``, ``graphs``, ...

        Raises:
            EngineUnavailable: the checkpoint or the device is missing, damaged or too small.
            ValueError: a setting is out of range.
        """
        return cls(Qwen3Settings(model=model, warmup=warmup, **settings), progress)

    def warmup(self) -> None:
        self._wait(self._engine.warmup())

    @property
    def model(self) -> str:
        return self._engine.model

    @property
    def sample_rate(self) -> int:
        return SAMPLE_RATE

    @property
    def device(self) -> str:
        """Device of the model, such as ``cpu`` or ``cuda:0``."""
        return self._engine.device

    def voices(self) -> list[Voice]:
        return list(self._engine.voices())

    def create_voice(
        self,
        audio: Source,
        text: str | None = None,
        *,
        x_vector_only: bool = False,
        name: str | None = None,
    ) -> LoadedVoice:
        """Make a voice from a recording; for Base checkpoints.

        Args:
            audio: Audio file, its bytes, or samples with their rate.
            text: Its transcript; None: recognised by Whisper, if configured.
            x_vector_only: Use the speaker embedding only; no text is needed.
            name: Alias behind ``clone:``.

        Returns:
            The voice for ``stream`` and ``generate``, like its ``voice_id``.

        Raises:
            BadRequest: the recording, its text or the name.
            LimitExceeded: the recording is too long.
        """
        check_kinds(text=text, name=name)
        return self._wait(
            self._engine.load_voice(
                ref_audio=audio, ref_text=text, x_vector_only=x_vector_only, name=name
            )
        )

    def clone_prompt(self, voice: str | LoadedVoice) -> ClonePrompt:
        """Return a cloned voice's speaker embedding, codes and text."""
        check_kinds(voice=voice)
        return self._wait(self._engine.clone_prompt(voice_name(voice) or ""))

    def create_voice_from(self, prompt: ClonePrompt, *, name: str | None = None) -> LoadedVoice:
        """Make a voice of codes and speaker embedding; for Base checkpoints.

        Args:
            prompt: Without codes, only the speaker embedding is used.
            name: Alias behind ``clone:``.

        Raises:
            BadRequest: invalid shapes, types, values or name, or codes without text.
            LimitExceeded: more than 60 s of codes.
        """
        if not isinstance(prompt, ClonePrompt):
            raise BadRequest(
                f"The prompt is {type(prompt).__name__}.",
                remedy="Give ClonePrompt(embedding, codes, text).",
            )
        check_kinds(name=name)
        return self._wait(self._engine.load_prompt(prompt, name))

    def encode(self, audio: NDArray[Any] | Source, sample_rate: int | None = None) -> Codes:
        """Return the codec's codes of a recording, [ceil(seconds * 12.5), 16].

        Args:
            audio: Samples [n] or [n, channels], floats in ±1 or integers at full scale, or an audio
                file or its bytes; 1 ms to 600 s.
            sample_rate: Of samples, 4,000 to 192,000 Hz; a file has its own.

        Raises:
            BadRequest: an invalid shape, type, rate or sample.
            LimitExceeded: too long.
            EngineUnavailable: the checkpoint has no encoder.
        """
        return self._wait(self._engine.encode(audio_source(audio, sample_rate)))

    def decode(self, codes: object) -> tuple[Samples, int]:
        """Return the audio of codes [frames, 16], 1920 samples a frame, and its rate.

        Raises:
            BadRequest: not integers, another shape, no frame, or a code out of range.
        """
        return self._wait(self._engine.decode(codes)), SAMPLE_RATE

    def stream(
        self,
        text: str | Iterable[str],
        options: StreamOptions | None = None,
        **how: Any,
    ) -> Iterator[tuple[Samples, int]]:
        """Speak, and yield the audio while it is made.

        Args:
            text: At most TEXT_MAX code points, or an iterable of pieces, such as a language model's
                output, which a thread of its own reads. Text without anything to say is silent; an
                empty whole text is refused.
            options: Voice, manner and limits.
            how: Fields of StreamOptions by name, which prevail: ``voice="ryan", seed=1``.

        Yields:
            Samples [n], and their rate in hertz.

        Raises:
            TypeError: a keyword that is no field; the text names the nearest one.
            UnknownVoice: no such voice or language.
            BadText: not text, or empty.
            LimitExceeded: the text is too long.
            BadRequest: an invalid argument, a piece that is not ``str``, or an iterator that raised
                ``SystemExit`` and the like; its other errors pass through.
            EngineFailed: the generation failed.
            EngineUnavailable: the model was closed.
        """
        options = with_changes(options or StreamOptions(), how, Qwen3TTS.stream)
        check_whole_text(text)
        pieces = self._speak(text, options.plan_mode, options.speech_options())
        if options.frames_per_emission is None:
            return pieces
        return in_equal_pieces(pieces, options.frames_per_emission * FRAME_SAMPLES)

    def generate(self, text: str | Iterable[str], **how: Any) -> tuple[Samples, int]:
        """Return all audio of a text; arguments as of ``stream``."""
        pieces = [pcm for pcm, _ in self.stream(text, **how)]
        return np.concatenate(pieces) if pieces else np.zeros(0, np.float32), SAMPLE_RATE

    def generate_all(self, texts: Sequence[str], **how: Any) -> list[tuple[Samples, int]]:
        """Speak several texts in one batch; arguments as of ``stream``.

        Args:
            texts: What to say.
            how: ``voice``, ``language`` and ``instructions`` may be lists, one entry a text.

        Returns:
            The audio of each, in order.

        Raises:
            BadRequest: ``texts`` is not a list of ``str``, or a list has another length.
        """
        if isinstance(texts, str) or not isinstance(texts, Sequence):
            raise BadRequest("The texts are no list.", remedy="Give a list of str.")
        # Refused before any is begun.
        for text in texts:
            if not isinstance(text, str):
                raise not_text_error("One of the texts", text)
            check_whole_text(text)
        single = [how | own for own in per_text_arguments(how, len(texts))]
        with ThreadPoolExecutor(max(1, min(len(texts), 64))) as pool:
            return list(pool.map(lambda text, own: self.generate(text, **own), texts, single))

    def supported_speakers(self) -> list[str]:
        """Return the speakers of a CustomVoice checkpoint, sorted."""
        return sorted(self._engine.config.talker.speakers)

    def supported_languages(self) -> list[str]:
        """Return the checkpoint's languages, ``auto`` first, then sorted."""
        languages = self._engine.config.talker.languages
        return ["auto", *sorted(name for name in languages if "dialect" not in name)]

    def close(self) -> None:
        """End all speech and free the device; idempotent."""
        with self._lock:
            first, self._closed = not self._closed, True
        if first:
            self._on_loop(self._end_all()).result()
            self._on_loop(self._engine.close()).result()
            self._stop()
        else:
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- internal ---

    def _speak(
        self, text: str | Iterable[str], mode: PlanMode, manner: SpeechOptions
    ) -> Iterator[tuple[Samples, int]]:
        speech = self._wait(self._begin(mode, manner))
        try:
            if isinstance(text, str):
                self._loop.call_soon_threadsafe(speak_all, speech, text)
            else:
                TextReader(self._loop, speech, text).start()
            while (chunk := self._wait(speech.next())) is not None:
                if chunk.pcm:
                    yield to_float(chunk.pcm), SAMPLE_RATE
        finally:
            self._release(speech)

    def _release(self, speech: Speech) -> None:
        if threading.current_thread() is self._thread:
            self._on_loop(speech.close())
        else:
            # Closing the model ends them all.
            with suppress(EngineUnavailable):
                self._wait(speech.close())

    async def _begin(self, mode: PlanMode, manner: SpeechOptions) -> Speech:
        return Speech(self._engine, mode, manner, ahead=round(AHEAD_S * SAMPLE_RATE))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        # Work begun before ``close`` is ended by it; none is begun later.
        with self._lock:
            if self._closed:
                work.close()
                raise _closed()
            begun = self._on_loop(work)
        try:
            return begun.result()
        except CancelledError:
            raise _closed() from None
        except BaseException:
            begun.cancel()
            raise

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _end_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _stop(self) -> None:
        self._on_loop(self._end_all()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _closed() -> EngineUnavailable:
    return EngineUnavailable("The model has been closed.", remedy="Load it again.")
