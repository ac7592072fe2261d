"""Stored voices: content, record, file format."""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, Self, get_args

from qwen3tts_server.voices.names import key_of
from qwen3tts_wire.errors import BadRequest

MAGIC = b"qwen3tts voice 1\n"
HEADER_MAX = 64 * 1024
"""Bytes before the recording."""
REF_TEXT_MAX = 4096
"""Code points of a transcript."""
Kind = Literal["audio_sample", "speaker_embedding"]
"""Source by upload field."""
_HASHED_AS: dict[Kind, bytes] = {
    "audio_sample": b"qwen3tts recording 1\n",
    "speaker_embedding": b"qwen3tts embedding 1\n",
}
_CONTENT_NAME = re.compile(r"([0-9a-f]{64})-([0-9a-f]{64})-([0-9]{13})\.voice")


@dataclass(frozen=True, slots=True)
class VoiceContent:
    """Recording or speaker embedding."""

    audio: bytes
    """Uploaded file; an embedding as float32, little-endian."""
    ref_text: str | None = None
    """Transcript, or None."""
    x_vector_only: bool = False
    """Embedding only (x-vector)."""
    kind: Kind = "audio_sample"

    @classmethod
    def of_embedding(cls, numbers: Sequence[float]) -> Self:
        packed = struct.pack(f"<{len(numbers)}f", *numbers)
        return cls(packed, x_vector_only=True, kind="speaker_embedding")

    @property
    def embedding(self) -> tuple[float, ...] | None:
        """Speaker embedding; None: a recording."""
        if self.kind == "audio_sample":
            return None
        return struct.unpack(f"<{len(self.audio) // 4}f", self.audio)

    @property
    def hash(self) -> str:
        digest = hashlib.sha256(_HASHED_AS[self.kind])
        words = _words(self)
        said = b"-" if words is None else b"+" + words.encode("utf-8", "surrogatepass")
        digest.update(b"%d %d\n" % (self.x_vector_only, len(said)))
        digest.update(said)
        digest.update(self.audio)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class RecordingFile:
    file: str
    content: str
    id_hash: str
    """Hash of the engine's id."""
    created: float
    """Seconds since 1970."""
    bytes: int


def id_hash(voice_id: str) -> str:
    return hashlib.sha256(voice_id.encode("utf-8", "surrogatepass")).hexdigest()


def file_name(content_hash: str, voice_id: str, created: float) -> str:
    return f"{content_hash}-{id_hash(voice_id)}-{round(created * 1000):013d}.voice"


def recording_file(name: str, size: int) -> RecordingFile | None:
    """Parse a file name; None: another file."""
    match = _CONTENT_NAME.fullmatch(name)
    if match is None:
        return None
    return RecordingFile(name, match[1], match[2], int(match[3]) / 1000, size)


def pack(content: VoiceContent) -> bytes:
    header = {
        "ref_text": _words(content),
        "x_vector_only": content.x_vector_only,
        "kind": content.kind,
    }
    return b"%b%b\n%b" % (MAGIC, json.dumps(header).encode("ascii"), content.audio)


def unpack(data: bytes, content_hash: str) -> VoiceContent | None:
    """Return a file's content; None: damaged or another hash."""
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
    content = VoiceContent(data[end + 1 :], words, x_vector_only, kind)
    return content if content.hash == content_hash else None


def _words(content: VoiceContent) -> str | None:
    return None if content.x_vector_only else (content.ref_text or "").strip() or None


@dataclass(frozen=True, slots=True)
class StoredVoice:
    name: str
    voice_id: str
    """Engine's id: for Qwen3-TTS the hash of the content."""
    created: float
    """Seconds since 1970."""
    bytes: int
    """Size of recording or embedding."""
    seconds: float | None
    """Duration; None: unknown, or an embedding."""
    ref_text: str | None
    """Transcript; None: not used."""
    description: str
    consent: str
    """Uploader's statement."""
    x_vector_only: bool = False
    """Embedding only (x-vector)."""
    content: str = ""
    """Hash of recording, words and flags: its place."""
    owner: str = ""
    """Hash of the uploader's key; empty: none, or before roles."""
    kind: Kind = "audio_sample"


class VoiceExists(BadRequest):
    """A voice has that name."""

    code = "voice_exists"


ENTRY_MAX = 256 * 1024
_ENTRY_NAME = re.compile(r"([0-9a-f]{32})-([0-9a-f]{64})-([0-9]{13})\.json")


@dataclass(frozen=True, slots=True)
class NameFile:
    file: str
    key_hash: str
    content: str
    created_ms: int

    @property
    def order(self) -> tuple[int, str]:
        return self.created_ms, self.content


def key_hash(name: str) -> str:
    return hashlib.sha256(key_of(name).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def entry_file(voice: StoredVoice) -> str:
    return f"{key_hash(voice.name)}-{voice.content}-{round(voice.created * 1000):013d}.json"


def named_as(file: str) -> NameFile | None:
    """Parse a file name; None: not an entry's."""
    match = _ENTRY_NAME.fullmatch(file)
    return None if match is None else NameFile(file, match[1], match[2], int(match[3]))


def pack_entry(voice: StoredVoice) -> bytes:
    return json.dumps(asdict(voice)).encode("ascii")


def unpack_entry(data: bytes, file: str) -> StoredVoice | None:
    """Return an entry's voice; None: damaged or misplaced."""
    try:
        found = json.loads(data)
        # An entry of an older server has no owner, and is of a recording.
        found.setdefault("owner", "")
        found.setdefault("kind", "audio_sample")
        voice = StoredVoice(**{name: found[name] for name in StoredVoice.__dataclass_fields__})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    texts = (
        voice.name,
        voice.voice_id,
        voice.description,
        voice.consent,
        voice.content,
        voice.owner,
    )
    numbers = (voice.created, voice.bytes, voice.seconds or 0.0)
    good = (
        all(isinstance(text, str) for text in texts)
        and (voice.ref_text is None or isinstance(voice.ref_text, str))
        and isinstance(voice.x_vector_only, bool)
        and voice.kind in get_args(Kind)
        and all(type(one) in (int, float) and abs(one) < 1e15 for one in numbers)
        and isinstance(voice.bytes, int)
    )
    return voice if good and entry_file(voice) == file else None
