"""Tensors in a safetensors file, read into memory of this process.

A mapped file that is overwritten or cut kills the process with SIGBUS, or changes weights in use.
So nothing maps it after its header was checked, and one that changes while it is read is refused.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from qwen3tts_engine.qwen3.fields import REMEDY, BadCheckpoint

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
Identity = tuple[int, int, int, int]
"""Device, inode, bytes and nanoseconds of the last change."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Place of one tensor in its file."""

    file: Path
    identity: Identity
    """The file's when its header was read."""
    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int
    """Bytes from the start of the file."""

    def read(self) -> Tensor:
        """Copy it from the file.

        Raises:
            BadCheckpoint: the file was replaced, changed or removed since its header was read.
        """
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
    """The tensors that a file's header names.

    Raises:
        BadCheckpoint: it is missing, damaged, or holds what is no floating point number.
    """
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
    """What tells one content of a file from another."""
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def _changed(file: Path) -> BadCheckpoint:
    return BadCheckpoint(
        f"{file} was changed while it was read.",
        remedy="Load again when it is whole; to replace a checkpoint in use, write beside it and"
        " rename.",
    )
