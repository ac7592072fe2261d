"""A recording or speaker embedding as the store keeps it: one file, under the hash of its whole
content. Pure."""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self, get_args

MAGIC = b"qwen3tts voice 1\n"
HEADER_MAX = 64 * 1024
"""Bytes of a file before its recording."""
REF_TEXT_MAX = 4096
"""Code points of what a recording says."""
Kind = Literal["audio_sample", "speaker_embedding"]
"""What a voice is made of, by its field in an upload."""
_HASHED_AS: dict[Kind, bytes] = {
    "audio_sample": b"qwen3tts recording 1\n",
    "speaker_embedding": b"qwen3tts embedding 1\n",
}
_NAME = re.compile(r"([0-9a-f]{64})-([0-9a-f]{64})-([0-9]{13})\.voice")


@dataclass(frozen=True, slots=True)
class Content:
    """What a voice is made of."""

    audio: bytes
    """The file as it was brought; of an embedding its numbers, float32, little-endian."""
    ref_text: str | None = None
    """What it says; None: not given."""
    x_vector_only: bool = False
    """Only the speaker embedding (x-vector) is used."""
    kind: Kind = "audio_sample"

    @classmethod
    def of_embedding(cls, numbers: Sequence[float]) -> Self:
        """A speaker embedding; its numbers are finite and within float32."""
        packed = struct.pack(f"<{len(numbers)}f", *numbers)
        return cls(packed, x_vector_only=True, kind="speaker_embedding")

    @property
    def embedding(self) -> tuple[float, ...] | None:
        """The numbers of a speaker embedding; None: it is a recording."""
        if self.kind == "audio_sample":
            return None
        return struct.unpack(f"<{len(self.audio) // 4}f", self.audio)

    @property
    def hash(self) -> str:
        """Of all of it: 64 hexadecimal digits."""
        digest = hashlib.sha256(_HASHED_AS[self.kind])
        words = _words(self)
        said = b"-" if words is None else b"+" + words.encode("utf-8", "surrogatepass")
        digest.update(b"%d %d\n" % (self.x_vector_only, len(said)))
        digest.update(said)
        digest.update(self.audio)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Kept:
    """A file with a recording, as its name tells."""

    file: str
    content: str
    """Its hash."""
    id_hash: str
    """Of the id that the engine gave to the voice."""
    created: float
    """When, in seconds since 1970."""
    bytes: int


def id_hash(voice_id: str) -> str:
    """What stands for an engine's id in a file's name."""
    return hashlib.sha256(voice_id.encode("utf-8", "surrogatepass")).hexdigest()


def file_name(content_hash: str, voice_id: str, created: float) -> str:
    """Where it is kept."""
    return f"{content_hash}-{id_hash(voice_id)}-{round(created * 1000):013d}.voice"


def kept_as(name: str, size: int) -> Kept | None:
    """What a file's name tells; None: it is not one of these."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return Kept(name, match[1], match[2], int(match[3]) / 1000, size)


def pack(content: Content) -> bytes:
    """The bytes of its file."""
    header = {
        "ref_text": _words(content),
        "x_vector_only": content.x_vector_only,
        "kind": content.kind,
    }
    return b"%b%b\n%b" % (MAGIC, json.dumps(header).encode("ascii"), content.audio)


def unpack(data: bytes, content_hash: str) -> Content | None:
    """The content of a file; None if it is damaged, or not the one that it is taken for."""
    if not data.startswith(MAGIC):
        return None
    end = data.find(b"\n", len(MAGIC), len(MAGIC) + HEADER_MAX)
    if end < 0:
        return None
    try:
        header = json.loads(data[len(MAGIC) : end])
        words, x_vector_only = header["ref_text"], header["x_vector_only"]
        kind = header.get("kind", "audio_sample")  # an older server wrote none
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if not (words is None or isinstance(words, str)) or not isinstance(x_vector_only, bool):
        return None
    if kind not in get_args(Kind) or (kind == "speaker_embedding" and (len(data) - end - 1) % 4):
        return None
    content = Content(data[end + 1 :], words, x_vector_only, kind)
    return content if content.hash == content_hash else None


def _words(content: Content) -> str | None:
    """Words that are used; blank ones are none."""
    return None if content.x_vector_only else (content.ref_text or "").strip() or None
