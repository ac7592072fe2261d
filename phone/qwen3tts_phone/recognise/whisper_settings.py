"""Which Whisper listens, and how."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from qwen3tts_wire.whisper.model import DTYPES
from qwen3tts_wire.whisper.models import AUTO, is_name

LANGUAGE = re.compile(r"[A-Za-z]{2,20}", re.ASCII)
DEVICE = re.compile(r"auto|cpu|cuda(:\d{1,2})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class WhisperSettings:
    """One model in a process of its own, for all calls.

    Raises ValueError whose text begins with the name of the field.
    """

    model: str = AUTO
    """A folder with a model that CTranslate2 reads, a size (``tiny``, ``base``, ``small``,
    ``medium``, ``large-v3``, ``turbo``; ``tiny.en`` to ``medium.en`` for English alone), or a hub
    id. ``auto``: from the hub's cache, else a package with weights, else ``base`` from the hub."""
    languages: tuple[str, ...] = ()
    """Codes or English names of the languages that callers may speak (``("en", "de")``): with one,
    nothing is guessed; with several, the likeliest of them; with none, any that the model knows."""
    device: str = "auto"
    """``auto`` (a GPU if there is one), ``cpu``, ``cuda`` or ``cuda:1``."""
    dtype: str = "auto"
    """``auto`` (float16 on a GPU, else int8), ``int8``, ``float32``, ``float16``, ``bfloat16`` or
    ``int8_float16``."""
    threads: int = 0
    """CPU threads of the model; 0 = all but one, which the calls keep."""
    early: bool = True
    """Begin while the caller speaks and at their pauses, not only when their turn is over."""
    timeout_s: float = 15.0
    """How long a turn's text may take after the turn."""
    load_timeout_s: float = 900.0
    """How long the model may take to load or to be fetched."""
    stall_s: float = 60.0
    """A process that works on one piece for longer is replaced."""
    most_waiting: int = 64
    """Pieces of all calls that may wait for the model."""
    offline: bool = False
    """Fetch nothing: the model must be there."""

    def __post_init__(self) -> None:
        if not is_name(self.model):
            raise ValueError(
                f"model={self.model!r} is no folder, size or hub id; name a folder with a Whisper"
                " model, or a size such as tiny.en"
            )
        if not isinstance(self.languages, tuple) or not all(
            LANGUAGE.fullmatch(each) for each in self.languages
        ):
            raise ValueError(f"languages={self.languages!r}: a tuple of codes, such as ('en',)")
        if not DEVICE.fullmatch(self.device):
            raise ValueError(f"device={self.device!r}: auto, cpu, cuda or cuda:N")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype={self.dtype!r}: one of {', '.join(DTYPES)}")
        if not 0 <= self.threads <= 1024:
            raise ValueError(f"threads={self.threads} is not between 0 and 1024")
        if not 1 <= self.most_waiting <= 10_000:
            raise ValueError(f"most_waiting={self.most_waiting} is not between 1 and 10000")
        for name in ("timeout_s", "load_timeout_s", "stall_s"):
            if not 0 < getattr(self, name) <= 86_400:
                raise ValueError(f"{name}={getattr(self, name)} is not above 0, up to a day")

    @property
    def folder(self) -> str:
        """The model as its loader takes it: a path is written out."""
        path = Path(self.model).expanduser()
        return str(path.resolve()) if path.is_dir() else self.model

    def wishes(self) -> dict[str, Any]:
        """What the process is told, as JSON holds it."""
        names = ("device", "dtype", "threads", "offline")
        return {
            "model": self.folder,
            "languages": list(self.languages),
            **{name: value for name, value in asdict(self).items() if name in names},
        }
