"""Frozen dataclasses from entries and back."""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit, urlunsplit

from qwen3tts_settings.constraints import FieldError, is_secret
from qwen3tts_settings.entries import BadConfiguration, Entry, from_text, value_of

T = TypeVar("T")

INSTEAD = "Put it into the environment or into a file of its own."
"""Remedy for a secret in a file; metadata ``instead`` overrides it."""
_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def build(kind: type[T], entry: Entry, path: str = "") -> T:
    if not isinstance(entry.value, dict):
        raise _wrong(path, entry, "must be a section of settings")
    hints = _hints(kind)
    known = {each.name: each for each in dataclasses.fields(kind) if each.init}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, inner in entry.value.items():
        inside = f"{path}.{name}" if path else name
        if name not in known:
            raise unknown_setting(inside, inner, list(known))
        secret = is_secret(known[name])
        if secret and inner.value is None:
            continue
        if secret and not _may_hold_secrets(inner):
            raise BadConfiguration(
                f"{inside} is a secret and is not taken from {inner.where}.",
                remedy=known[name].metadata.get("instead", INSTEAD),
            )
        # A field's metadata may name a class that is made at run time.
        values[name] = _converted(
            known[name].metadata.get("kind", hints[name]), inner, inside, secret
        )
    for name, each in known.items():
        no_default = each.default is dataclasses.MISSING
        if name not in values and no_default and each.default_factory is dataclasses.MISSING:
            raise BadConfiguration(
                f"{path}.{name} is missing ({entry.where}).", remedy="Set it, or leave the section."
            )
    try:
        return kind(**values)
    except ValueError as error:
        message = str(error)
        if isinstance(error, FieldError):
            at = entry.value.get(error.name, entry)
        else:
            at = next((it for name, it in entry.value.items() if message.startswith(name)), entry)
        raise BadConfiguration(
            f"{path + ': ' if path else ''}{message} ({at.where}).", remedy="Change it there."
        ) from error


def _may_hold_secrets(entry: Entry) -> bool:
    return entry.text and entry.open


def plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            each.name: _hidden(getattr(value, each.name))
            if is_secret(each)
            else plain(getattr(value, each.name))
            for each in dataclasses.fields(value)
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = [plain(each) for each in value]
        return sorted(items, key=str) if isinstance(value, (set, frozenset)) else items
    if isinstance(value, float) and value.is_integer():
        return int(value)  # 30 and 30.0 are one setting
    return without_credentials(value) if isinstance(value, str) else value


def _hidden(value: Any) -> str | None:
    if not value:
        return None
    return f"({len(value)} set)" if isinstance(value, (list, tuple)) else "(set)"


def without_credentials(text: str) -> str:
    if "://" not in text or "@" not in text:
        return text
    try:
        parts = urlsplit(text)
    except ValueError:
        return "(an address with credentials)"
    if "@" not in parts.netloc:
        return text
    return urlunsplit(parts._replace(netloc="***@" + parts.netloc.rpartition("@")[2]))


def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _converted(kind: Any, entry: Entry, path: str, secret: bool) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _one_of(arguments, entry, path, secret)
    if entry.text and not _takes_text(kind):
        entry = _read(kind, entry, path)
    value = entry.value
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        # A section of which only remarks are left.
        return build(kind, Entry({}, entry.where) if value is None else entry, path)
    if origin is Literal:
        for each in arguments:
            if value == each and type(value) is type(each):
                return each
            if isinstance(value, bool) and each == ("on" if value else "off"):
                return each  # YAML 1.1 reads these words as true and false
        raise _wrong(path, entry, f"must be {_kind_name(kind)}", secret)
    if origin in (tuple, list, frozenset, set) or (
        isinstance(origin, type) and issubclass(origin, typing.Sequence)
    ):
        return _many(kind, entry, path, secret)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise _wrong(path, entry, "must be a section of names and values", secret)
        inner = arguments[1]
        return {k: _converted(inner, each, f"{path}.{k}", secret) for k, each in value.items()}
    return _scalar(kind, entry, path, secret)


