"""A checkpoint's files: found by folder or hub id, and opened."""

from __future__ import annotations

import importlib
import math
import re
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from qwen3tts_engine.qwen3.fields import REMEDY, BadCheckpoint, Fields
from qwen3tts_engine.qwen3.stored_tensors import StoredTensor, stored_tensors
from qwen3tts_engine.qwen3.weights import Weights
from qwen3tts_wire.errors import EngineUnavailable

__all__ = ["BadCheckpoint", "Weights", "find_checkpoint", "open_weights"]

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
"""What is fetched from a hub: never code, never pickles."""
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[\w][\w.-]{0,95}", re.ASCII)
SHARD = re.compile(r"[\w][\w.-]*\.safetensors", re.ASCII)


def find_checkpoint(name: str, *, cache: Path | None = None) -> Path:
    """The folder of a checkpoint: a local one, or a hub id fetched into ``cache``.

    ``cache`` None is the hub library's own place.

    Raises:
        EngineUnavailable: no such folder or id, no network, or no library to fetch it.
    """
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
    """The tensors of ``file``, or of the shards that ``file``'s index names.

    Args:
        file: ``model.safetensors``; where it is missing, ``model.safetensors.index.json``
            beside it, or that file itself.
        device: Where the tensors go.
        dtype: What they become; None: as they are in the file.

    Raises:
        BadCheckpoint: missing, damaged, or shards with names that lead elsewhere. A tensor that
            holds what is no number is refused when it is read.
    """
    index = file if file.suffix == ".json" else file.with_name(file.name + ".index.json")
    files = _shards(index) if index.is_file() and not _is_model(file) else [file]
    tensors: dict[str, StoredTensor] = {}
    for one in files:
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


def _finite(tensor: Tensor) -> bool:
    """Whether all values are finite, without a copy: the extremes are NaN where one value is."""
    return not tensor.numel() or all(
        map(math.isfinite, torch.stack(torch.aminmax(tensor)).tolist())
    )


def _is_model(file: Path) -> bool:
    return file.suffix != ".json" and file.is_file()


def _shards(index: Path) -> list[Path]:
    table = Fields.read(index).section("weight_map")
    names = sorted({table.text(name) for name in table})
    for name in names:
        # A plain name in this very folder: an index comes from elsewhere and must lead nowhere.
        if not SHARD.fullmatch(name):
            raise BadCheckpoint(f"{index} names a shard {name!r}.", remedy=REMEDY)
    if not names:
        raise BadCheckpoint(f"{index} names no shards.", remedy=REMEDY)
    return [index.with_name(name) for name in names]
