"""A file of settings."""

from __future__ import annotations

from pathlib import Path

from .entries import BadConfiguration, Entry, from_yaml

MAX_FILE_BYTES = 1 << 20
"""No file of settings is larger."""


def from_file(path: Path, example: str) -> Entry:
    """The settings of a YAML file; ``example`` is one that may be copied.

    Raises:
        BadConfiguration: it cannot be read, is too large, not UTF-8 or no YAML.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise BadConfiguration(
            f"{path}: {error.strerror or error}.",
            remedy=f"Name a file of settings that can be read; {example} is an example.",
        ) from error
    if len(data) > MAX_FILE_BYTES:
        raise BadConfiguration(
            f"{path} has more than {MAX_FILE_BYTES} bytes.", remedy="Settings are small."
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadConfiguration(f"{path} is not UTF-8.", remedy="Save it as UTF-8.") from error
    return from_yaml(text, str(path))
