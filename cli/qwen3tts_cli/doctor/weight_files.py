"""Completeness of weight files by their headers; needs no torch."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass


HEADER_MAX = 100_000_000
"""Bytes; the format's bound."""


BITS = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "BF16": 16, "F16": 16, "U16": 16}


def weight_faults(folder: Path) -> Iterator[str]:
    """Return faults of the model's and codec's weight files, by name."""
    for part in (folder, folder / "speech_tokenizer"):
        files = sorted(part.glob("*.safetensors"))
        for file in files:
            if fault := weight_file_fault(file):
                yield f"{file} {fault}"
        if not (part / "model.safetensors").is_file():
            yield from _missing_shards(part / "model.safetensors.index.json")


def weight_file_fault(file: Path) -> str:
    """Return a file's fault; empty if it has the length of its header."""
    try:
        size = file.stat().st_size
        with file.open("rb") as data:
            length = int.from_bytes(data.read(8), "little")
            if size < 8 or length > size - 8:
                return f"is cut off: {size} bytes do not hold its header"
            if length > HEADER_MAX:
                return "is damaged: its header is too long"
            header = json.loads(data.read(length))
        ends = [_end(entry) for name, entry in header.items() if name != "__metadata__"]
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return "is damaged: its header cannot be read"
    expected = 8 + length + max(ends, default=0)
    if size < expected:
        return f"is cut off: {size} of {expected} bytes"
    return "" if size == expected else f"is damaged: {size} bytes instead of {expected}"


def _end(entry: dict[str, Any]) -> int:
    start, end = map(int, entry["data_offsets"])
    bits = BITS.get(entry["dtype"])
    if not 0 <= start <= end:
        raise ValueError("a tensor ends before it starts")
    if bits is not None and (end - start) * 8 != math.prod(entry["shape"]) * bits:
        raise ValueError("a tensor's bytes do not fit its shape")
    return end


def _missing_shards(index: Path) -> Iterator[str]:
    try:
        shards = set(json.loads(index.read_bytes())["weight_map"].values())
    except FileNotFoundError:
        yield f"{index.with_name('model.safetensors')} is missing"
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        yield f"{index} cannot be read"
    else:
        for shard in sorted(map(str, shards)):
            if not (index.parent / shard).is_file():
                yield f"{index.parent / shard} is missing"
