"""What an engine is: text of one segment in, samples and words out, cancelled by closing."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from qwen3tts_engine.live_text import LiveText
from qwen3tts_engine.playout import PlayoutLead
from qwen3tts_wire.alignment import Word
from qwen3tts_wire.errors import BadRequest
from qwen3tts_wire.messages import Sampling

Mode = Literal["clause", "live"]
"""How one generation gets its text: all of it first, or while it speaks."""
EndReason = Literal["text_end", "frame_cap", "silence", "dry"]
"""Why a generation ended: its text was said; it ran past the length that its text can have; it
went on in silence after its text; no text came for too long (later text begins another)."""
Alignment = Literal["exact", "estimated", "none"]
"""How well an engine knows where its words sound: the synthesis says so; found in the sound,
each word with its stated precision; not at all."""

SAMPLE_RATE = 24_000
"""Rate of all engines' samples, hertz."""
SPEED_MIN = 0.5
SPEED_MAX = 2.5
MAX_FIRST_CHUNK = 100
"""Codec frames that a request may ask for in its first chunk of audio; the wire's bound."""


@dataclass(frozen=True, slots=True)
class Voice:
    """A voice that an engine offers."""

    id: str
    """What a request names."""
    name: str
    """For people."""
    language: str
    """BCP 47 tag."""
    gender: str | None = None
    """``male``, ``female``, or None where it is not stated."""
    description: str = ""


@dataclass(frozen=True, slots=True)
class SynthesisRequest:
    """One segment of a context's text, to be spoken.

    Raises:
        BadRequest: ``speed`` is not within SPEED_MIN to SPEED_MAX, or
            ``initial_codec_chunk_frames`` not within 1 to MAX_FIRST_CHUNK.
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
    instructions: str | None = None
    """How to speak, in words."""
    sampling: Sampling | None = None
    """Sampling of a model's tokens; what is left out is the checkpoint's."""
    seed: int | None = None
    """Start of the random numbers; None: a new one each time."""
    initial_codec_chunk_frames: int | None = None
    """Codec frames in the first chunk of audio."""
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
        """Where the code points ``[start, end)`` of ``text`` lie in the original text."""
        if self.offsets is None or start >= end:
            return (start, end) if self.offsets is None else (self.offsets[start],) * 2
        # The last code point's own place, then one on: what follows it in the original (Markdown
        # that is not spoken, say) is not part of the word.
        return self.offsets[start], min(self.offsets[end - 1] + 1, self.offsets[-1])


@dataclass(frozen=True, slots=True)
class PcmChunk:
    """Some sound, and the words that are complete with it."""

    pcm: bytes
    """Samples, signed 16 bits little-endian, mono, SAMPLE_RATE; whole samples only. May be
    empty where a chunk carries only words."""
    words: tuple[Word, ...] = ()
    """In order. ``start`` and ``end`` count from the request's first sample, ``char_start`` and
    ``char_end`` in the original text. A word never ends after the samples given out so far."""
    end: EndReason | None = None
    """With the last chunk of an engine that can end for several reasons: why."""
    marks: Mapping[str, float] = field(default_factory=dict)
    """When something happened first in this request, by the names of docs/protocol.md (``slot``,
    ``prefill``, ``first_codes``), in seconds of ``time.monotonic``."""

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.pcm) // 2


class Engine(Protocol):
    """Something that speaks. All of them pass tests/engine/test_engine_contract.py."""

    @property
    def name(self) -> str:
        """Kind of engine, as configured: ``embedded``, ..."""
        ...

    @property
    def model(self) -> str:
        """What speaks, for logs and for people; known for certain after ``start``."""
        ...

    @property
    def sample_rate(self) -> int:
        """SAMPLE_RATE."""
        ...

    @property
    def options(self) -> frozenset[str]:
        """Fields of SynthesisRequest that change something here: of ``instructions``,
        ``sampling``, ``seed``, ``initial_codec_chunk_frames``, ``lead``, ``speed``."""
        ...

    @property
    def alignment(self) -> Alignment:
        """How well it knows where its words sound."""
        ...

    def modes(self, voice: str | None) -> Sequence[Mode]:
        """How this voice takes text; ``clause`` always."""
        ...

    async def start(self) -> None:
        """Make ready; nothing to do when it is.

        Raises:
            EngineUnavailable: a library, a model or a device is missing; says how to get it.
        """
        ...

    async def close(self) -> None:
        """End what is under way (with EngineFailed) and free everything. May be started again."""
        ...

    def voices(self) -> Sequence[Voice]:
        """The voices on offer, the default first."""
        ...

    def check(self, voice: str | None, language: str | None) -> None:
        """Refuse early what ``synthesize`` would refuse.

        Raises:
            UnknownVoice: no such voice or language; names near ones.
        """
        ...

    def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[PcmChunk, None]:
        """Speak one segment; ``aclose()`` cancels and frees the slot at once.

        Text with nothing to say in it ends without a chunk. A reader who stalls holds back only
        this request.

        Raises:
            UnknownVoice: no such voice or language.
            BadText: the text is not text; says where.
            LimitExceeded: the text is longer than the engine takes.
            EngineFailed: it broke, and saying it again did not help.
        """
        ...


@dataclass(frozen=True, slots=True)
class LoadedVoice:
    """A voice that is ready to be named in a request."""

    voice_id: str
    """What a request names."""
    cached: bool
    """Whether it was there already."""
    ref_text: str | None = None
    """What its reference says, as given or as written down here; None where it is not used."""


@runtime_checkable
class ClonesVoices(Protocol):
    """An engine that also makes voices from references."""

    async def load_voice(
        self,
        *,
        voice_id: str | None = None,
        ref_audio: bytes | None = None,
        ref_text: str | None = None,
        x_vector_only: bool = False,
    ) -> LoadedVoice:
        """Make a voice ready. Works off the event loop; cancelled when nobody waits any more.

        Args:
            voice_id: a voice that is known here, or
            ref_audio: a sound file to take the voice from (one of the two is given).
            ref_text: what is said in it; None or empty: found out, where the engine can.
            x_vector_only: take only the colour of the voice from it, no text.

        Raises:
            UnknownVoice: no voice of that id.
            BadRequest: the reference is no audio, too short, too long or silent, its text is
                missing, or the checkpoint cannot clone.
            ServerBusy: too much is being loaded.
        """
        ...


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """How much an engine has to do."""

    slots: int
    """Requests that it speaks at once."""
    busy: int
    """Requests that it is speaking."""
    waiting: int
    """Requests that wait for a slot."""


@runtime_checkable
class ReportsLoad(Protocol):
    """An engine that knows how busy it is."""

    def load(self) -> EngineLoad:
        """As it is now; quick, and callable from the event loop at any time."""
        ...


@runtime_checkable
class ReportsHealth(Protocol):
    """An engine that can be started and yet not able to speak."""

    def healthy(self) -> bool:
        """Whether it can speak, as far as it knows; quick. One that cannot looks for its cure."""
        ...
