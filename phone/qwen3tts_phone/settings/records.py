"""Settings of records and recordings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qwen3tts_settings.constraints import bounded, check_fields, one_of

AUDIO_FORMATS = ("wav", "opus", "both")
CONSENTS = ("none", "tone", "announcement")
ANNOUNCEMENT = "This call is recorded."


@dataclass(frozen=True, slots=True)
class RecordSettings:
    """Records and recordings of calls; raises ValueError that begins with the field's name."""

    log: Path | None = None
    """One JSON line a call is appended to this file (0600). None = no records."""
    log_max_bytes: int = bounded(0, default=50_000_000)
    """A log beyond this is rotated to ``NAME.1``, and so on; 0 = never."""
    log_files: int = bounded(0, default=10)
    """Rotated logs kept."""
    log_keep_days: float = bounded(0.0, 100_000.0, default=0.0)
    """Rotated logs are deleted when their last call is older than this; 0 = never."""
    parties: bool = True
    """Name caller and callee in records."""
    keys: bool = False
    """Keep the pressed digits in records; else their number only. They may be
    somebody's PIN."""
    transcript: bool = False
    """Keep what was said in records: of ours what the caller has heard, of the caller's what
    the host has recognised."""
    audio: Path | None = None
    """Folder for recordings of both sides (0700, each file 0600). None = no recordings."""
    audio_format: str = one_of(AUDIO_FORMATS, default="wav")
    """``wav``, ``opus`` (an Ogg file of both tracks, made when the call is over) or ``both``."""
    audio_bitrate: int = bounded(6000, 256_000, default=32_000)
    """Bits a second of the Opus file, both tracks together."""
    audio_keep_days: float = bounded(0.0, 100_000.0, default=0.0)
    """Recordings older than this are deleted; 0 = never."""
    audio_max_bytes: int = bounded(0, default=0)
    """The oldest are deleted while all together are larger than this; 0 = no bound."""
    name_with_party: bool = False
    """Put the other party's user part into a recording's file name."""
    consent: str = one_of(CONSENTS, default="none")
    """Notice that the other side hears before recording begins: ``none``, ``tone`` (a beep) or
    ``announcement`` (``consent_text``, spoken, then the beep)."""
    consent_text: str = ANNOUNCEMENT
    """Text of ``announcement``."""
    consent_every_s: float = 0.0
    """Interval of further beeps, as some places require (15); 0 = only once."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.consent == "announcement" and not self.consent_text.strip():
            raise ValueError("consent_text is empty, and consent is announcement")
        if self.consent_every_s and not 2.0 <= self.consent_every_s <= 3600.0:
            raise ValueError(f"consent_every_s={self.consent_every_s} is not 0, or 2 to 3600")
        if self.consent_every_s and self.consent == "none":
            raise ValueError("consent_every_s needs consent tone or announcement")

    @property
    def keeps_audio(self) -> bool:
        return self.audio is not None
