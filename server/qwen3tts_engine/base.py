"""Interface of an engine: text of one segment in, samples and words out, cancelled by closing."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from qwen3tts_engine.playout import PlayoutLead
from qwen3tts_text.growing import LiveText
from qwen3tts_wire.errors import BadRequest
from qwen3tts_wire.heard import Word
from qwen3tts_wire.messages import Sampling

Mode = Literal["clause", "live"]
"""Text intake of a generation: all first, or while it speaks."""
Layout = Literal["full", "streaming"]
"""Reading of complete text: before speech, or one token with each frame."""
EndReason = Literal[
    "text_end",
    "frame_cap",
    "silence",
    "dry",
    "repeated",
    "regenerated",
    "regenerated_cap",
    "regenerated_repeated",
]
"""Why a generation ended: its text was spoken; it ran past the length that its text can have; it
went on in silence after its text; no text came for too long (later text begins another); it said
the same over and over; it ended with words left (in silence, at its length, in a repetition), and
another generation spoke them."""
Alignment = Literal["exact", "estimated", "none"]
"""Source of an engine's word times: the synthesis says so; found in the sound,
each word with its stated precision; not at all."""

SAMPLE_RATE = 24_000
"""Rate of all engines' samples, hertz."""
SPEED_MIN = 0.5
SPEED_MAX = 2.5
SILENCE_MIN_S = 0.2
SILENCE_MAX_S = 600.0
MAX_FIRST_CHUNK = 100
"""Codec frames that a request may ask for in its first chunk of audio; the wire's bound."""


@dataclass(frozen=True, slots=True)
class Voice:
    """Voice offered by an engine."""

    id: str
    """Id in requests."""
    name: str
    """For people."""
    language: str
    """BCP 47 tag."""
    gender: str | None = None
    """``male``, ``female``, or None where it is not stated."""
    description: str = ""


@dataclass(frozen=True, slots=True)
class GenerationLimits:
    """Limits of a generation; None: the engine's setting.

    Raises:
        BadRequest: a silence outside SILENCE_MIN_S to SILENCE_MAX_S, or ``max_new_tokens`` below
            2.
    """

    silence_s: float | None = None
    """Silence after its text was spoken for certain."""
    pause_s: float | None = None
    """Silence while words are or may be left; another generation speaks those that are."""
    max_new_tokens: int | None = None
    """Frames of 80 ms. A text with a ``layout`` ends there; else another generation speaks
    the rest."""

    def __post_init__(self) -> None:
        for name, seconds in (("silence_s", self.silence_s), ("pause_s", self.pause_s)):
            if seconds is not None and not (
                type(seconds) in (int, float) and SILENCE_MIN_S <= seconds <= SILENCE_MAX_S
            ):
                raise BadRequest(
                    f"{name}={seconds!r} is out of range.",
                    remedy=f"Choose from {SILENCE_MIN_S:g} to {SILENCE_MAX_S:g} seconds.",
                )
        frames = self.max_new_tokens
        if frames is not None and (type(frames) is not int or frames < 2):
            raise BadRequest(
                f"max_new_tokens={frames!r} is out of range.",
                remedy="Choose a whole number of frames of 80 ms, 2 or more.",
            )


@dataclass(frozen=True, slots=True)
class PredictorSampling:
    """Sampling of codes 1 to 15 of a frame; None: the checkpoint's.

    Raises:
        BadRequest: wrong type or out of range.
    """

    dosample: bool | None = None
    """False takes the likeliest."""
    top_k: int | None = None
    """Codes that are drawn from; 0 is all."""
    top_p: float | None = None
    temperature: float | None = None
    """0 takes the likeliest."""

    def __post_init__(self) -> None:
        if self.dosample not in (None, True, False) or type(self.dosample) is int:
            self._refuse("dosample", "True, False or None")
        if self.top_k is not None and not (type(self.top_k) is int and 0 <= self.top_k <= 10_000):
            self._refuse("top_k", "a whole number from 0 to 10000, or None")
        for name, high in (("top_p", 1), ("temperature", 2)):
            value = getattr(self, name)
            if value is not None and not (type(value) in (int, float) and 0 <= value <= high):
                self._refuse(name, f"a number from 0 to {high}, or None")

    def _refuse(self, name: str, expected: str) -> None:
        raise BadRequest(
            f"subtalker_{name}={getattr(self, name)!r:.80} is not {expected}.",
            remedy=f"Give {expected}.",
        )


