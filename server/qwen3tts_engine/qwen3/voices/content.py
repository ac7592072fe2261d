"""Content of cloned voices, its encoders, its identity; clone prompts."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qwen3tts_engine.qwen3.kernels.step_runner import Snapshot
from qwen3tts_engine.qwen3.model.checkpoint import Weights
from qwen3tts_engine.qwen3.model.codec_encoder import CodecEncoder
from qwen3tts_engine.qwen3.model.config import ModelConfig, Samples
from qwen3tts_engine.qwen3.model.prompt import Reference
from qwen3tts_engine.qwen3.model.speaker_encoder import SpeakerEncoder
from qwen3tts_engine.qwen3.model.tokenizer import Tokenizer
from qwen3tts_engine.qwen3.voices.recording import Recording
from qwen3tts_wire.errors import BadRequest, LimitExceeded

NAME_MAX = 64
"""Code points in a name."""
TRANSCRIPT_MAX = 4096
"""Code points in a transcript."""


def checked_words(words: str | None) -> str:
    if not isinstance(words, str) or not words.strip():
        raise BadRequest(
            "The codes come without their words.",
            remedy="Give what is said in them as text, or the embedding without codes.",
        )
    check_length(words)
    return words.strip()


def check_length(words: str) -> None:
    if len(words) > TRANSCRIPT_MAX:
        raise LimitExceeded(
            f"ref_text has {len(words)} characters; at most {TRANSCRIPT_MAX} are taken.",
            remedy="Give the words of the recording and nothing else.",
        )


def check_name(name: str) -> None:
    if not (0 < len(name) <= NAME_MAX and name.isprintable() and name == name.strip()):
        raise BadRequest(
            "The voice's name cannot be used.",
            remedy=f"Choose 1 to {NAME_MAX} printable characters, no blanks at the ends.",
        )


Codes = NDArray[np.int64]
"""Codec frames [frames, quantizers], 12.5 a second."""


@dataclass(frozen=True, slots=True, eq=False)
class ClonePrompt:
    """Content of a cloned voice; the official ``VoiceClonePromptItem``.

    Fields accept anything that NumPy converts; checked when a voice is made.
    """

    embedding: Any
    """Speaker embedding [hidden]."""
    codes: Any = None
    """Reference speech, [frames, quantizers]; None: the official ``x_vector_only_mode``."""
    text: str | None = None
    """Transcript of ``codes``; required with them, and only with them."""


def checked_codes(codes: object, config: ModelConfig) -> Codes:
    groups, size = config.codec.quantizers, config.codec.decoder.codebook_size
    found = _array("codes", codes)
    if found.dtype.kind not in "iu":
        raise BadRequest(
            f"The codes are {found.dtype}, not whole numbers.",
            remedy=f"Give integers of shape [frames, {groups}].",
        )
    if found.ndim != 2 or found.shape[1] != groups or not len(found):
        raise BadRequest(
            f"The codes have the shape {list(found.shape)}.",
            remedy=f"Give the shape [frames, {groups}], with one frame or more.",
        )
    wrong = np.argwhere((found < 0) | (found >= size))
    if len(wrong):
        frame, group = wrong[0]
        raise BadRequest(
            f"Code {group} of frame {frame} is {found[frame, group]}.",
            remedy=f"Codes are from 0 to {size - 1}.",
        )
    return found.astype(np.int64)


def checked_embedding(embedding: object, size: int) -> Tensor:
    """Return a checked float32 copy of a speaker embedding [size]; BadRequest."""
    found = _array("embedding", embedding)
    if found.dtype.kind not in "fiu" or found.shape != (size,):
        raise BadRequest(
            f"The speaker embedding is {found.dtype} of shape {list(found.shape)}.",
            remedy=f"Give {size} numbers, made with a checkpoint of this size.",
        )
    # What is beyond float32 becomes infinite and is refused as such.
    with np.errstate(over="ignore"):
        vector = torch.from_numpy(found.astype(np.float32))
    if not vector.isfinite().all():
        raise BadRequest(
            "The speaker embedding has a number that is not finite.", remedy="Give float32."
        )
    return vector


def _array(name: str, given: object) -> NDArray[Any]:
    if isinstance(given, Tensor):
        given = given.detach().cpu()
        if given.dtype == torch.bfloat16:
            given = given.float()
    try:
        return np.asarray(given)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadRequest(
            f"The {name} cannot be an array: {type(error).__name__}.",
            remedy="Give a NumPy array, a tensor, or lists of equal length.",
        ) from error


FRAME_RATE = 12.5
"""Codec frames a second."""
_BYTES_PER_INT = 36
"""Bytes of a Python int and the tuple's pointer to it."""


