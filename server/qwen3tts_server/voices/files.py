"""Files in memory, a folder, or at an fsspec URL. Blocking."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import importlib
import os
import threading
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from qwen3tts_wire.errors import EngineUnavailable, ServerBusy
from qwen3tts_wire.process import replace_file, sync_folder

FOLDERS = ("voices", "names")
MARKER = ".store"
"""Present in every store behind a URL."""
LOCK_TIMEOUT_S = 10.0
"""Wait for another process."""


class Files(Protocol):
    """Small files in FOLDERS, read whole or not at all. Thread-safe.

    Raises:
        ServerBusy: the store is unavailable.
    """

    shared: bool
    """True if others may write."""

    def listed(self, folder: str) -> dict[str, int]: ...

    def read(self, folder: str, name: str, most: int) -> bytes | None:
        """Return the content; None: missing, or above ``most`` bytes."""
        ...

    def write(self, folder: str, name: str, data: bytes) -> None: ...

    def remove(self, folder: str, name: str) -> None: ...

    def locked(self) -> contextlib.AbstractContextManager[None]: ...


def open_files(store: str | None) -> Files:
    if store is None:
        return MemoryFiles()
    scheme, has_scheme, rest = store.partition("://")
    if not has_scheme:
        return FolderFiles(Path(store))
    if scheme in ("file", "local"):
        return FolderFiles(Path(urllib.parse.unquote(rest)))
    return UrlFiles(store)


class MemoryFiles:
    shared = False

    def __init__(self) -> None:
        self._files: dict[tuple[str, str], bytes] = {}
        self._lock = threading.RLock()

    def listed(self, folder: str) -> dict[str, int]:
        with self._lock:
            return {name: len(data) for (of, name), data in self._files.items() if of == folder}

    def read(self, folder: str, name: str, most: int) -> bytes | None:
        data = self._files.get((folder, name))
        return data if data is not None and len(data) <= most else None

    def write(self, folder: str, name: str, data: bytes) -> None:
        with self._lock:
            self._files[folder, name] = data

    def remove(self, folder: str, name: str) -> None:
        with self._lock:
            self._files.pop((folder, name), None)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        with self._lock:
            yield


class FolderFiles:
    """Files readable by their owner only: voices are personal data."""

    shared = True

    def __init__(self, root: Path) -> None:
        """Create folders; raises EngineUnavailable."""
        self.root = root
        self._lock = threading.RLock()
        try:
            for one in (root, *(root / name for name in FOLDERS)):
                one.mkdir(mode=0o700, parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise EngineUnavailable(
                "The folder of the voice store cannot be used: "
                f"{getattr(error, 'strerror', None) or 'its name'}.",
                remedy="Name another in voices.store, or none.",
            ) from None

    def listed(self, folder: str) -> dict[str, int]:
        found = {}
        with _store_errors(), os.scandir(self.root / folder) as entries:
            for entry in entries:
                # What vanishes meanwhile was removed.
                with contextlib.suppress(FileNotFoundError):
                    if not entry.name.startswith(".") and entry.is_file(follow_symlinks=False):
                        found[entry.name] = entry.stat(follow_symlinks=False).st_size
        return found

    def read(self, folder: str, name: str, most: int) -> bytes | None:
        path = self._path(folder, name)
        with _store_errors():
            try:
                with path.open("rb") as file:
                    data = file.read(most + 1)
            except FileNotFoundError:
                if not path.parent.is_dir():
                    raise  # The store is away, not the file.
                return None
        return data if len(data) <= most else None

    def write(self, folder: str, name: str, data: bytes) -> None:
        place = self._path(folder, name)
        with _store_errors():
            replace_file(place, data, durable=True)

    def remove(self, folder: str, name: str) -> None:
        place = self._path(folder, name)
        with _store_errors():
            place.unlink(missing_ok=True)
            sync_folder(place.parent)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        with self._lock:
            with _store_errors():
                file = os.open(self.root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _lock(file)
                yield
            finally:
                os.close(file)

    def _path(self, folder: str, name: str) -> Path:
        _check(folder, name)
        return self.root / folder / name


class UrlFiles:
    """Files of an fsspec file system."""

    shared = True

    def __init__(self, url: str) -> None:
        """Connect; raises EngineUnavailable."""
        self._lock = threading.RLock()
        scheme = url.partition("://")[0][:20]
        try:
            fsspec: Any = importlib.import_module("fsspec")
            # Others write too: what was listed once is no answer.
            self._system, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
            self._root = str(root).rstrip("/")
            for name in FOLDERS:
                self._system.makedirs(f"{self._root}/{name}", exist_ok=True)
            self._marker = f"{self._root}/{MARKER}"
            if not self._system.exists(self._marker):
                # A store that may only be read has none.
                with contextlib.suppress(OSError):
                    self._system.pipe_file(self._marker, b"mr_qwen3tts voices\n")
            self._marked = bool(self._system.exists(self._marker))
        except ImportError as error:
            raise EngineUnavailable(
                f"The voice store cannot be used: {error.name or 'a package'} is missing.",
                remedy="pip install 'mr_qwen3tts[store]', and what fsspec asks for this kind of"
                " address (s3fs, gcsfs, ...).",
            ) from None
        except Exception as error:
            # An address may hold a secret, and so may what is said of it.
            raise EngineUnavailable(
                f"The voice store ({scheme}) cannot be reached: {type(error).__name__}.",
                remedy="Check voices.store and the credentials in the server's environment.",
            ) from None

    def listed(self, folder: str) -> dict[str, int]:
        path = f"{self._root}/{folder}"
        with _store_errors():
            try:
                self._system.invalidate_cache(path)
                entries = self._system.ls(path, detail=True)
            except FileNotFoundError:
                entries = []
            if not entries:
                self._check_there()
            return {
                str(entry["name"]).rstrip("/").rpartition("/")[2]: int(entry.get("size") or 0)
                for entry in entries
                if entry.get("type") == "file"
            }

    def read(self, folder: str, name: str, most: int) -> bytes | None:
        path = self._path(folder, name)
        with _store_errors():
            try:
                data = bytes(self._system.cat_file(path, start=0, end=most + 1))
            except FileNotFoundError:
                self._check_there()
                return None
        return data if len(data) <= most else None

    def _check_there(self) -> None:
        self._system.invalidate_cache(self._root)
        if self._marked and not self._system.exists(self._marker):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    def write(self, folder: str, name: str, data: bytes) -> None:
        path = self._path(folder, name)
        with _store_errors():
            self._system.pipe_file(path, data)

    def remove(self, folder: str, name: str) -> None:
        path = self._path(folder, name)
        with _store_errors(), contextlib.suppress(FileNotFoundError):
            self._system.rm_file(path)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        with self._lock:
            yield

    def _path(self, folder: str, name: str) -> str:
        _check(folder, name)
        return f"{self._root}/{folder}/{name}"


def _check(folder: str, name: str) -> None:
    plain = name.replace(".", "").replace("-", "").isalnum() and name.isascii()
    if folder not in FOLDERS or not plain or name.startswith("."):
        raise ValueError("a store's files have plain names")


def _lock(file: int) -> None:
    until = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise ServerBusy(
                    "The voice store is locked by another process.", remedy="Try again later."
                ) from None
            time.sleep(0.01)
        except OSError:
            return  # A file system without locks is used without.
        else:
            return


@contextlib.contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ServerBusy(
            f"The voice store cannot be used: {reason}.",
            remedy="Try again later; the server's log has the reason.",
        ) from error
