"""Speech of the Python API: streaming text in, audio out."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from qwen3tts_engine.base import (
    MAX_FIRST_CHUNK,
    SAMPLE_RATE,
    SPEED_MAX,
    SPEED_MIN,
    ContextVoice,
    Engine,
    GenerationLimits,
    LoadedVoice,
    PcmChunk,
    PredictorSampling,
    SynthesisRequest,
)
from qwen3tts_engine.qwen3.model.config import Samples
from qwen3tts_engine.qwen3.voices.recording import Source
from qwen3tts_engine.request_text import check_text
from qwen3tts_engine.text_plan import LAYOUTS, GenerationText, PlanMode, TextPlan, mode_for
from qwen3tts_wire.errors import BadRequest, BadText
from qwen3tts_wire.fields import kinds
from qwen3tts_wire.messages import Sampling

TEXT_MAX = 1_000_000
"""Code points of a whole text, some 18 hours of speech."""


def check_kinds(**given: object) -> None:
    for name, value in given.items():
        if value is None or isinstance(value, str):
            continue
        if name == "voice" and isinstance(value, LoadedVoice):
            continue
        kinds = "a str, a LoadedVoice or None" if name == "voice" else "a str or None"
        raise BadRequest(f"{name}={value!r:.80} is not {kinds}.", remedy=f"Give {kinds}.")


def per_text_arguments(how: dict[str, Any], count: int) -> list[dict[str, Any]]:
    own: list[dict[str, Any]] = [{} for _ in range(count)]
    for name in ("voice", "language", "instructions"):
        values = how.get(name)
        if not isinstance(values, list | tuple):
            continue
        if len(values) != count:
            raise BadRequest(
                f"{name} has {len(values)} entries for {count} texts.",
                remedy="Give one for each text, or a single one for all.",
            )
        for each, value in zip(own, values, strict=True):
            check_kinds(**{name: value})
            each[name] = value
    return own


def voice_name(voice: str | LoadedVoice | None) -> str | None:
    return voice.voice_id if isinstance(voice, LoadedVoice) else voice


def audio_source(audio: NDArray[Any] | Source, sample_rate: int | None) -> Source:
    if not isinstance(audio, np.ndarray):
        if sample_rate is not None:
            raise BadRequest(
                f"sample_rate={sample_rate!r:.80} is given with {type(audio).__name__}.",
                remedy="Give it with a NumPy array; a file says its own rate.",
            )
        return audio
    if sample_rate is None:
        raise BadRequest(
            "The samples come without sample_rate.", remedy="Give their rate in hertz."
        )
    return audio, sample_rate


def check_sampling(sampling: Sampling) -> None:
    if not isinstance(sampling, Sampling):
        raise BadRequest(
            f"sampling={sampling!r:.80} is not a Sampling.",
            remedy="Give qwen3tts_wire.messages.Sampling(...) or None.",
        )
    for name, (kind, _) in kinds(Sampling).items():
        value = getattr(sampling, name)
        try:
            kind.check(value, name)
        except BadRequest:
            allowed = kind.describe().replace("null", "None")
            raise BadRequest(
                f"{name}={value!r:.80} is invalid.", remedy=f"Expected: {allowed}."
            ) from None


def check_whole_text(text: object) -> None:
    if isinstance(text, str):
        check_text(text, TEXT_MAX)
        if not text.strip():
            raise BadText("The text is empty.", remedy="Give some words to say.")
    elif isinstance(text, bytes | bytearray) or not isinstance(text, Iterable):
        raise not_text_error("The text", text)


def not_text_error(what: str, found: object) -> BadRequest:
    return BadRequest(
        f"{what} is {type(found).__name__}, not str.",
        remedy="Give a str, or what gives one after the other; decode bytes first.",
    )


@dataclass(frozen=True, slots=True)
class SpeechOptions:
    voice: str | None = None
    language: str | None = None
    speed: float = 1.0
    instructions: str | None = None
    sampling: Sampling | None = None
    seed: int | None = None
    initial_codec_chunk_frames: int | None = None
    limits: GenerationLimits | None = None
    predictor: PredictorSampling | None = None


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Voice, manner and limits of `Qwen3TTS.stream`; its keyword arguments.

    Raises:
        BadRequest: a value of another type or out of range.
    """

    voice: str | LoadedVoice | None = None
    """One of ``voices``, or of ``create_voice``; NO_SPEAKER: a CustomVoice checkpoint without a
    speaker.
    """
    language: str | None = None
    """Such as ``en`` or ``de-AT``; None: automatic."""
    speed: float = 1.0
    """Factor on the rate of speech, 0.5 to 2.5; the pitch is kept."""
    instructions: str | None = None
    """Speaking style, in words."""
    mode: PlanMode = "auto"
    """``auto``, ``clause``, ``live``, ``whole`` or ``whole_streaming``; see docs/engine.md."""
    non_streaming_mode: bool | None = None
    """Official name, overrides ``mode``: True is ``whole``, False ``whole_streaming``."""
    limits: GenerationLimits | None = None
    """Limits of a generation without EOS; None: the settings'."""
    max_new_tokens: int | None = None
    """Most frames of 80 ms of one generation; overrides ``limits``."""
    sampling: Sampling | None = None
    """Sampling of code 0; temperature 0 is greedy for all codes."""
    subtalker_dosample: bool | None = None
    """Official name, as the next three, of codes 1 to 15; False is greedy."""
    subtalker_top_k: int | None = None
    subtalker_top_p: float | None = None
    subtalker_temperature: float | None = None
    seed: int | None = None
    """Makes speech reproducible; None: random."""
    frames_per_emission: int | None = None
    """Frames of 80 ms per piece (the last may be shorter); None: as made, small ones first."""

    def __post_init__(self) -> None:
        if self.non_streaming_mode not in (None, True, False):
            raise BadRequest(
                f"non_streaming_mode={self.non_streaming_mode!r} is no truth value.",
                remedy="Give True, False or None.",
            )
        if self.plan_mode not in get_args(PlanMode):
            raise BadRequest(
                f"There is no mode {self.mode!r}.",
                remedy=f"Choose {', '.join(get_args(PlanMode))}.",
            )
        frames = self.frames_per_emission
        if frames is not None and (type(frames) is not int or frames < 1):
            raise BadRequest(
                f"frames_per_emission={frames!r} is out of range.",
                remedy="Choose a whole number from 1; a frame is 80 ms.",
            )
        check_kinds(voice=self.voice, language=self.language, instructions=self.instructions)
        if type(self.speed) not in (int, float) or not SPEED_MIN <= self.speed <= SPEED_MAX:
            raise BadRequest(
                f"speed={self.speed!r:.80} is out of range.",
                remedy=f"Choose a factor from {SPEED_MIN} to {SPEED_MAX}.",
            )
        if self.seed is not None and type(self.seed) is not int:
            raise BadRequest(
                f"seed={self.seed!r} is no whole number.", remedy="Give an int or None."
            )
        if self.sampling is not None:
            check_sampling(self.sampling)
        if self.limits is not None and not isinstance(self.limits, GenerationLimits):
            raise BadRequest(
                f"limits={self.limits!r:.80} is not a GenerationLimits.",
                remedy="Give qwen3tts_engine.base.GenerationLimits(...) or None.",
            )

    @property
    def plan_mode(self) -> PlanMode:
        if self.non_streaming_mode is None:
            return self.mode
        return "whole" if self.non_streaming_mode else "whole_streaming"

    def speech_options(self) -> SpeechOptions:
        limits, frames = self.limits, self.frames_per_emission
        if self.max_new_tokens is not None:
            limits = replace(limits or GenerationLimits(), max_new_tokens=self.max_new_tokens)
        return SpeechOptions(
            voice=voice_name(self.voice),
            language=self.language,
            speed=self.speed,
            instructions=self.instructions,
            sampling=self.sampling,
            seed=self.seed,
            initial_codec_chunk_frames=None if frames is None else min(frames, MAX_FIRST_CHUNK),
            limits=limits,
            predictor=PredictorSampling(
                self.subtalker_dosample,
                self.subtalker_top_k,
                self.subtalker_top_p,
                self.subtalker_temperature,
            ),
        )


