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
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, Self, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from qwen3tts_engine.base import MAX_FIRST_CHUNK, SAMPLE_RATE, LoadedVoice, Voice
from qwen3tts_engine.embedded.text import check_text
from qwen3tts_engine.text_plan import PlanMode
from qwen3tts_wire.errors import BadRequest, BadText, EngineUnavailable
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
TEXT_MAX = 1_000_000
"""Code points in a whole text, some 18 hours of speech."""


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
            text: all of it, at most TEXT_MAX code points; or the pieces that a language model
                writes, any number, which are read in a thread of their own while the sound is
                given out. Pieces with nothing to say are silence, a whole text is refused.
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
            BadText: the text is not text, or there is nothing to say in it.
            LimitExceeded: the text is too long.
            BadRequest: no such mode, a text or a piece that is no ``str``, a writer who left
                (``SystemExit`` and the like); the other errors of ``text`` come out as they are.
            EngineFailed: it broke.
            EngineUnavailable: the model was closed.
        """
        if mode not in get_args(PlanMode):
            raise BadRequest(
                f"There is no mode {mode!r}.", remedy=f"Choose {', '.join(get_args(PlanMode))}."
            )
        frames = frames_per_emission
        if frames is not None and (type(frames) is not int or frames < 1):
            raise BadRequest(
                f"frames_per_emission={frames!r} is out of range.",
                remedy="Choose a whole number from 1; a frame is 80 ms.",
            )
        _check_text(text)
        manner = Manner(
            voice=voice.voice_id if isinstance(voice, LoadedVoice) else voice,
            language=language,
            instructions=instructions,
            sampling=sampling,
            seed=seed,
            initial_codec_chunk_frames=None if frames is None else min(frames, MAX_FIRST_CHUNK),
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
            sounded = False
            while (chunk := self._wait(speech.next())) is not None:
                if chunk.pcm:
                    sounded = True
                    yield _floats(chunk.pcm), SAMPLE_RATE
            if isinstance(text, str) and not sounded:
                # Markup, say, of which nothing is left.
                raise _nothing_to_say()
        finally:
            self._release(speech)

    def _release(self, speech: Speech) -> None:
        """Nobody reads it any more. A reader that was forgotten is ended wherever its memory is
        freed, on the loop's own thread too, which must not wait for itself."""
        if threading.current_thread() is self._thread:
            self._on_loop(speech.close())
        else:
            # All of them end where the model is closed.
            with suppress(EngineUnavailable):
                self._wait(speech.close())

    async def _begin(self, mode: PlanMode, manner: Manner) -> Speech:
        return Speech(self._engine, mode, manner, ahead=round(AHEAD_S * SAMPLE_RATE))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Have it done on the loop."""
        # What was begun before it is closed is ended by that, nothing is begun later.
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
        """Whoever waits, for text say, waits no longer."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _stop(self) -> None:
        self._on_loop(self._end_all()).result()
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
                if not isinstance(piece, str):
                    raise _no_text("A piece of the text", piece)
                self._tell(self._speech.append, piece)
        except Exception as error:
            self._tell(self._speech.fail, error)
        except BaseException as error:
            # It would end the loop that raised it for the listener, who must not wait for ever.
            broken = BadRequest(
                f"The text broke off with {type(error).__name__}.",
                remedy="See to it that what writes the text ends it.",
            )
            broken.__cause__ = error
            self._tell(self._speech.fail, broken)
        else:
            self._tell(self._speech.end)

    def _tell(self, what: Callable[..., None], *given: object) -> None:
        # The loop is closed where the model was, while the text was still being written.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(what, *given)


def _check_text(text: object) -> None:
    if isinstance(text, str):
        check_text(text, TEXT_MAX)
        if not any(map(str.isalnum, text)):
            raise _nothing_to_say()
    elif isinstance(text, bytes | bytearray) or not isinstance(text, Iterable):
        raise _no_text("The text", text)


def _nothing_to_say() -> BadText:
    return BadText(
        "There is nothing to say in the text.", remedy="Give one with letters or digits."
    )


def _no_text(what: str, found: object) -> BadRequest:
    return BadRequest(
        f"{what} is {type(found).__name__}, not str.",
        remedy="Give a str, or what gives one after the other; decode bytes first.",
    )


def _closed() -> EngineUnavailable:
    return EngineUnavailable("The model has been closed.", remedy="Load it again.")


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
