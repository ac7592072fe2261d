"""MindRoot plugin: speaks agents' text while they write it.

The host imports the package by its folder's name and calls ``on_load(app)``; it can be imported
only there.
"""

from __future__ import annotations

try:
    from .mod import on_load
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "lib":
        raise
    raise ImportError(
        "mr_qwen3tts is a plugin of MindRoot and can be imported only there; docs/mindroot.md "
        "tells how it is installed."
    ) from error

__all__ = ["on_load"]