def _scalar(kind: Any, entry: Entry, path: str, secret: bool) -> Any:
    value = entry.value
    if kind is Any:
        return value_of(entry)
    if isinstance(kind, type):
        if issubclass(kind, Enum):
            for each in kind:
                if each.value == value:
                    return each
        elif issubclass(kind, Path) and isinstance(value, str):
            return Path(value)
        elif kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        elif isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
            return value
    raise _wrong(path, entry, f"must be {_kind_name(kind)}", secret)


def _many(kind: Any, entry: Entry, path: str, secret: bool) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if not isinstance(entry.value, list):
        raise _wrong(path, entry, "must be a list", secret)
    inner = arguments[0]
    several = origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis)
    if several and len(arguments) != len(entry.value):
        raise _wrong(path, entry, f"must be a list of {len(arguments)}", secret)
    kinds = arguments if several else [inner] * len(entry.value)
    items = [
        _converted(each, item, f"{path}[{i}]", secret)
        for i, (each, item) in enumerate(zip(kinds, entry.value, strict=True))
    ]
    return origin(items) if origin in (list, frozenset, set) else tuple(items)


def _one_of(kinds: tuple[Any, ...], entry: Entry, path: str, secret: bool) -> Any:
    others = [each for each in kinds if each is not type(None)]
    optional = len(others) < len(kinds)
    if entry.text:
        if optional and entry.value.strip().lower() in ("null", "~"):
            return None
        if len(others) > 1 and not all(map(_takes_text, others)):
            entry = _read(Any, entry, path)
    if entry.value is None and optional:
        return None
    if len(others) == 1:
        return _converted(others[0], entry, path, secret)
    for each in others:
        try:
            return _converted(each, entry, path, secret)
        except BadConfiguration:
            continue
    expected = " or ".join([*map(_kind_name, others), *(["null"] if optional else [])])
    raise _wrong(path, entry, f"must be {expected}", secret)


def _takes_text(kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return all(isinstance(each, str) for each in get_args(kind))
    return isinstance(kind, type) and issubclass(kind, (str, Path, Enum))


def _read(kind: Any, entry: Entry, path: str) -> Entry:
    text = entry.value.strip()
    if get_origin(kind) in (tuple, list, frozenset, set) and not text.startswith("["):
        items = [part.strip() for part in text.replace("\n", ",").split(",")]
        return Entry([Entry(part, entry.where, text=True) for part in items if part], entry.where)
    return Entry(from_text(text, entry.where), entry.where)


def _kind_name(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(str, get_args(kind)))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " or ".join(str(each.value) for each in kind)
    if isinstance(kind, type) and issubclass(kind, Path):
        return "a path"
    return _NAMES.get(kind, "a section" if dataclasses.is_dataclass(kind) else "a list")


def _wrong(path: str, entry: Entry, must: str, secret: bool = False) -> BadConfiguration:
    value = entry.value
    if isinstance(value, dict):
        shown = "a section"
    elif isinstance(value, list):
        shown = "a list"
    else:
        shown = "what it is" if secret else without_credentials(repr(value)[:80])
    return BadConfiguration(
        f"{path or 'The configuration'} {must}, not {shown} ({entry.where}).",
        remedy="Put it in quotes." if _needs_quotes(value, must) else "Change it there.",
    )


def _needs_quotes(value: Any, must: str) -> bool:
    """Return whether YAML would read a text as another type, as 100 or no."""
    return must == "must be a text" and isinstance(value, (bool, int, float))


def unknown_setting(path: str, entry: Entry, known: list[str]) -> BadConfiguration:
    """Return the error of an unknown name; ``path`` ends in it."""
    near = difflib.get_close_matches(path.rpartition(".")[2], known, n=3, cutoff=0.6)
    remedy = f"Did you mean {' or '.join(near)}?" if near else f"Known are: {', '.join(known)}."
    return BadConfiguration(f"The setting {path} is unknown ({entry.where}).", remedy=remedy)
