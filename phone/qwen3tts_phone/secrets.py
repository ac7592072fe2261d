"""Passwords: from the environment or from a file of their own, never from anywhere else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from qwen3tts_settings.entries import BadConfiguration

MAX_BYTES = 4096
"""No password is longer."""


def from_variable(name: str, env: Mapping[str, str] | None = None) -> str:
    """The password that an environment variable holds; ``env`` is ``os.environ`` if left out.

    Raises:
        BadConfiguration: it is not set, or empty, or no password can be so.
    """
    value = (os.environ if env is None else env).get(name, "")
    if not value:
        raise BadConfiguration(
            f"The environment variable {name} is not set.",
            remedy=f"Set it before the start: export {name}=…, or EnvironmentFile= in a unit.",
        )
    return _checked(value, f"The environment variable {name}")


def from_secret_file(path: Path) -> str:
    """The password in the first line of a file; nothing else may stand there.

    Raises:
        BadConfiguration: it cannot be read, or is empty, or no password can be so.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadConfiguration(
            f"The password's file {path} cannot be read: {reason}.",
            remedy=f"Make it, readable for this program alone: install -m 600 /dev/null {path}",
        ) from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadConfiguration(
            f"The password's file {path} is not UTF-8.", remedy="Save it as plain text."
        ) from None
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise BadConfiguration(
            f"The password's file {path} is empty.", remedy="Write the password into it."
        )
    if len(data) > MAX_BYTES:
        raise BadConfiguration(
            f"The password's file {path} has more than {MAX_BYTES} bytes.",
            remedy="It holds the password in one line, and nothing else.",
        )
    return _checked(text, f"The password's file {path}")


def _checked(value: str, what: str) -> str:
    if not value.isprintable():
        raise BadConfiguration(
            f"{what} holds a control character or a second line.",
            remedy="It holds the password in one line, and nothing else.",
        )
    return value