class Speech:
    """Speech of a growing text for one reader, in one event loop.

    The next piece begins when the last is made and at most ``ahead`` samples are unread.
    """

    def __init__(
        self, engine: Engine, mode: PlanMode, manner: SpeechOptions, *, ahead: int
    ) -> None:
        """Start; ``mode`` becomes ``clause`` for a voice without live text.

        Raises UnknownVoice.
        """
        engine.check(manner.voice, manner.language)
        self.mode: PlanMode = mode_for(engine, manner.voice, mode)
        """Effective mode."""
        self._engine = engine
        self._manner = manner
        self._plan = TextPlan(self.mode, language=manner.language)
        self._context = ContextVoice()
        self._ahead = ahead
        self._on_text = asyncio.Event()
        self._read = asyncio.Event()
        self._made = asyncio.Event()
        self._chunks: deque[PcmChunk] = deque()
        self._unread = 0
        self._sounded = False
        self._broken: Exception | None = None
        self._task = asyncio.get_running_loop().create_task(self._speak(), name="speech")
        self._task.add_done_callback(lambda _: self._made.set())

    def append(self, text: str) -> None:
        self._plan.append(text)
        self._on_text.set()

    def end(self) -> None:
        self._plan.end()
        self._on_text.set()

    def fail(self, error: Exception) -> None:
        self._broken = error
        self._task.cancel()

    @property
    def closed(self) -> bool:
        return self._task.done()

    async def next(self) -> PcmChunk | None:
        """Return the next chunk, None at the end; errors follow the audio before."""
        while not self._chunks:
            if self._task.done():
                if self._broken is not None:
                    raise self._broken
                self._task.result()
                return None
            self._made.clear()
            await self._made.wait()
        chunk = self._chunks.popleft()
        self._unread -= chunk.samples
        self._read.set()
        return chunk

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._plan.close()

    async def _speak(self) -> None:
        while not self._plan.finished():
            piece = self._plan.next()
            if piece is None:
                self._on_text.clear()
                await self._on_text.wait()
                continue
            async with aclosing(self._engine.synthesize(self._request(piece))) as chunks:
                async for chunk in chunks:
                    await self._put(chunk)
            self._plan.generated()

    async def _put(self, chunk: PcmChunk) -> None:
        while self._unread > self._ahead:
            self._read.clear()
            await self._read.wait()
        self._chunks.append(chunk)
        self._sounded = self._sounded or bool(chunk.pcm)
        self._unread += chunk.samples
        self._made.set()

    def _request(self, piece: GenerationText) -> SynthesisRequest:
        manner = self._manner
        return SynthesisRequest(
            text=piece.text,
            offsets=piece.offsets,
            final=piece.final,
            continued=self._sounded,
            more=piece.more,
            layout=LAYOUTS.get(self.mode),
            context=self._context,
            voice=manner.voice,
            language=manner.language,
            speed=manner.speed,
            instructions=manner.instructions,
            sampling=manner.sampling,
            seed=manner.seed,
            limits=manner.limits,
            predictor=manner.predictor,
            initial_codec_chunk_frames=manner.initial_codec_chunk_frames,
        )