@dataclass(slots=True, eq=False)
class ContextVoice:
    """Voice of one context, kept between its generations."""

    kept: object | None = None
    """Written and read by the engine alone."""


@dataclass(frozen=True, slots=True)
class SynthesisRequest:
    """One segment of a context's text to synthesize.

    Raises:
        BadRequest: ``speed`` or ``initial_codec_chunk_frames`` is out of range.
        ValueError: ``offsets`` does not fit ``text``.
    """

    text: str
    voice: str | None = None
    language: str | None = None
    speed: float = 1.0
    """Factor on the voice's usual speed."""
    offsets: tuple[int, ...] | None = None
    """``offsets[i]`` is the position of ``text[i]`` in the context's original text, in code
    points; one entry more than ``text`` has, the last is the end. None: the two are the same."""
    final: bool = False
    """Nothing of the context follows: the pause after the last sentence is left out."""
    continued: bool = False
    """Sound of the same context goes before: a pause at the start is part of the speech."""
    more: LiveText | None = None
    """Text that goes on arriving after ``text``, for an engine and voice whose ``modes`` have
    ``live``; None: ``text`` is all. Of either text, what the engine has no room for is left in
    it, for another generation."""
    layout: Layout | None = None
    """Reading of the text, for an engine whose ``options`` have it; all of the text, that of
    ``more`` too, is there then. None: the engine's choice; ``more`` is read while it grows."""
    instructions: str | None = None
    """Speaking style, in words."""
    sampling: Sampling | None = None
    """Sampling of a model's tokens; what is left out is the checkpoint's."""
    seed: int | None = None
    """Start of the random numbers; None: a new one each time."""
    initial_codec_chunk_frames: int | None = None
    """Codec frames in the first chunk of audio."""
    limits: GenerationLimits | None = None
    """Limits of the generation; None: the engine's settings, as for the next."""
    predictor: PredictorSampling | None = None
    context: ContextVoice | None = None
    """The same object with all requests of a context, for engines that would draw another voice
    with each; None: the request is a context of its own."""
    lead: PlayoutLead | None = None
    """The context's audio ahead of its listener: the engine adds what it makes and works first
    for those who have least. None: as if everything were played as it is made."""

    def __post_init__(self) -> None:
        speed = self.speed
        if not (math.isfinite(speed) and SPEED_MIN <= speed <= SPEED_MAX):
            raise BadRequest(
                f"speed={speed} is out of range.",
                remedy=f"Choose a factor from {SPEED_MIN} to {SPEED_MAX}; 1.0 is as recorded.",
            )
        first = self.initial_codec_chunk_frames
        if first is not None and not 1 <= first <= MAX_FIRST_CHUNK:
            raise BadRequest(
                f"initial_codec_chunk_frames={first} is out of range.",
                remedy=f"Choose from 1 to {MAX_FIRST_CHUNK} frames, or leave it to the engine.",
            )
        if self.offsets is not None and len(self.offsets) != len(self.text) + 1:
            raise ValueError(
                f"{len(self.offsets)} offsets for a text of {len(self.text)} code points; "
                "there must be one more than code points"
            )

    def original(self, start: int, end: int) -> tuple[int, int]:
        """Return the span of the original text that ``text[start:end]`` stands for."""
        if self.offsets is None or start >= end:
            return (start, end) if self.offsets is None else (self.offsets[start],) * 2
        # The last code point's own place, then one on: what follows it in the original (Markdown
        # that is not spoken, say) is not part of the word.
        return self.offsets[start], min(self.offsets[end - 1] + 1, self.offsets[-1])


@dataclass(frozen=True, slots=True)
class PcmChunk:
    """Samples, and the words that are complete with them."""

    pcm: bytes
    """Samples, signed 16 bits little-endian, mono, SAMPLE_RATE; whole samples only. May be
    empty where a chunk carries only words."""
    words: tuple[Word, ...] = ()
    """In order. ``start`` and ``end`` count from the request's first sample, ``char_start`` and
    ``char_end`` in the original text. A word never ends after the samples given out so far."""
    end: EndReason | None = None
    """With the last chunk of an engine that can end for several reasons: why."""
    marks: Mapping[str, float] = field(default_factory=dict)
    """First time of each event in this request, by the names of docs/protocol.md (``slot``,
    ``prefill``, ``first_codes``), in seconds of ``time.monotonic``."""

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.pcm) // 2


