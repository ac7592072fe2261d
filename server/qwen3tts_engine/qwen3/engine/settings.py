"""Settings of the Qwen3-TTS engine. No torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

DTypeName = Literal["float32", "bfloat16", "float16"]
DTYPES: tuple[DTypeName, ...] = ("float32", "bfloat16", "float16")
QuantizeName = Literal["none", "int8", "int4"]
QUANTIZATIONS: tuple[QuantizeName, ...] = ("none", "int8", "int4")


@dataclass(frozen=True, slots=True)
class Qwen3Settings:
    """Settings of one engine; ValueError for a value out of range."""

    model: str
    """A checkpoint: a folder, or a hub id such as ``Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice``."""
    device: str = "auto"
    """``cpu``, ``cuda``, ``cuda:N``; ``auto``: the first GPU, without one the CPU."""
    dtype: DTypeName | None = None
    """Type of talker and code predictor; None: bfloat16 on a GPU, float32 on the CPU."""
    codec_dtype: DTypeName | None = None
    """Type of the codec; None: float16 on a GPU, float32 on the CPU."""
    quantize: QuantizeName = "none"
    """Bits of the talker's and the code predictor's weights on a CPU; ``int4``: the predictor keeps
    8. Refused on a GPU."""
    quantize_cache: Path | None = None
    """Folder of quantized weights; None: ``mr_qwen3tts/quantized`` in the user's cache folder."""
    slots: int | None = None
    """Concurrent generations; None: 64 on a GPU, 16 on the CPU."""
    positions: int = 2048
    """Longest generation: prompt and frames of 80 ms."""
    max_waiting: int = 256
    """Generations waiting for a slot; more are refused."""
    lead_ms: float = 800.0
    """A generation pauses with this much audio ahead of its listener."""
    initial_codec_chunk_frames: int | Literal["load"] | None = None
    """Frames in a request's first chunk of sound: a number; by load (powers of two below the
    steady chunk, by the share of slots that speak); None: as few as the deadline needs."""
    dry_timeout_s: float = 2.0
    """Time without text that ends a generation; later text begins another."""
    repetition_guard: bool = True
    """End a generation whose codes repeat, and say the rest from the last word with another
    seed."""
    silence_s: float = 1.2
    """Silence that ends a generation whose text was certainly said."""
    pause_s: float = 4.0
    """Silence that ends a generation with words left, which another one then says; at least
    ``silence_s``."""
    max_new_tokens: int | None = None
    """Most frames of one generation; None: the checkpoint's. Texts above two seconds are further
    limited by their length in syllables."""
    unread_s: float = 2.0
    """Audio made ahead of a slow reader; then its generation pauses."""
    max_chars: int = 5000
    """Most code points in one request."""
    voice: str | None = None
    """Default voice; None: the first."""
    voice_folder: Path | None = None
    """Folder of cloned voices; None: memory only."""
    voices_bytes: int = 1 << 30
    """Memory for cloned voices; the least recently used are evicted."""
    prefix_bytes: int = 1 << 28
    """Memory for cached prompt prefixes."""
    whisper: str | None = None
    """Whisper model (folder or hub id) that transcribes reference audio."""
    threads: int | None = None
    """Threads on a CPU; None: the physical cores that the process may use, at most
    ``OMP_NUM_THREADS``."""
    codec_threads: int | None = None
    """Of ``threads``, those of the codec, which then runs beside the language model; 0: in turn
    with it on all; None: by cores and calls. Neither has an effect on a GPU."""
    graphs: bool | Literal["auto"] = "auto"
    """CUDA graphs; ``auto``: where there is a GPU."""
    warmup: bool = True
    """True if ``start`` warms up; else ``Qwen3Engine.warmup`` does, or the first requests are
    slow."""
    compile: bool = False
    """torch.compile inside the graphs: slower start, faster step."""
    persistent_predictor: bool = False
    """Code predictor as one kernel for up to 8 rows, on a GPU; checked at the start, and not used
    where it fails. Not yet run on a GPU."""

    def __post_init__(self) -> None:
        if not self.model:
            raise ValueError("model is empty; name a checkpoint's folder or hub id")
        if self.device not in ("auto", "cpu", "cuda") and not (
            self.device.startswith("cuda:") and self.device[5:].isdecimal()
        ):
            raise ValueError(f"device={self.device!r} must be auto, cpu, cuda or cuda:N")
        for name in ("dtype", "codec_dtype"):
            value = getattr(self, name)
            if value is not None and value not in DTYPES:
                raise ValueError(f"{name}={value!r} must be one of {', '.join(DTYPES)}")
        if self.quantize not in QUANTIZATIONS:
            raise ValueError(
                f"quantize={self.quantize!r} must be one of {', '.join(QUANTIZATIONS)}"
            )
        if self.slots is not None and not 1 <= self.slots <= 1024:
            raise ValueError(f"slots={self.slots} must be from 1 to 1024")
        if not 64 <= self.positions <= 32_768:
            raise ValueError(f"positions={self.positions} must be from 64 to 32768")
        initial = self.initial_codec_chunk_frames
        if not (initial in (None, "load") or (isinstance(initial, int) and initial >= 1)):
            raise ValueError(f"initial_codec_chunk_frames={initial!r} must be load, or 1 or more")
        for name in ("lead_ms", "dry_timeout_s", "unread_s", "max_chars"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name}={value} must be above 0")
        if not 0.2 <= self.silence_s <= 60:
            raise ValueError(f"silence_s={self.silence_s} must be from 0.2 to 60")
        if not self.silence_s <= self.pause_s <= 600:
            raise ValueError(
                f"pause_s={self.pause_s} must be from silence_s ({self.silence_s}) to 600"
            )
        for name, least in (("threads", 1), ("codec_threads", 0)):
            count = getattr(self, name)
            if count is not None and (type(count) is not int or not least <= count <= 1024):
                raise ValueError(f"{name}={count!r} must be a whole number from {least} to 1024")
        most = self.max_new_tokens
        if most is not None and (type(most) is not int or not 2 <= most <= 32_768):
            raise ValueError(f"max_new_tokens={most!r} must be a whole number from 2 to 32768")
        for name in ("max_waiting", "voices_bytes", "prefix_bytes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must be 0 or above")
