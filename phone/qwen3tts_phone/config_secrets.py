"""Passwords in a file of settings: only where they are, never what they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from qwen3tts_phone import secrets
from qwen3tts_settings.entries import BadConfiguration, Entry


def refuse_secret(path: str, given: Mapping[str, Entry], name: str) -> None:
    """Raises BadConfiguration where a section holds the secret ``name`` itself."""
    if name in given:
        raise BadConfiguration(
            f"{path}.{name} is a secret and is not taken from {given[name].where}.",
            remedy="Put it into a variable or a file of its own, and name that:"
            f" {name}_env: VARIABLE, or {name}_file: PATH.",
        )


def take_secret(path: str, given: dict[str, Entry], name: str, env: Mapping[str, str]) -> None:
    """Replace ``NAME_env`` or ``NAME_file`` in a section by the secret that it leads to.

    Raises:
        BadConfiguration: both stand there, or the secret cannot be had; it is told where.
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
            value = secrets.from_variable(entry.value, env)
        else:
            value = secrets.from_secret_file(Path(entry.value).expanduser())
    except BadConfiguration as error:
        raise BadConfiguration(
            f"{path}.{way}: {error.message} ({entry.where})", remedy=error.remedy
        ) from error
    given[name] = Entry(value, entry.where, text=True)


def secret_files(entry: Entry) -> Iterator[tuple[Path, str]]:
    """Each file that a ``…_file`` beneath an entry names, with where it is named."""
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