@dataclass(frozen=True, slots=True, eq=False)
class VoiceContent:
    x_vector: Tensor
    """Speaker embedding [hidden], float32, on the CPU."""
    reference: Reference | None = None
    """Transcript and codes; None: x-vector only."""
    transcript: str | None = None
    """Given or recognised words; None: x-vector only."""

    @property
    def bytes(self) -> int:
        size = self.x_vector.nbytes + 4 * len(self.transcript or "")
        if self.reference is not None:
            codes = self.reference.codes
            numbers = len(self.reference.text_ids) + sum(len(frame) for frame in codes)
            size += _BYTES_PER_INT * numbers
        return size


@dataclass(eq=False)
class ClonedVoice:
    """Voice in memory. VoiceCache adds its snapshots and counts their bytes."""

    id: str
    """Hash of the content, 64 hexadecimal digits."""
    content: VoiceContent
    name: str | None = None
    """Latest alias."""
    kv: dict[Hashable, Snapshot] = field(default_factory=dict)
    """Prompt prefixes, by what else they depend on (language, say)."""
    codec: Snapshot | None = None
    """CodecSnapshot behind the reference."""

    @property
    def x_vector(self) -> Tensor:
        return self.content.x_vector

    @property
    def reference(self) -> Reference | None:
        return self.content.reference

    @property
    def transcript(self) -> str | None:
        return self.content.transcript

    @property
    def bytes(self) -> int:
        # A copy: the engine's thread may add one meanwhile.
        snapshots = [*self.kv.copy().values(), self.codec]
        return self.content.bytes + sum(one.bytes for one in snapshots if one is not None)


class VoiceEncoders(Protocol):
    @property
    def identity(self) -> str: ...

    def x_vector(self, samples: Samples) -> Tensor: ...

    def codes(self, samples: Samples) -> Tensor: ...

    def text_ids(self, transcript: str) -> Iterable[int]: ...


@dataclass(frozen=True, slots=True)
class ModelEncoders:
    speaker: SpeakerEncoder
    codec: CodecEncoder
    tokenizer: Tokenizer
    identity: str
    """See ``fingerprint``."""

    def x_vector(self, samples: Samples) -> Tensor:
        return self.speaker.x_vector(torch.from_numpy(samples))

    def codes(self, samples: Samples) -> Tensor:
        return self.codec.encode(torch.from_numpy(samples))

    def text_ids(self, transcript: str) -> Iterable[int]:
        return self.tokenizer.encode(transcript)


def fingerprint(*parts: Weights) -> str:
    digest = hashlib.sha256()
    for part in parts:
        for name in part.names():
            tensor = part[name].cpu().contiguous()
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def voice_id(recording: Recording, words: str, identity: str) -> str:
    """Hash a voice's whole content; ``words`` includes the transcript's origin."""
    digest = hashlib.sha256(b"qwen3tts voice 1\n")
    for part in (identity, words, str(recording.rate)):
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:%b\n" % (len(encoded), encoded))
    digest.update(recording.samples.astype("<f4").data)
    return digest.hexdigest()


def content_of_prompt(
    vector: Tensor,
    codes: tuple[tuple[int, ...], ...],
    words: str | None,
    encoders: VoiceEncoders,
    max_s: float,
) -> tuple[str, VoiceContent]:
    if not codes:
        return embedding_id(vector), VoiceContent(vector)
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


def embedding_id(vector: Tensor) -> str:
    digest = hashlib.sha256(b"qwen3tts speaker vector 1\n")
    digest.update(vector.numpy().astype("<f4").data)
    return digest.hexdigest()
