"""Files and tensors of a checkpoint, from a folder or a hub id."""

from __future__ import annotations

import importlib
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from qwen3tts_engine.qwen3.model.config_fields import REMEDY, BadCheckpoint, JsonFields
from qwen3tts_engine.qwen3.model.quantized import Packing
from qwen3tts_wire.errors import EngineUnavailable


class Weights:
    """Tensors of one model file, by name less ``under``'s prefix.

    Read from the file at each access.
    """

    def __init__(
        self,
        source: str,
        shapes: Mapping[str, tuple[int, ...]],
        load: Callable[[str], Tensor],
        *,
        prefix: str = "",
        used: set[str] | None = None,
        stored: Callable[[str], Tensor] | None = None,
        packing: Packing | None = None,
    ) -> None:
        self.source = source
        """Origin of the tensors, for messages: usually a file."""
        self._shapes = shapes
        self._load = load
        self._prefix = prefix
        self._used = set[str]() if used is None else used
        self._stored = stored or load
        self.packing = packing
        """Quantizes the matrices of the decoder layers and heads; None: they stay."""

    def __contains__(self, name: str) -> bool:
        return self._prefix + name in self._shapes

    def __getitem__(self, name: str) -> Tensor:
        """Read a tensor; BadCheckpoint if missing or not finite."""
        full = self._prefix + name
        if full not in self._shapes:
            self._refuse(full, "is missing")
        self._used.add(full)
        return self._load(full)

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        full = self._prefix + name
        found = self._shapes.get(full)
        if found is not None and found != shape:
            self._refuse(full, f"has shape {list(found)} where {list(shape)} is expected")
        return self[name]

    def take_stored(self, name: str, shape: tuple[int, ...]) -> Tensor:
        here = Weights(
            self.source, self._shapes, self._stored, prefix=self._prefix, used=self._used
        )
        return here.take(name, shape)

    def under(self, prefix: str) -> Weights:
        return Weights(
            self.source,
            self._shapes,
            self._load,
            prefix=self._prefix + prefix,
            used=self._used,
            stored=self._stored,
            packing=None if self.packing is None else self.packing.under(prefix),
        )

    def names(self) -> list[str]:
        at = len(self._prefix)
        return sorted(name[at:] for name in self._shapes if name.startswith(self._prefix))

    def unused(self) -> list[str]:
        return sorted(
            name
            for name in self._shapes
            if name.startswith(self._prefix) and name not in self._used
        )

    def _refuse(self, name: str, problem: str) -> NoReturn:
        raise BadCheckpoint(f"{self.source}: tensor {name} {problem}.", remedy=REMEDY)


DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
Identity = tuple[int, int, int, int]
"""Device, inode, size in bytes, mtime in nanoseconds."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    file: Path
    identity: Identity
    """State of the file when its header was read."""
    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int
    """Bytes from the start of the file."""

    def read(self) -> Tensor:
        tensor = torch.empty(self.shape, dtype=self.dtype)
        values = tensor.view(-1).view(torch.uint8) if tensor.numel() else torch.empty(0)
        buffer = values.numpy().data
        try:
            with self.file.open("rb", buffering=0) as stream:
                stream.seek(self.offset)
                done = 0
                while done < len(buffer):
                    count = stream.readinto(buffer[done:])
                    if not count:
                        raise _changed(self.file)
                    done += count
                if identity_of(os.fstat(stream.fileno())) != self.identity:
                    raise _changed(self.file)
        except OSError as error:
            raise BadCheckpoint(
                f"{self.file} cannot be read any more: {error.strerror}.", remedy=REMEDY
            ) from None
        return tensor


def stored_tensors(file: Path) -> dict[str, StoredTensor]:
    """Read a safetensors header; BadCheckpoint if damaged or not floating point."""
    try:
        with file.open("rb", buffering=0) as stream:
            identity = identity_of(os.fstat(stream.fileno()))
            # The library checks the header against the file's size, offsets against shapes.
            with safe_open(str(file), framework="pt", device="cpu"):
                pass
            size = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(size))
    except FileNotFoundError:
        raise BadCheckpoint(f"{file} is missing.", remedy=REMEDY) from None
    except (SafetensorError, OSError, ValueError) as error:
        raise BadCheckpoint(
            f"{file} is no safetensors file, or is damaged: {error}.", remedy=REMEDY
        ) from None
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        if entry["dtype"] not in DTYPES:
            raise BadCheckpoint(
                f"{file}: tensor {name} is {entry['dtype']}; this engine reads floating point"
                " weights.",
                remedy="Use the published checkpoint, not a quantized one.",
            )
        dtype, shape = DTYPES[entry["dtype"]], tuple(entry["shape"])
        begin, end = entry["data_offsets"]
        if end - begin != math.prod(shape) * dtype.itemsize:
            raise _changed(file)
        found[name] = StoredTensor(file, identity, dtype, shape, 8 + size + begin)
    return found


def identity_of(stat: os.stat_result) -> Identity:
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def _changed(file: Path) -> BadCheckpoint:
    return BadCheckpoint(
        f"{file} was changed while it was read.",
        remedy="Load again when it is whole; to replace a checkpoint in use, write beside it and"
        " rename.",
    )


FILES = (
    "config.json",
    "generation_config.json",
    "vocab.json",
    "merges.txt",
    "tokenizer_config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "speech_tokenizer/*.json",
    "speech_tokenizer/*.safetensors",
)
"""Files fetched from a hub: never code, never pickles."""
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[\w][\w.-]{0,95}", re.ASCII)
SHARD = re.compile(r"[\w][\w.-]*\.safetensors", re.ASCII)


def find_checkpoint(name: str, *, cache: Path | None = None) -> Path:
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists():
        raise BadCheckpoint(
            f"{folder} is not a folder.", remedy="Name the folder that holds config.json."
        )
    if not HUB_ID.fullmatch(name):
        raise BadCheckpoint(
            f"There is no folder {name}.",
            remedy="Name the folder of a Qwen3-TTS checkpoint, or a hub id such as "
            "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice.",
        )
    hub = _hub()
    try:
        fetched: str = hub.snapshot_download(
            repo_id=name,
            allow_patterns=list(FILES),
            cache_dir=None if cache is None else str(cache),
        )
    # The library's own errors and those of its HTTP client, which differ by version.
    except Exception as error:
        raise EngineUnavailable(
            f"The checkpoint {name} could not be fetched: {type(error).__name__}.",
            remedy="Check the id and the network, or fetch it elsewhere and name its folder.",
        ) from error
    return Path(fetched)


def _hub() -> ModuleType:
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError:
        raise EngineUnavailable(
            "Fetching a checkpoint needs the package huggingface_hub.",
            remedy="pip install 'mr_qwen3tts[qwen3]', or name a checkpoint's folder.",
        ) from None


def open_weights(
    file: Path, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> Weights:
    """Open ``file`` (``model.safetensors``), or its index's shards.

    ``dtype`` None: as stored. Raises BadCheckpoint if missing, damaged, or out of the folder.
    """
    tensors: dict[str, StoredTensor] = {}
    for one in weight_files(file):
        tensors |= stored_tensors(one)

    def stored(name: str) -> Tensor:
        tensor = tensors[name].read()
        if not _finite(tensor):
            raise BadCheckpoint(
                f"{file}: tensor {name} holds values that are not finite numbers.", remedy=REMEDY
            )
        return tensor

    def load(name: str) -> Tensor:
        tensor = stored(name)
        return tensor.to(device=device, dtype=dtype or tensor.dtype)

    shapes = {name: one.shape for name, one in tensors.items()}
    return Weights(str(file), shapes, load, stored=stored)


def weight_files(file: Path) -> list[Path]:
    index = file if file.suffix == ".json" else file.with_name(file.name + ".index.json")
    return _shards(index) if index.is_file() and not _is_model(file) else [file]


def _finite(tensor: Tensor) -> bool:
    return not tensor.numel() or all(
        map(math.isfinite, torch.stack(torch.aminmax(tensor)).tolist())
    )


def _is_model(file: Path) -> bool:
    return file.suffix != ".json" and file.is_file()


def _shards(index: Path) -> list[Path]:
    table = JsonFields.read(index).section("weight_map")
    names = sorted({table.text(name) for name in table})
    for name in names:
        # A plain name in this folder: an index is untrusted.
        if not SHARD.fullmatch(name):
            raise BadCheckpoint(f"{index} names a shard {name!r}.", remedy=REMEDY)
    if not names:
        raise BadCheckpoint(f"{index} names no shards.", remedy=REMEDY)
    return [index.with_name(name) for name in names]