class TextReader(threading.Thread):
    def __init__(
        self, loop: asyncio.AbstractEventLoop, speech: Speech, pieces: Iterable[str]
    ) -> None:
        super().__init__(name="qwen3 text", daemon=True)
        self._loop = loop
        self._speech = speech
        self._pieces = pieces

    def run(self) -> None:
        try:
            for piece in self._pieces:
                if self._speech.closed:
                    return
                if not isinstance(piece, str):
                    raise not_text_error("A piece of the text", piece)
                self._tell(self._speech.append, piece)
        except Exception as error:
            self._tell(self._speech.fail, error)
        except BaseException as error:
            # Raised on the loop it would end it, and the reader would wait for ever.
            broken = BadRequest(
                f"The text broke off with {type(error).__name__}.",
                remedy="See to it that what writes the text ends it.",
            )
            broken.__cause__ = error
            self._tell(self._speech.fail, broken)
        else:
            self._tell(self._speech.end)

    def _tell(self, what: Callable[..., None], *given: object) -> None:
        # The model was closed while the text was still being written.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(what, *given)


def speak_all(speech: Speech, text: str) -> None:
    speech.append(text)
    speech.end()


def to_float(pcm: bytes) -> Samples:
    return np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32768)


def in_equal_pieces(
    pieces: Iterator[tuple[Samples, int]], samples: int
) -> Iterator[tuple[Samples, int]]:
    held = np.zeros(0, np.float32)
    for pcm, _ in pieces:
        held = np.concatenate((held, pcm))
        while len(held) >= samples:
            yield held[:samples], SAMPLE_RATE
            held = held[samples:]
    if len(held):
        yield held, SAMPLE_RATE
