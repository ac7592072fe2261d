"""A voice that somebody has brought."""

from __future__ import annotations

from dataclasses import dataclass

from qwen3tts_server.voices.content import Kind
from qwen3tts_wire.errors import BadRequest


@dataclass(frozen=True, slots=True)
class StoredVoice:
    """What is told of an uploaded voice."""

    name: str
    voice_id: str
    """The id that its engine gave it: the hash of its whole content, for Qwen3-TTS."""
    created: float
    """When, in seconds since 1970."""
    bytes: int
    """Of its recording, or of its embedding's numbers."""
    seconds: float | None
    """Of its recording; None where only the engine could read it, or it is an embedding."""
    ref_text: str | None
    """What its recording says; None: not used."""
    description: str
    consent: str
    """Whatever the uploader said about the speaker's consent."""
    x_vector_only: bool = False
    """Only the speaker embedding (x-vector) is used."""
    content: str = ""
    """Hash of recording, words and flags: where the recording is kept."""
    owner: str = ""
    """What stands for the key it was uploaded with; empty: none, or before keys had roles."""
    kind: Kind = "audio_sample"


class VoiceExists(BadRequest):
    """A voice of that name is there already."""

    code = "voice_exists"
