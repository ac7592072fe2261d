"""The environment of our child processes: what they need to run, and no key or token of ours.

A decoder works on files and packets of strangers. If it is taken over, it must not find the keys of
speech servers, models and carriers, which programs are given by environment variables. So a child
gets a list of what is allowed, not the parent's environment without what looks like a secret.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Final

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
"""Variables that every child may have; and those of the locale, ``LC_…``."""
PLAYING: Final = (
    *("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"),
    *("PULSE_SERVER", "PULSE_SINK", "PULSE_COOKIE", "PULSE_RUNTIME_PATH", "PIPEWIRE_REMOTE"),
    *("PIPEWIRE_RUNTIME_DIR", "ALSA_CARD", "ALSA_CONFIG_PATH", "AUDIODEV", "SDL_AUDIODRIVER"),
)
"""Further ones of a program that plays sound."""


def child_environment(
    *,
    also: Iterable[str] = (),
    roots: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the environment of a child process.

    Args:
        also: further names that it may have.
        roots: folders put before the path of Python's imports.
        environ: the parent's; None = that of this process.
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
