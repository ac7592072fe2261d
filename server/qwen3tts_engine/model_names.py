"""Published names of Qwen3-TTS checkpoints and speakers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath

OWNER = "Qwen"
TASKS: Mapping[str, str] = {
    "custom_voice": "CustomVoice",
    "voice_design": "VoiceDesign",
    "base": "Base",
}
"""``tts_model_type`` of a checkpoint, and the word in its published name."""
STAND_IN_IDS = (
    f"{OWNER}/Qwen3-TTS-12Hz-1.7B-CustomVoice",
    f"{OWNER}/Qwen3-TTS-12Hz-0.6B-CustomVoice",
)
"""Checkpoints with named voices. An engine without a checkpoint answers to them as it answers to
OpenAI's models: clients written for Qwen3-TTS name them in every request."""
SPEAKERS: Mapping[str, tuple[str, str]] = {
    "vivian": ("zh", "female"),
    "serena": ("zh", "female"),
    "uncle_fu": ("zh", "male"),
    "dylan": ("zh", "male"),
    "eric": ("zh", "male"),
    "ryan": ("en", "male"),
    "aiden": ("en", "male"),
    "ono_anna": ("ja", "female"),
    "sohee": ("ko", "female"),
}
"""First language and gender of the published speakers, by the model's documentation; no file of a
checkpoint says. All of them speak all languages."""
_SIZE = re.compile(r"[0-9]+b[0-9]+")
_SNAPSHOT = re.compile(r"[0-9a-f]{40}")


def published_id(size: str, task: str) -> str:
    """Return the hub id of a published checkpoint; empty for a size that names none.

    >>> published_id("1b7", "custom_voice")
    'Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice'
    """
    if _SIZE.fullmatch(size) is None:
        return ""
    return f"{OWNER}/Qwen3-TTS-12Hz-{size.replace('b', '.')}B-{TASKS[task]}"


def names_of(ids: Iterable[str]) -> tuple[str, ...]:
    both = (name for each in ids for name in (each, each.rpartition("/")[2]))
    return tuple(dict.fromkeys(filter(None, both)))


def given_name(model: str, *, is_folder: bool) -> str:
    """Return a configured checkpoint's public name, or empty.

    Of a folder only the last part, since its path is private; a revision in the hub's cache has no
    name.
    """
    if not is_folder:
        return model
    last = PurePath(model).name
    return "" if _SNAPSHOT.fullmatch(last) else last
