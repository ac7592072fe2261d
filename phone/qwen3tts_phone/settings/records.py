"""Settings of records and recordings: what is kept, for how long, and the notice of recording."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

AUDIO_FORMATS = ("wav", "opus", "both")
CONSENTS = ("none", "tone", "announcement")
ANNOUNCEMENT = "This call is recorded."


@dataclass(frozen=True, slots=True)
class RecordSettings:
    """Records and recordings of calls; raises ValueError that begins with the field's name."""

    log: Path | None = None
    """One JSON line a call is appended to this file (0600). None = no records."""
    log_max_bytes: int = 50_000_000
    """A log beyond this is rotated to ``NAME.1``, and so on; 0 = never."""
    log_files: int = 10
    """Rotated logs kept."""
    log_keep_days: float = 0.0
    """Rotated logs are deleted when their last call is older than this; 0 = never."""
    parties: bool = True
    """Whether records name caller and callee."""
    keys: bool = False
    """Whether records hold the digits that were pressed; else their number only. They may be
    somebody's PIN."""
    transcript: bool = False
    """Whether records hold what was said: of ours what the caller has heard, of the caller's what
    the host has recognised."""
    audio: Path | None = None
    """Folder for recordings of both sides (0700, each file 0600). None = no recordings."""
    audio_format: str = "wav"
    """``wav``, ``opus`` (an Ogg file of both tracks, made when the call is over) or ``both``."""
    audio_bitrate: int = 32_000
    """Bits a second of the Opus file, both tracks together."""
    audio_keep_days: float = 0.0
    """Recordings older than this are deleted; 0 = never."""
    audio_max_bytes: int = 0
    """The oldest are deleted while all together are larger than this; 0 = no bound."""
    name_with_party: bool = False
    """Whether a recording's file name holds the other party's user part."""
    consent: str = "none"
    """What the other side hears before recording begins: ``none``, ``tone`` (a beep) or
    ``announcement`` (``consent_text``, spoken, then the beep)."""
    consent_text: str = ANNOUNCEMENT
    """What ``announcement`` says."""
    consent_every_s: float = 0.0
    """Interval of further beeps, as some places require (15); 0 = only once."""

    def __post_init__(self) -> None:
        if self.audio_format not in AUDIO_FORMATS:
            raise ValueError(f"audio_format={self.audio_format!r}: {', '.join(AUDIO_FORMATS)}")
        if self.consent not in CONSENTS:
            raise ValueError(f"consent={self.consent!r}: {', '.join(CONSENTS)}")
        if self.consent == "announcement" and not self.consent_text.strip():
            raise ValueError("consent_text is empty, and consent is announcement")
        if not 6000 <= self.audio_bitrate <= 256_000:
            raise ValueError(f"audio_bitrate={self.audio_bitrate} is not between 6000 and 256000")
        if self.consent_every_s and not 2.0 <= self.consent_every_s <= 3600.0:
            raise ValueError(f"consent_every_s={self.consent_every_s} is not 0, or 2 to 3600")
        if self.consent_every_s and self.consent == "none":
            raise ValueError("consent_every_s needs consent tone or announcement")
        for name in ("log_keep_days", "audio_keep_days"):
            if not 0.0 <= getattr(self, name) <= 100_000.0:
                raise ValueError(f"{name}={getattr(self, name)} is not between 0 and 100000")
        for name in ("log_max_bytes", "log_files", "audio_max_bytes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must be 0 or above")

    @property
    def keeps_audio(self) -> bool:
        return self.audio is not None
