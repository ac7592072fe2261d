"""A name in the store: one small file each, which never changes. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import get_args

from .content import Kind
from .names import key_of
from .stored import StoredVoice

ENTRY_MAX = 256 * 1024
"""Bytes of an entry."""
_NAME = re.compile(r"([0-9a-f]{32})-([0-9a-f]{64})-([0-9]{13})\.json")


@dataclass(frozen=True, slots=True)
class NameFile:
    """What the name of an entry's file tells."""

    file: str
    key_hash: str
    content: str
    created_ms: int

    @property
    def order(self) -> tuple[int, str]:
        """Of several with one name, the greatest is meant."""
        return self.created_ms, self.content


def key_hash(name: str) -> str:
    """What stands for a name in its file's name: names may hold what those may not."""
    return hashlib.sha256(key_of(name).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def entry_file(voice: StoredVoice) -> str:
    """Where an entry is kept."""
    return f"{key_hash(voice.name)}-{voice.content}-{round(voice.created * 1000):013d}.json"


def named_as(file: str) -> NameFile | None:
    """What a file's name tells; None: it is not one of these."""
    match = _NAME.fullmatch(file)
    return None if match is None else NameFile(file, match[1], match[2], int(match[3]))


def pack_entry(voice: StoredVoice) -> bytes:
    """The bytes of an entry."""
    return json.dumps(asdict(voice)).encode("ascii")


def unpack_entry(data: bytes, file: str) -> StoredVoice | None:
    """The voice of an entry; None if it is damaged, or does not belong where it lies."""
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
