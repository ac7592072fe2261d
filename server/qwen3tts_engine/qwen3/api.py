"""Qwen3-TTS for programs without a server or an event loop.

>>> tts = Qwen3TTS.load("Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice")  # doctest: +SKIP
>>> for pcm, rate in tts.stream("Good morning.", voice="ryan"):  # doctest: +SKIP
...     play(pcm, rate)

Everything may be called from any thread, and by several at once: they share the batch.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from qwen3tts_engine.base import SAMPLE_RATE, LoadedVoice, Voice
from qwen3tts_engine.text_plan import PlanMode
from qwen3tts_wire.errors import BadRequest, EngineUnavailable
from qwen3tts_wire.messages import Sampling

from .engine import Qwen3Engine
from .reference_audio import Source
from .runner import Progress
from .settings import Qwen3Settings
from .speech import Manner, Speech

T = TypeVar("T")
Samples = NDArray[np.float32]
"""Mono, within -1 to 1."""
FRAME_SAMPLES = 1920
"""Samples of a codec frame, 80 ms."""
AHEAD_S = 4.0
"""Sound made for a reader who takes his time."""


class Qwen3TTS:
    """A loaded model that speaks. Made by ``load``; ``close`` it, or use it in a ``with``."""

    def __init__(self, settings: Qwen3Settings, progress: Progress | None = None) -> None:
        """Load; see ``load``, which most people want."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="qwen3 speech", daemon=True
        )
        self._thread.start()
        self._engine = Qwen3Engine(settings, progress)
        try:
            self._wait(self._engine.start())
        except BaseException:
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
            model: its folder, or a hub id.
            warmup: do what ``warmup`` does.
            progress: told from another thread what is being done: what, how much of it is done,
                how much there is.
            settings: further fields of Qwen3Settings: ``device``, ``dtype``, ``slots``,
                ``graphs``, ``compile``, ...

        Raises:
            EngineUnavailable: the checkpoint or the device is missing, damaged or too small.
            ValueError: a setting cannot be.
        """
        return cls(Qwen3Settings(model=model, warmup=warmup, **settings), progress)

    def warmup(self) -> None:
        """Do once what is done once (CUDA graphs, compilation), so that no request pays for it."""
        self._wait(self._engine.warmup())

    @property
    def model(self) -> str:
        """What speaks, for people."""
        return self._engine.model

    @property
    def sample_rate(self) -> int:
        """Of all sound, hertz."""
        return SAMPLE_RATE

    def voices(self) -> list[Voice]:
        """The voices, the default first."""
        return list(self._engine.voices())

    def create_voice(
        self,
        audio: Source,
        text: str | None = None,
        *,
        x_vector_only: bool = False,
        name: str | None = None,
    ) -> LoadedVoice:
        """A voice from a recording; for Base checkpoints.

        Args:
            audio: a sound file, its bytes, or samples with their rate.
            text: what is said in it; None: a Whisper model finds out, if the settings name one.
            x_vector_only: take only the colour of the voice; no text is needed.
            name: what else it can be asked for as, behind ``clone:``.

        Returns:
            The voice, for ``voice=`` of ``stream`` and ``generate``, as is its ``voice_id``.

        Raises:
            BadRequest: the recording, its text or the name.
            LimitExceeded: the recording is too long.
        """
        return self._wait(
            self._engine.load_voice(
                ref_audio=audio, ref_text=text, x_vector_only=x_vector_only, name=name
            )
        )

    def stream(
        self,
        text: str | Iterable[str],
        *,
        voice: str | LoadedVoice | None = None,
        language: str | None = None,
        instructions: str | None = None,
        mode: PlanMode = "auto",
        sampling: Sampling | None = None,
        seed: int | None = None,
        frames_per_emission: int | None = None,
    ) -> Iterator[tuple[Samples, int]]:
        """Speak, and give the sound while it is made.

        Args:
            text: all of it; or the pieces that a language model writes, which are read in a thread
                of their own while the sound is given out.
            voice: one of ``voices``, or one that ``create_voice`` made.
            language: such as ``en`` or ``de-AT``; None: the model finds it out.
            instructions: how to speak, in words.
            mode: ``auto``, ``clause`` or ``live``; docs/engine.md says what they are.
            sampling: how the model draws; a temperature of 0 always takes the likeliest.
            seed: the same seed gives the same speech; None: another each time.
            frames_per_emission: give out pieces of just so many frames of 80 ms (the last may be
                shorter); None: as they are made, small ones first.

        Yields:
            Samples [n], and their rate in hertz.

        Raises:
            UnknownVoice: no such voice or language.
            BadText: the text is not text.
            EngineFailed: it broke.
        """
        if frames_per_emission is not None and frames_per_emission < 1:
            raise BadRequest(
                f"frames_per_emission={frames_per_emission} is out of range.",
                remedy="Choose 1 or more; a frame is 80 ms.",
            )
        manner = Manner(
            voice=voice.voice_id if isinstance(voice, LoadedVoice) else voice,
            language=language,
            instructions=instructions,
            sampling=sampling,
            seed=seed,
            initial_codec_chunk_frames=frames_per_emission,
        )
        pieces = self._speak(text, mode, manner)
        if frames_per_emission is None:
            return pieces
        return _evenly(pieces, frames_per_emission * FRAME_SAMPLES)

    def generate(self, text: str | Iterable[str], **how: Any) -> tuple[Samples, int]:
        """All the sound of a text at once; the arguments are those of ``stream``."""
        pieces = [pcm for pcm, _ in self.stream(text, **how)]
        return np.concatenate(pieces) if pieces else np.zeros(0, np.float32), SAMPLE_RATE

    def close(self) -> None:
        """End what is being said and free the device; again does nothing."""
        if self._thread.is_alive():
            self._wait(self._engine.close())
            self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- behind it ---

    def _speak(
        self, text: str | Iterable[str], mode: PlanMode, manner: Manner
    ) -> Iterator[tuple[Samples, int]]:
        speech = self._wait(self._begin(mode, manner))
        try:
            if isinstance(text, str):
                self._loop.call_soon_threadsafe(_all_of, speech, text)
            else:
                _Reader(self._loop, speech, text).start()
            while (chunk := self._wait(speech.next())) is not None:
                if chunk.pcm:
                    yield _floats(chunk.pcm), SAMPLE_RATE
        finally:
            self._release(speech)

    def _release(self, speech: Speech) -> None:
        """Nobody reads it any more. A reader that was forgotten is ended wherever its memory is
        freed, on the loop's own thread too, which must not wait for itself."""
        if self._thread.is_alive():
            closed = asyncio.run_coroutine_threadsafe(speech.close(), self._loop)
            if threading.current_thread() is not self._thread:
                closed.result()

    async def _begin(self, mode: PlanMode, manner: Manner) -> Speech:
        return Speech(self._engine, mode, manner, ahead=round(AHEAD_S * SAMPLE_RATE))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Have it done on the loop."""
        if not self._thread.is_alive():
            work.close()
            raise EngineUnavailable("The model has been closed.", remedy="Load it again.")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Reader(threading.Thread):
    """Reads a text that somebody writes. Ends with it, or at its next piece when nobody listens;
    its errors are the listener's."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, speech: Speech, pieces: Iterable[str]
    ) -> None:
        super().__init__(name="qwen3 text", daemon=True)
        self._loop = loop
        self._speech = speech
        self._pieces = pieces

    def run(self) -> None:
        """Read all of it."""
        try:
            for piece in self._pieces:
                if self._speech.closed:
                    return
                self._tell(self._speech.append, piece)
        except Exception as error:
            self._tell(self._speech.fail, error)
        else:
            self._tell(self._speech.end)

    def _tell(self, what: Callable[..., None], *given: object) -> None:
        # The loop is closed where the model was, while the text was still being written.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(what, *given)


def _all_of(speech: Speech, text: str) -> None:
    speech.append(text)
    speech.end()


def _floats(pcm: bytes) -> Samples:
    return np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32768)


def _evenly(pieces: Iterator[tuple[Samples, int]], samples: int) -> Iterator[tuple[Samples, int]]:
    """The same sound in pieces of so many samples; the last may be shorter."""
    held = np.zeros(0, np.float32)
    for pcm, _ in pieces:
        held = np.concatenate((held, pcm))
        while len(held) >= samples:
            yield held[:samples], SAMPLE_RATE
            held = held[samples:]
    if len(held):
        yield held, SAMPLE_RATE
