"""Cache of quantized checkpoints, mapped on load.

A folder's name is a hash of the checkpoint's bytes, quantization, torch's version, layout and
instruction set. It is written beside and renamed: whole or not there; the first writer wins.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import logging
import math
import mmap
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from qwen3tts_engine.qwen3.model.checkpoint import Weights, weight_files
from qwen3tts_engine.qwen3.model.config_fields import REMEDY, BadCheckpoint
from qwen3tts_engine.qwen3.model.quantized import MemoryStore, Packing, Quantization, usable
from qwen3tts_wire.process import replace_file

VERSION = 1
"""Of the quantization and of this layout."""
BOUND_BYTES = 8 << 30
"""Of all folders; the least recently used go first."""
WEIGHTS, MANIFEST, CONFIG = "weights.bin", "manifest.json", "config.json"
UNUSABLE = "keeps no quantized weights: they are made at every start"
PREFIX, SCRATCH = "int", "packing-"
BLOCK = 1 << 22
LEFT_S = 86_400
"""Age at which a folder that was never finished is removed."""
MOST_DIGESTS = 64
DTYPES = {
    str(each).removeprefix("torch."): each
    for each in (torch.uint8, torch.int8, torch.int64, torch.bfloat16, torch.float16, torch.float32)
}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredPart:
    offset: int
    shape: tuple[int, ...]
    dtype: str
    crc: int

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


def default_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    return home / "mr_qwen3tts" / "quantized"


@contextmanager
def quantizing(
    weights: Weights,
    quantization: Quantization | None,
    checkpoint: Path,
    folder: Path | None = None,
    *,
    bound_bytes: int = BOUND_BYTES,
) -> Iterator[list[str]]:
    """Quantize what is loaded from ``weights``, unless None; give notes, complete at the end.

    ``folder`` None: the user's cache folder.
    """
    notes: list[str] = []
    if quantization is None:
        yield notes
        return
    notes += [
        f"There is no kernel for {bits} bits on this processor; its products are slower."
        for bits in ((8, 4) if quantization == "int4" else (8,))
        if not usable(bits)
    ]
    root = default_folder() if folder is None else folder
    files = weight_files(checkpoint / "model.safetensors")
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = f"{quantization}-{_key(quantization, [*files, checkpoint / CONFIG], root)}"
        store = CachedTensors(root, name)
    except OSError as error:
        notes.append(f"{root} {UNUSABLE} ({error.strerror}).")
        weights.packing = Packing(quantization, MemoryStore())
        yield notes
    else:
        weights.packing = Packing(quantization, store)
        try:
            yield notes
            store.finish(bound_bytes)
        finally:
            store.close()
        notes += store.notes
    for note in notes:
        log.warning("%s", note)


class CachedTensors:
    def __init__(self, root: Path, name: str) -> None:
        self.notes: list[str] = []
        self._root, self._name = root, name
        self._parts: dict[str, dict[str, StoredPart]] = {}
        self._scratch: Path | None = None
        self._out: BinaryIO | None = None
        self._file = self.folder / WEIGHTS
        if self.folder.exists() or self.folder.is_symlink():
            try:
                self._parts = _checked(self.folder)
            except ValueError as error:
                self.notes.append(f"{self.folder} is damaged ({error}); it is packed once more.")
                self._remove(self.folder)
        self.is_whole = bool(self._parts)
        if not self.is_whole:
            self._scratch = Path(tempfile.mkdtemp(dir=root, prefix=SCRATCH))
            self._file = self._scratch / WEIGHTS
            self._out = self._file.open("xb")

    @property
    def folder(self) -> Path:
        return self._root / self._name

    def get(self, name: str, make: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        if name not in self._parts:
            made = make()
            try:
                if self._out is None:
                    return made
                self._write(self._out, name, made)
            except OSError as error:
                self._give_up(error)
                return made
        return {part: _mapped(self._file, stored) for part, stored in self._parts[name].items()}

    def finish(self, bound_bytes: int) -> None:
        if self._out is None and not self.is_whole:
            return
        try:
            if self._out is not None and self._scratch is not None:
                self._out.close()
                tensors = {
                    name: {part: asdict(stored) for part, stored in parts.items()}
                    for name, parts in self._parts.items()
                }
                manifest = {"version": VERSION, "tensors": tensors}
                (self._scratch / MANIFEST).write_text(json.dumps(manifest), encoding="ascii")
                # If another process was faster, its folder holds the same.
                if not self.folder.exists():
                    self._scratch.rename(self.folder)
            os.utime(self.folder)
        except OSError as error:
            if not self.folder.exists():
                self._give_up(error)
        _keep_within(self._root, bound_bytes, keep=self.folder)

    def close(self) -> None:
        if self._out is not None:
            # What was not written yet has no room.
            with suppress(OSError):
                self._out.close()
            self._out = None
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    def _give_up(self, error: OSError) -> None:
        self.close()
        self.notes.append(f"{self._root} {UNUSABLE} ({error.strerror}).")

    def _write(self, out: BinaryIO, name: str, tensors: dict[str, Tensor]) -> None:
        parts = {}
        for part, tensor in tensors.items():
            tensor = tensor.contiguous()
            out.write(bytes(-out.tell() % mmap.ALLOCATIONGRANULARITY))
            dtype = str(tensor.dtype).removeprefix("torch.")
            data = tensor.reshape(-1).view(torch.uint8).numpy().data
            parts[part] = StoredPart(out.tell(), tuple(tensor.shape), dtype, zlib.crc32(data))
            out.write(data)
        out.flush()
        self._parts[name] = parts

    def _remove(self, folder: Path) -> None:
        # Renamed first, so that no process finds half of it.
        aside = Path(tempfile.mkdtemp(dir=self._root, prefix=SCRATCH))
        with suppress(OSError):
            folder.rename(aside / "damaged")
        shutil.rmtree(aside, ignore_errors=True)


def _mapped(file: Path, part: StoredPart) -> Tensor:
    dtype = DTYPES[part.dtype]
    if not part.bytes:
        return torch.empty(part.shape, dtype=dtype)
    with file.open("rb") as stream:
        # Private: a write would not reach the file. Unmapped with the tensor.
        buffer = mmap.mmap(stream.fileno(), part.bytes, access=mmap.ACCESS_COPY, offset=part.offset)
    return torch.frombuffer(buffer, dtype=dtype).view(part.shape)


def _checked(folder: Path) -> dict[str, dict[str, StoredPart]]:
    """ValueError if a byte differs from the manifest."""
    if not _is_ours(folder):
        raise ValueError("not a folder of this user alone")
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        parts = {
            name: {
                part: StoredPart(
                    int(one["offset"]),
                    tuple(map(int, one["shape"])),
                    str(one["dtype"]),
                    int(one["crc"]),
                )
                for part, one in each.items()
            }
            for name, each in manifest["tensors"].items()
        }
        buffer = memoryview(bytearray(BLOCK))
        with (folder / WEIGHTS).open("rb", buffering=0) as file:
            for name, each in parts.items():
                for one in each.values():
                    if min(one.shape, default=0) < 0 or _crc(file, one, buffer) != one.crc:
                        raise ValueError(f"{WEIGHTS}: {name}")
    except OSError as error:
        raise ValueError(error.strerror or "unreadable") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{MANIFEST}: {type(error).__name__}") from None
    if not parts:
        raise ValueError(f"{MANIFEST} is empty")
    return parts


def _crc(file: BinaryIO, part: StoredPart, buffer: memoryview) -> int:
    file.seek(part.offset)
    crc, left = 0, part.bytes
    while left > 0:
        count = file.readinto(buffer[: min(left, len(buffer))])  # type: ignore[attr-defined]
        if not count:
            raise ValueError(f"{WEIGHTS} is too short")
        crc, left = zlib.crc32(buffer[:count], crc), left - count
    return crc


def _is_ours(folder: Path) -> bool:
    place = folder.lstat()
    mine = not hasattr(os, "getuid") or (place.st_uid == os.getuid() and not place.st_mode & 0o022)
    return mine and folder.is_dir() and not folder.is_symlink()


def _keep_within(root: Path, bound: int, *, keep: Path) -> None:
    """Remove the least recently used folders beyond ``bound`` bytes, never ``keep``."""
    found = []
    for each in root.glob(f"{PREFIX}*"):
        with suppress(OSError):
            size = sum(file.stat().st_size for file in each.iterdir())
            found.append((each == keep, each.stat().st_mtime, size, each))
    total = 0
    for kept, _, size, each in sorted(found, reverse=True):
        total += size
        if total > bound and not kept:
            shutil.rmtree(each, ignore_errors=True)
    with suppress(OSError):
        for each in root.glob(f"{SCRATCH}*"):
            if time.time() - each.stat().st_mtime > LEFT_S:
                shutil.rmtree(each, ignore_errors=True)
        digests = sorted(root.glob("digest-*"), key=lambda file: file.stat().st_mtime)
        for each in digests[:-MOST_DIGESTS]:
            each.unlink(missing_ok=True)


def trim_heap() -> None:
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


# --- names ---


def _key(quantization: Quantization, files: Sequence[Path], root: Path) -> str:
    facts = [
        VERSION,
        quantization,
        torch.__version__,
        torch.backends.cpu.get_cpu_capability(),
        usable(8),
        usable(4),
        *(_digest(file, root) for file in files),
    ]
    return hashlib.sha256(json.dumps(facts).encode("ascii")).hexdigest()[:32]


def _digest(file: Path, root: Path) -> str:
    """SHA-256, read once as long as the file is the same."""
    place = file.stat()
    # A file whose content changes has another time of change, which no program can set.
    facts = (
        str(file.resolve()),
        place.st_dev,
        place.st_ino,
        place.st_size,
        place.st_mtime_ns,
        place.st_ctime_ns,
    )
    name = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]
    known = root / f"digest-{name}"
    with suppress(OSError, ValueError):
        found = known.read_text(encoding="ascii")
        if len(bytes.fromhex(found)) == 32:
            return found
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    after = file.stat()
    if (after.st_size, after.st_mtime_ns) != (place.st_size, place.st_mtime_ns):
        raise BadCheckpoint(f"{file} was changed while it was read.", remedy=REMEDY)
    replace_file(known, digest.encode("ascii"))
    return digest
