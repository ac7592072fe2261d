"""Passwords of a settings file, from the environment or a file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from qwen3tts_settings.entries import BadConfiguration, Entry

MAX_BYTES = 4096
"""No password is longer."""


def refuse_secret(path: str, given: Mapping[str, Entry], name: str) -> None:
    """Raise BadConfiguration where a section holds the secret itself."""
    if name in given:
        raise BadConfiguration(
            f"{path}.{name} is a secret and is not taken from {given[name].where}.",
            remedy="Put it into a variable or a file of its own, and name that:"
            f" {name}_env: VARIABLE, or {name}_file: PATH.",
        )


def take_secret(path: str, given: dict[str, Entry], name: str, env: Mapping[str, str]) -> None:
    """Replace ``NAME_env`` or ``NAME_file`` in a section by the secret.

    Raises:
        BadConfiguration: both are set, or it cannot be read; with the line.
    """
    ways = {way: given.pop(way) for way in (f"{name}_env", f"{name}_file") if way in given}
    ways = {way: entry for way, entry in ways.items() if entry.value is not None}
    if not ways:
        return
    if len(ways) > 1:
        raise BadConfiguration(
            f"{path} has both {' and '.join(ways)} ({ways[f'{name}_file'].where}).",
            remedy="Take one of them out.",
        )
    ((way, entry),) = ways.items()
    if not isinstance(entry.value, str) or not entry.value:
        raise BadConfiguration(
            f"{path}.{way} must be a text ({entry.where}).", remedy="Put it in quotes."
        )
    try:
        if way.endswith("_env"):
            value = from_variable(entry.value, env)
        else:
            value = from_secret_file(Path(entry.value).expanduser())
    except BadConfiguration as error:
        raise BadConfiguration(
            f"{path}.{way}: {error.message} ({entry.where})", remedy=error.remedy
        ) from error
    given[name] = Entry(value, entry.where, text=True)


def secret_files(entry: Entry) -> Iterator[tuple[Path, str]]:
    held = entry.value
    if isinstance(held, list):
        for each in held:
            yield from secret_files(each)
    elif isinstance(held, dict):
        for name, each in held.items():
            if name.endswith("password_file") and isinstance(each.value, str) and each.value:
                yield Path(each.value).expanduser(), each.where
            else:
                yield from secret_files(each)


def from_variable(name: str, env: Mapping[str, str] | None = None) -> str:
    value = (os.environ if env is None else env).get(name, "")
    if not value:
        raise BadConfiguration(
            f"The environment variable {name} is not set.",
            remedy=f"Set it before the start: export {name}=…, or EnvironmentFile= in a unit.",
        )
    return _checked(value, f"The environment variable {name}")


def from_secret_file(path: Path) -> str:
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
