"""Settings as written, with file and line, unchecked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from qwen3tts_wire.errors import BadRequest

MAX_DEPTH = 16
"""Levels of sections."""
ENV_PREFIX = "QWEN3TTS__"
"""``QWEN3TTS__SERVER__PORT`` is ``server.port``."""


_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


class BadConfiguration(BadRequest):
    """The settings cannot be read."""

    code = "bad_configuration"


@dataclass(frozen=True)
class Entry:
    """Scalar, list or section."""

    value: Any
    """None, bool, int, float, str, ``list[Entry]`` or ``dict[str, Entry]``."""
    where: str
    """File and line, variable or option."""
    text: bool = False
    """Plain text, read by its setting's type."""
    open: bool = True
    """True if it may hold secrets: no process list shows it."""

    def place(self, *path: str | int) -> str:
        """Return the place of ``path`` beneath, or of its nearest parent."""
        entry = self
        for step in path:
            held = entry.value
            # A list as a section whose names are its places.
            names = dict(enumerate(held)) if isinstance(held, list) else held
            if not isinstance(names, dict) or step not in names:
                break
            entry = names[step]
        return entry.where


def entry_of(value: Any, where: str) -> Entry:
    """Return a plain value as an entry at ``where``."""
    if isinstance(value, Mapping):
        return Entry({str(name): entry_of(each, where) for name, each in value.items()}, where)
    if isinstance(value, (list, tuple)):
        return Entry([entry_of(each, where) for each in value], where)
    return Entry(value, where)


def value_of(entry: Entry) -> Any:
    if isinstance(entry.value, dict):
        return {name: value_of(each) for name, each in entry.value.items()}
    if isinstance(entry.value, list):
        return [value_of(each) for each in entry.value]
    return entry.value


def section(where: str) -> Entry:
    return Entry({}, where)


def from_yaml(text: str, name: str) -> Entry:
    """Parse a YAML document; empty: an empty section.

    Raises:
        BadConfiguration: it is invalid.
    """
    try:
        entry = _parsed(text, name)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "not what YAML allows"
        raise BadConfiguration(
            f"{name}{line} is not readable: {problem}.", remedy="Mend the file; it is YAML 1.1."
        ) from error
    if entry.value is None:
        return section(name)
    if not isinstance(entry.value, dict):
        raise BadConfiguration(
            f"{entry.where} does not hold settings.",
            remedy="It is made of sections: `NAME:`, and under it, indented, what belongs there.",
        )
    return entry


def _parsed(text: str, name: str) -> Entry:
    loader = None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        return Entry(None, name) if node is None else _entry(loader, node, name, 0)
    finally:
        if loader is not None:
            loader.dispose()


def _entry(loader: Any, node: yaml.Node, name: str, depth: int) -> Entry:
    where = f"{name}:{node.start_mark.line + 1}"
    if depth > MAX_DEPTH:
        raise BadConfiguration(f"{where}: sections are nested too deeply.", remedy="Take some out.")
    if not _is_scalar(node) and node.tag not in _TAGS:
        raise yaml.MarkedYAMLError(problem=f"{node.tag} is not taken", problem_mark=node.start_mark)
    if isinstance(node, yaml.MappingNode):
        found: dict[str, Entry] = {}
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node) if _is_scalar(key_node) else None
            at = f"{name}:{key_node.start_mark.line + 1}"
            if not isinstance(key, str):
                raise BadConfiguration(
                    f"{at}: a name of a setting must be a text.", remedy="Put it in quotes."
                )
            if key in found:
                raise BadConfiguration(
                    f"The name {key} is set twice, at {found[key].where} and {at}.",
                    remedy="Take one out.",
                )
            entry = _entry(loader, value_node, name, depth + 1)
            found[key] = Entry(entry.value, at)
        return Entry(found, where)
    if isinstance(node, yaml.SequenceNode):
        return Entry([_entry(loader, each, name, depth + 1) for each in node.value], where)
    return Entry(loader.construct_object(node), where)


def _is_scalar(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode)


def from_text(text: str, where: str) -> Any:
    try:
        entry = _parsed(text, where)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadConfiguration(f"{where} is not readable.", remedy="Put it in quotes.") from error
    return _placed(entry, where).value


def _placed(entry: Entry, where: str) -> Entry:
    value = entry.value
    if isinstance(value, dict):
        value = {key: _placed(each, where) for key, each in value.items()}
    elif isinstance(value, list):
        value = [_placed(each, where) for each in value]
    return Entry(value, where)


def from_environment(env: Mapping[str, str]) -> Entry:
    top: dict[str, Entry] = {}
    where = "the environment"
    for name in sorted(env):
        if name.startswith(ENV_PREFIX):
            path = name.removeprefix(ENV_PREFIX).lower().split("__")
            entry = Entry(env[name], f"the environment variable {name}", text=True)
            top = merged(Entry(top, where), _nested(path, entry)).value
    return Entry(top, where)


def from_overrides(overrides: Iterable[str]) -> Entry:
    """Parse ``a.b=c``; later ones win. Raises BadConfiguration."""
    top = section("the command line")
    for each in overrides:
        name, equals, value = each.partition("=")
        path = [part.strip().replace("-", "_") for part in name.split(".")]
        if not equals or not all(path):
            raise BadConfiguration(
                f"{name[:80]!r} sets nothing.", remedy="Write SECTION.NAME=VALUE: server.port=9000."
            )
        entry = Entry(value, f"{name} on the command line", text=True, open=False)
        top = merged(top, _nested(path, entry))
    return top


def _nested(path: list[str], entry: Entry) -> Entry:
    for part in reversed(path):
        entry = Entry({part: entry}, entry.where, open=entry.open)
    return entry


def merged(under: Entry, over: Entry) -> Entry:
    """Merge sections; ``over`` wins."""
    if not (isinstance(under.value, dict) and isinstance(over.value, dict)):
        return over
    both = dict(under.value)
    for key, entry in over.value.items():
        both[key] = merged(both[key], entry) if key in both else entry
    return Entry(both, under.where, open=under.open)


MAX_FILE_BYTES = 1 << 20


def from_file(path: Path, example: str) -> Entry:
    """Read a YAML file; the remedy names ``example``.

    Raises:
        BadConfiguration: unreadable or invalid.
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
