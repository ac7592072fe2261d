"""Settings of speech detection: VAD, endpointing, barge-in, keys.

The defaults were chosen with `benchmarks/voice_activity.py` (112 utterances of the embedded voice
through mu-law, each at four levels and in noise at five distances). Of the detectors

- ``silero``: onset after 60 to 80 ms at -10 to -40 dBFS (median; 95th percentile 160 to 240), none
  missed; no false onset in noise, hum, music, keypress tones, coughs, clicks and ringing, 4.5 a
  minute in the babble of eight people; 0.05 ms of processor time for 20 ms.
- ``webrtc``: 40 to 120 ms, but 20 false onsets a minute in coughs and 11 in music and street
  noise, and in noise 20 dB below the speech four calls of five have one. 0.007 ms.
- ``level``: 40 to 80 ms, and any sound is speech to it. 0.008 ms; needs nothing installed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final, Literal, get_args

from qwen3tts_settings.constraints import bounded, check_fields, matching

DetectorName = Literal["silero", "webrtc", "level"]
DETECTORS: tuple[DetectorName, ...] = get_args(DetectorName)
NoiseMode = Literal["off", "auto", "on"]
NOISE_MODES: tuple[NoiseMode, ...] = get_args(NoiseMode)
OverlapMode = Literal["duck", "stop"]
OVERLAPS: tuple[OverlapMode, ...] = get_args(OverlapMode)


PRESETS: Final[dict[str, dict[str, Any]]] = {
    "menu": {
        "pause_ms": 400,
        "notice_ms": 150,
        "max_pause_ms": 1200,
        "max_turn_s": 20.0,
        "keys_pause_ms": 1000,
    },
    "talk": {},
    "patient": {
        "pause_ms": 900,
        "min_pause_ms": 400,
        "max_pause_ms": 2500,
        "longest_pause_ms": 4000,
        "keys_pause_ms": 2500,
    },
}
"""Figures of the presets other than the defaults: ``menu`` for short answers and numbers, ``talk``
for conversation, ``patient`` for callers who think, search or dictate.
"""


def listen_preset(name: str, **changes: Any) -> ListenSettings:
    """Return the settings of a preset with single figures of one's own. Raises ValueError.

    >>> listen_preset("patient", pause_ms=1000)
    """
    if name not in PRESETS:
        raise ValueError(f"preset={name!r} must be one of {', '.join(PRESETS)}")
    return ListenSettings(**(PRESETS[name] | changes))


@dataclass(frozen=True, slots=True)
class ListenSettings:
    """Settings of VAD, endpointing and barge-in of a call. Raises ValueError.

    `listen_preset` has them by name.
    """

    detector: DetectorName = "silero"
    """Voice activity detector; see `qwen3tts_phone.detection.vad`."""
    threshold: float = bounded(0.05, 0.95, default=0.5)
    """Probability from which audio is speech; 0.05 to 0.95. Higher: fewer false onsets, more soft
    words missed.
    """
    onset_ms: int = bounded(10, 1000, default=30)
    """Speech within a short time that is an onset: a turn begins. 10 to 1000."""
    barge_in: bool = True
    """Silence the agent at an onset."""
    barge_in_ms: int = bounded(10, 3000, default=60)
    """Speech that silences the agent; not below ``onset_ms``. More lets a cough or a "mhm" pass,
    and delays the silence by as much.
    """
    overlap: OverlapMode = "stop"
    """Answer to speech over the agent's: ``stop`` silences the agent at the onset; ``duck`` lowers
    it by 12 dB, and decides within 1.2 s, by the words, whether the caller interrupts. ``duck``
    needs a recogniser.
    """
    grace_ms: int = bounded(0, 5000, default=200)
    """Time after the agent has become audible when it cannot be silenced: the caller's last words
    may reach into its first. Speech that still lasts silences it at the end of that time. 0 = no
    grace.
    """
    pause_ms: int = bounded(100, 5000, default=600)
    """Silence that ends the turn. Shorter answers faster and cuts more people off. 100 to 5000."""
    notice_ms: int = bounded(20, 5000, default=200)
    """Silence after which the recogniser begins to work; not above ``pause_ms``."""
    adaptive_pause: bool = True
    """Choose the pause, from ``min_pause_ms`` to ``max_pause_ms``, by the words so far, the melody
    of the last sound, the agent's question and the caller's own pauses. ``pause_ms`` holds until
    the words are there, and scales what is chosen. Off: ``pause_ms`` alone.
    """
    min_pause_ms: int = bounded(100, 5000, default=250)
    """Shortest pause that is chosen; not above ``max_pause_ms``."""
    max_pause_ms: int = bounded(100, 10_000, default=1500)
    """Longest pause that is chosen: digits, spelled words and addresses are waited for."""
    detector_ms: int = bounded(20, 5000, default=150)
    """Silence after which a turn detector is asked and the melody is read; ``notice_ms`` at
    most.
    """
    language: str = matching(
        "([A-Za-z]{2,3}([-_][A-Za-z0-9]+)*)?", "a language's code, or empty", default=""
    )
    """Language of the callers, such as ``en``, for the rules of the pause and for backchannels
    ("mhm"); empty = as the recogniser says.
    """
    longest_pause_ms: int = bounded(100, 30_000, default=2500)
    """Longest pause that a turn detector may allow; not below ``pause_ms``."""
    min_speech_ms: int = bounded(0, 2000, default=120)
    """Audio with less speech than this is noise and no turn (a click, a short cough). A turn is
    reported nevertheless when it has silenced the agent (``Turn.why`` is ``noise``).
    """
    max_turn_s: float = bounded(1.0, 600.0, default=60.0)
    """Longest turn; it ends even in mid-word, and the next begins immediately. 1 to 600."""
    echo_guard: bool = True
    """Remove the echo of what we have sent before detection."""
    noise_suppression: NoiseMode = "auto"
    """Suppress noise and other voices, for the detector ``silero`` and for the recogniser: ``auto``
    where the line is noisy (a clean line's samples are not changed), ``on`` always.
    """
    quiet_s: float = bounded(0.0, 3600.0, default=0.0)
    """Silence of both caller and agent that is reported (`CallerQuiet`), once each time; 0 = never.
    """
    keys: bool = True
    """Make turns of pressed keys (``Turn.keys``)."""
    keys_interrupt: bool = True
    """Silence the agent at a key."""
    keys_pause_ms: int = bounded(100, 30_000, default=1500)
    """Time after the last key that ends a turn of keys alone. 100 to 30000."""
    keys_until: str = matching("[0-9*#A-D]?", "a key (0-9, *, #, A-D), or empty", default="#")
    """Key that ends a turn of keys immediately; empty = none."""
    max_keys: int = bounded(1, 1000, default=64)
    """Most keys of a turn, which ends with the last. 1 to 1000."""
    smart_turn: str = matching(r"[^\x00-\x1f]{0,4096}", "a path, auto, or empty", default="")
    """File of the network Smart Turn (``smart-turn-v3.2-cpu.onnx``), the turn detector where a
    program gives no other; ``auto`` = that of an installed ``pipecat-ai``; empty = none.
    """

    def __post_init__(self) -> None:
        if self.detector not in DETECTORS:
            raise ValueError(f"detector={self.detector!r} must be one of {', '.join(DETECTORS)}")
        if self.overlap not in OVERLAPS:
            raise ValueError(f"overlap={self.overlap!r} must be one of {', '.join(OVERLAPS)}")
        if self.noise_suppression not in NOISE_MODES:
            raise ValueError(
                f"noise_suppression={self.noise_suppression!r} must be one of"
                f" {', '.join(NOISE_MODES)}"
            )
        check_fields(self)
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(field.default, bool) and not isinstance(value, bool):
                raise ValueError(f"{field.name}={value!r} is neither True nor False")
        if self.barge_in_ms < self.onset_ms:
            raise ValueError(f"barge_in_ms={self.barge_in_ms} is below onset_ms={self.onset_ms}")
        if self.notice_ms > self.pause_ms:
            raise ValueError(f"notice_ms={self.notice_ms} is above pause_ms={self.pause_ms}")
        if self.min_pause_ms > self.max_pause_ms:
            raise ValueError(
                f"min_pause_ms={self.min_pause_ms} is above max_pause_ms={self.max_pause_ms}"
            )
        if self.longest_pause_ms < self.pause_ms:
            raise ValueError(
                f"longest_pause_ms={self.longest_pause_ms} is below pause_ms={self.pause_ms}"
            )
