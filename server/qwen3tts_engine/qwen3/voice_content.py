"""What a cloned voice is, and what it is made with."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from qwen3tts_engine.qwen3.codec_encoder import CodecEncoder
from qwen3tts_engine.qwen3.prompt import Reference
from qwen3tts_engine.qwen3.reference_audio import Recording, Samples
from qwen3tts_engine.qwen3.speaker_encoder import SpeakerEncoder
from qwen3tts_engine.qwen3.tokenizer import Tokenizer
from qwen3tts_engine.qwen3.voice_checks import checked_words
from qwen3tts_engine.qwen3.weights import Weights
from qwen3tts_wire.errors import LimitExceeded

FRAME_RATE = 12.5
"""Codec frames a second."""
_BYTES_PER_INT = 36
"""Of an int of Python and the tuple's pointer to it; codes and ids are kept as such."""


class Snapshot(Protocol):
    """arena.KvSnapshot or codec_state.CodecSnapshot."""

    @property
    def bytes(self) -> int:
        """Memory it takes."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class VoiceContent:
    """Everything about a voice that follows from its recording. Immutable."""

    x_vector: Tensor
    """Speaker vector, shape [hidden], float32, on the CPU."""
    reference: Reference | None = None
    """The recording's words and codes; None: x-vector only."""
    transcript: str | None = None
    """The recording's words, given or heard; None: x-vector only."""

    @property
    def bytes(self) -> int:
        """Memory of it."""
        size = self.x_vector.nbytes + 4 * len(self.transcript or "")
        if self.reference is not None:
            codes = self.reference.codes
            numbers = len(self.reference.text_ids) + sum(len(frame) for frame in codes)
            size += _BYTES_PER_INT * numbers
        return size


@dataclass(eq=False)
class ClonedVoice:
    """A voice in memory. Its snapshots are added through VoiceStore, which counts their bytes."""

    id: str
    """Hash of the whole content, 64 hexadecimal digits."""
    content: VoiceContent
    name: str | None = None
    """The last name given to it."""
    kv: dict[Hashable, Snapshot] = field(default_factory=dict)
    """KvSnapshots of prompts' beginnings, by what else they depend on (language, say)."""
    codec: Snapshot | None = None
    """The codec's state after the reference (CodecSnapshot)."""

    @property
    def x_vector(self) -> Tensor:
        """Speaker vector, shape [hidden], float32, on the CPU."""
        return self.content.x_vector

    @property
    def reference(self) -> Reference | None:
        """The recording's words and codes; None: x-vector only."""
        return self.content.reference

    @property
    def transcript(self) -> str | None:
        """The recording's words; None: x-vector only."""
        return self.content.transcript

    @property
    def bytes(self) -> int:
        """Memory of content and snapshots."""
        # A copy: the engine's thread may add one meanwhile.
        snapshots = [*self.kv.copy().values(), self.codec]
        return self.content.bytes + sum(one.bytes for one in snapshots if one is not None)


class VoiceEncoders(Protocol):
    """What makes a voice of a recording. Called in worker threads, from several at once."""

    @property
    def identity(self) -> str:
        """What they are: other weights have another one. Part of every voice's id."""
        ...

    def x_vector(self, samples: Samples) -> Tensor:
        """Speaker vector of samples at 24 kHz, shape [hidden]."""
        ...

    def codes(self, samples: Samples) -> Tensor:
        """Codes of samples at 24 kHz, shape [frames, quantizers], int64."""
        ...

    def text_ids(self, transcript: str) -> Iterable[int]:
        """Ids of the recording's words; raises BadText where they are no text."""
        ...


@dataclass(frozen=True, slots=True)
class ModelEncoders:
    """The encoders of a Base checkpoint."""

    speaker: SpeakerEncoder
    codec: CodecEncoder
    tokenizer: Tokenizer
    identity: str
    """See ``fingerprint``."""

    def x_vector(self, samples: Samples) -> Tensor:
        """Speaker vector of samples at 24 kHz, shape [hidden]."""
        return self.speaker.x_vector(torch.from_numpy(samples))

    def codes(self, samples: Samples) -> Tensor:
        """Codes of samples at 24 kHz, shape [frames, quantizers], int64."""
        return self.codec.encode(torch.from_numpy(samples))

    def text_ids(self, transcript: str) -> Iterable[int]:
        """Ids of the recording's words."""
        return self.tokenizer.encode(transcript)


def fingerprint(*parts: Weights) -> str:
    """Hash of tensors with their names and types, for ``VoiceEncoders.identity``.

    Reads all of them: ask for ``speaker_encoder.`` and ``encoder.``, not for whole files.
    """
    digest = hashlib.sha256()
    for part in parts:
        for name in part.names():
            tensor = part[name].cpu().contiguous()
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def voice_id(recording: Recording, words: str, identity: str) -> str:
    """Hash of everything that a voice is made of, 64 hexadecimal digits.

    Args:
        recording: All samples and their rate.
        words: The transcript, and where it is from; the same for each x-vector-only voice.
        identity: Of the encoders.
    """
    digest = hashlib.sha256(b"qwen3tts voice 1\n")
    for part in (identity, words, str(recording.rate)):
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:%b\n" % (len(encoded), encoded))
    digest.update(recording.samples.astype("<f4").data)
    return digest.hexdigest()


def given_content(
    vector: Tensor,
    codes: tuple[tuple[int, ...], ...],
    words: str | None,
    encoders: VoiceEncoders,
    max_s: float,
) -> tuple[str, VoiceContent]:
    """A voice that is given as speaker vector, codes and words; and its id.

    Raises:
        BadText, BadRequest: the words.
        LimitExceeded: they are too long, or the codes are longer than ``max_s``.
    """
    if not codes:
        return vector_id(vector), VoiceContent(vector)
    words = checked_words(words)
    most = int(max_s * FRAME_RATE)
    if len(codes) > most:
        raise LimitExceeded(
            f"There are {len(codes)} frames of codes; at most {most} are taken.",
            remedy="Cut out a part with its words; 125 frames, 10 s, are a good length.",
        )
    digest = hashlib.sha256(b"qwen3tts clone prompt 1\n")
    for part in (encoders.identity, words, repr(codes)):
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:%b\n" % (len(encoded), encoded))
    digest.update(vector.numpy().astype("<f4").data)
    reference = Reference(tuple(encoders.text_ids(words)), codes)
    return digest.hexdigest(), VoiceContent(vector, reference, words)


def vector_id(vector: Tensor) -> str:
    """Hash of a speaker vector that is a whole voice, 64 hexadecimal digits."""
    digest = hashlib.sha256(b"qwen3tts speaker vector 1\n")
    digest.update(vector.numpy().astype("<f4").data)
    return digest.hexdigest()