class Engine(Protocol):
    """Speech synthesizer. All of them pass tests/engine/test_engine_contract.py."""

    @property
    def name(self) -> str:
        """Name in ``engine.name``: ``embedded``, ..."""
        ...

    @property
    def model(self) -> str:
        """Model, for logs and people; final after ``start``."""
        ...

    @property
    def sample_rate(self) -> int:
        """Sample rate in hertz: SAMPLE_RATE."""
        ...

    @property
    def options(self) -> frozenset[str]:
        """Effective fields of SynthesisRequest.

        Of ``instructions``, ``sampling``, ``seed``, ``initial_codec_chunk_frames``, ``lead``,
        ``speed``, ``layout``.
        """
        ...

    @property
    def alignment(self) -> Alignment:
        """Quality of its word times."""
        ...

    def modes(self, voice: str | None) -> Sequence[Mode]:
        """Return how a voice takes text; ``clause`` always."""
        ...

    async def start(self) -> None:
        """Start; idempotent.

        Raises:
            EngineUnavailable: a library, a model or a device is missing; says how to get it.
        """
        ...

    async def close(self) -> None:
        """Fail what is under way (EngineFailed) and free everything. May be restarted."""
        ...

    def voices(self) -> Sequence[Voice]:
        """Return the voices on offer, the default first."""
        ...

    def check(self, voice: str | None, language: str | None) -> None:
        """Refuse early what ``synthesize`` would refuse.

        Raises:
            UnknownVoice: no such voice or language; names near ones.
        """
        ...

    def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[PcmChunk, None]:
        """Synthesize one segment; ``aclose()`` cancels and frees the slot immediately.

        Text without anything to speak has no chunk. A stalled reader holds back only this
        request.

        Raises:
            UnknownVoice: no such voice or language.
            BadText: the text holds what is not text; says where.
            LimitExceeded: the text is longer than the engine takes.
            EngineFailed: it failed, also when tried again.
        """
        ...


@dataclass(frozen=True, slots=True)
class LoadedVoice:
    """Voice ready to be named in a request."""

    voice_id: str
    """Id in requests."""
    cached: bool
    """True if it was there already."""
    ref_text: str | None = None
    """Transcript of its reference, given or recognised here; None where unused."""


class WordsMissing(BadRequest):
    """A reference needs its transcript; ``x_vector_only`` does without."""


CLONE = "clone:"
"""Prefix of cloned voices' names."""


@runtime_checkable
class ClonesVoices(Protocol):
    """Engine that also makes voices from references."""

    async def load_voice(
        self,
        *,
        voice_id: str | None = None,
        ref_audio: bytes | None = None,
        ref_text: str | None = None,
        x_vector_only: bool = False,
    ) -> LoadedVoice:
        """Load a voice off the event loop.

        Args:
            voice_id: a known voice, or
            ref_audio: a sound file to clone (one of the two).
            ref_text: its transcript; None or empty: recognised, where the engine can.
            x_vector_only: take only the speaker embedding (x-vector) from it.

        Raises:
            UnknownVoice: no voice of that id.
            BadRequest: the reference is not audio, too short, too long or silent, or the
                checkpoint cannot clone.
            WordsMissing: it needs its text.
            ServerBusy: too much is being loaded.
        """
        ...


@runtime_checkable
class TakesEmbeddings(Protocol):
    """Engine that also makes voices from speaker embeddings (x-vectors)."""

    def embedding_size(self) -> int | None:
        """Return the length of an embedding; None: the checkpoint takes none."""
        ...

    async def load_embedding(self, embedding: Sequence[float]) -> LoadedVoice:
        """Load a voice.

        Args:
            embedding: ``embedding_size`` finite numbers.

        Raises:
            BadRequest: none are taken, or not of this size.
            ServerBusy: the voices in use leave no room.
        """
        ...


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """Load of an engine."""

    slots: int
    """Requests that it can speak concurrently."""
    busy: int
    """Requests that it is speaking."""
    waiting: int
    """Requests that wait for a slot."""


@runtime_checkable
class ReportsLoad(Protocol):
    """Engine that knows its load."""

    def load(self) -> EngineLoad:
        """Return the present load; for the event loop."""
        ...


@runtime_checkable
class ReportsHealth(Protocol):
    """Engine that can be started and yet unable to speak."""

    def healthy(self) -> bool:
        """Return whether it can speak; if not, it tries to recover."""
        ...
