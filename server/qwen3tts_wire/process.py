"""Process-wide: garbage collection, descriptors, child environment, atomic files."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import resource
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

SWITCH_INTERVAL_S = 0.0001
"""A thread that waited for a device gets the interpreter back from a busy event loop after about
this time; CPython's own is 5 ms."""
DUE = 10
"""Full collections between sweeps: at least 700,000 objects."""


class Heap:
    """Garbage collector, frozen while held."""

    def __init__(self) -> None:
        self.holders = 0
        self._busy: list[Callable[[], bool]] = []
        self._swept = 0
        """Full collections by the last sweep."""

    @property
    def held(self) -> bool:
        return self.holders > 0

    @property
    def due(self) -> bool:
        """True if enough garbage may have come for a sweep."""
        return self.held and _full_collections() - self._swept >= DUE

    def hold(self, *, collect: bool = True) -> None:
        """Freeze all allocated so far; `release` as often.

        Args:
            collect: collect first, which stops the process once; else a `sweep` does.
        """
        self.holders += 1
        if collect:
            gc.collect()
        gc.freeze()
        self._swept = _full_collections()

    @contextlib.contextmanager
    def held_by(self, busy: Callable[[], bool], *, collect: bool = False) -> Iterator[None]:
        """Hold it in the block.

        Args:
            busy: returns whether audio plays; `sweep_if_idle` then waits.
            collect: as `hold`; not while another holder may play.
        """
        with self.heeds(busy):
            self.hold(collect=collect)
            try:
                yield
            finally:
                self.release()

    @contextlib.contextmanager
    def heeds(self, busy: Callable[[], bool]) -> Iterator[None]:
        """Block `sweep_if_idle` while ``busy``, without holding."""
        self._busy.append(busy)
        try:
            yield
        finally:
            self._busy.remove(busy)

    def sweep_if_idle(self) -> None:
        """Sweep if due and no holder is busy, at a call's end."""
        if self.due and not any(busy() for busy in self._busy):
            self.sweep()

    def sweep(self) -> None:
        """Collect and freeze again; not while audio plays."""
        if self.held:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            self._swept = _full_collections()

    def release(self) -> None:
        if self.held:
            self.holders -= 1
            if self.holders == 0:
                gc.unfreeze()


def _full_collections() -> int:
    return int(gc.get_stats()[2]["collections"])


heap = Heap()
"""The process's collector."""


@contextlib.contextmanager
def short_switches() -> Iterator[None]:
    """Switch threads after SWITCH_INTERVAL_S in the block, or sooner where that is set."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, SWITCH_INTERVAL_S))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


ALLOWED: Final = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM"),
        *("TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "WINDIR", "COMSPEC", "PATHEXT", "USERPROFILE"),
        *("APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "NUMBER_OF_PROCESSORS"),
        *("LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH"),
        *("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME", "PYTHONPATH", "PYTHONHASHSEED"),
        *("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "PYTHONFAULTHANDLER", "PYTHONUTF8"),
        *("PYTHONWARNINGS", "PYTHONMALLOC", "PYTHONNOUSERSITE", "PYTHONUSERBASE"),
        *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES"),
        *("MALLOC_ARENA_MAX", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
    )
)
"""Variables of every child, besides the locale's ``LC_…``."""
PLAYING: Final = (
    *("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"),
    *("PULSE_SERVER", "PULSE_SINK", "PULSE_COOKIE", "PULSE_RUNTIME_PATH", "PIPEWIRE_REMOTE"),
    *("PIPEWIRE_RUNTIME_DIR", "ALSA_CARD", "ALSA_CONFIG_PATH", "AUDIODEV", "SDL_AUDIODRIVER"),
)
"""More for a program that plays audio."""


def child_environment(
    *,
    also: Iterable[str] = (),
    roots: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return a child's environment.

    Args:
        also: further variables.
        roots: folders before the import path.
        environ: the parent's; None: this process's.
    """
    parent = os.environ if environ is None else environ
    allowed = ALLOWED | set(also)
    found = {
        name: value
        for name, value in parent.items()
        if name.upper() in allowed or name.upper().startswith("LC_")
    }
    paths = [*dict.fromkeys(roots), *filter(None, [found.get("PYTHONPATH")])]
    if paths:
        found["PYTHONPATH"] = os.pathsep.join(paths)
    return found


log = logging.getLogger(__name__)

OTHER_FILES = 512
"""Pipes, voices, records and libraries."""


def replace_file(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Replace a file (mode 0600) atomically.

    Args:
        path: in an existing folder.
        data: content.
        durable: survive a power cut.

    Raises:
        OSError: the old file stays.
    """
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def raise_descriptor_limit(wanted: int) -> int:
    """Raise the soft descriptor limit up to the hard one; return it.

    Args:
        wanted: sockets and files needed.
    """
    wanted += OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    granted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if granted > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (granted, hard))
        except (OSError, ValueError):
            granted = soft
    if granted < wanted:
        log.warning(
            "%d files and sockets may be open, %d are needed at most: raise the hard limit "
            "(ulimit -Hn, LimitNOFILE)",
            granted,
            wanted,
        )
    return granted
