"""Kinds of message fields, and messages as JSON.

A field is declared once, as ``Annotated[str, Text(1, 128)]``: reader, writer, errors and
(tested) ``docs/protocol.md`` follow.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from qwen3tts_text.surrogates import clean
from qwen3tts_wire.errors import BadRequest, LimitExceeded, SpeechError

JSON = dict[str, Any]


class Kind(Protocol):
    """Kind of field: check and description."""

    def check(self, value: object, where: str) -> Any:
        """Return the Python value; BadRequest or LimitExceeded names ``where``."""

    def describe(self) -> str:
        """Return kind and bounds for the documentation."""


@dataclasses.dataclass(frozen=True)
class Text:
    """String of ``low`` to ``high`` code points."""

    low: int
    high: int
    printable: bool = False
    """Refuse control characters, line breaks, lone surrogates: for names."""

    def check(self, value: object, where: str) -> str:
        if not isinstance(value, str):
            raise BadRequest(f"{where} must be a string, not {_json_type(value)}.")
        if len(value) > self.high:
            raise LimitExceeded(
                f"{where} has {len(value)} characters; at most {self.high} are allowed.",
                remedy="Send it in smaller pieces." if not self.printable else "",
            )
        if len(value) < self.low:
            raise BadRequest(f"{where} must have at least {self.low} character(s).")
        if self.printable and not value.isprintable():
            raise BadRequest(f"{where} must not hold control characters.")
        return value

    def describe(self) -> str:
        kind = "printable string" if self.printable else "string"
        return f"{kind}, {self.low} to {self.high} characters"


@dataclasses.dataclass(frozen=True)
class Whole:
    """Whole number from ``low`` to ``high``."""

    low: int
    high: int

    def check(self, value: object, where: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise BadRequest(f"{where} must be a whole number, not {_json_type(value)}.")
        if not self.low <= value <= self.high:
            raise BadRequest(f"{where} must be from {self.low} to {self.high}.")
        return value

    def describe(self) -> str:
        return f"integer, {self.low} to {self.high}"


@dataclasses.dataclass(frozen=True)
class Real:
    """Finite number from ``low`` to ``high``."""

    low: float
    high: float

    def check(self, value: object, where: str) -> float:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise BadRequest(f"{where} must be a number, not {_json_type(value)}.")
        if not self.low <= value <= self.high or not math.isfinite(value):
            raise BadRequest(f"{where} must be from {self.low:g} to {self.high:g}.")
        return float(value)

    def describe(self) -> str:
        return f"number, {self.low:g} to {self.high:g}"


@dataclasses.dataclass(frozen=True)
class Flag:
    """``true`` or ``false``."""

    def check(self, value: object, where: str) -> bool:
        if not isinstance(value, bool):
            raise BadRequest(f"{where} must be true or false, not {_json_type(value)}.")
        return value

    def describe(self) -> str:
        return "boolean"


@dataclasses.dataclass(frozen=True)
class OneOf:
    """One of a few words."""

    words: tuple[str, ...]

    def check(self, value: object, where: str) -> str:
        if not isinstance(value, str) or value not in self.words:
            raise BadRequest(f"{where} must be one of {', '.join(self.words)}.")
        return value

    def describe(self) -> str:
        return " or ".join(f"`{word}`" for word in self.words)


@dataclasses.dataclass(frozen=True)
class Numbers:
    """Object of names and finite numbers."""

    def check(self, value: object, where: str) -> dict[str, float]:
        if not isinstance(value, dict) or len(value) > 64:
            raise BadRequest(f"{where} must be an object of at most 64 numbers.")
        number = Real(-1e15, 1e15)
        return {str(name): number.check(item, f"{where}.{name}") for name, item in value.items()}

    def describe(self) -> str:
        return "object of numbers"


@dataclasses.dataclass(frozen=True)
class Many:
    """List of at most ``high`` items."""

    item: Kind
    high: int

    def check(self, value: object, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise BadRequest(f"{where} must be a list, not {_json_type(value)}.")
        if len(value) > self.high:
            raise LimitExceeded(f"{where} has {len(value)} items; at most {self.high} are allowed.")
        return tuple(self.item.check(each, f"{where}[{i}]") for i, each in enumerate(value))

    def describe(self) -> str:
        return f"list of at most {self.high}: {self.item.describe()}"


@dataclasses.dataclass(frozen=True)
class Record:
    """An object with the fields of a dataclass."""

    of: type
    strict: bool = True
    """Refuse unknown fields (server) or ignore them (client)."""

    def check(self, value: object, where: str) -> Any:
        if not isinstance(value, dict):
            raise BadRequest(f"{where} must be an object, not {_json_type(value)}.")
        return read(self.of, value, where=where, strict=self.strict)

    def describe(self) -> str:
        return f"object `{self.of.__name__}`"


@dataclasses.dataclass(frozen=True)
class OrNull:
    """Another kind, or ``null``."""

    kind: Kind

    def check(self, value: object, where: str) -> Any:
        return None if value is None else self.kind.check(value, where)

    def describe(self) -> str:
        return f"{self.kind.describe()}, or null"


def kinds(of: type) -> Mapping[str, tuple[Kind, bool]]:
    """Return each field's kind and whether it is required."""
    return _kinds(of)


@functools.cache
def _kinds(of: type) -> Mapping[str, tuple[Kind, bool]]:
    hints = typing.get_type_hints(of, include_extras=True)
    return {
        field.name: (
            _kind(hints[field.name]),
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
        )
        for field in dataclasses.fields(of)
    }


def _kind(hint: Any) -> Kind:
    if typing.get_origin(hint) is typing.Annotated:
        kind: Kind = typing.get_args(hint)[1]
        return kind
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        (inner,) = (each for each in typing.get_args(hint) if each is not type(None))
        return OrNull(_kind(inner))
    raise TypeError(f"a message's field is declared without its kind: {hint}")


def read(of: type, fields: Mapping[str, object], *, where: str, strict: bool) -> Any:
    """Build the dataclass ``of``; errors name the field."""
    known = kinds(of)
    if strict:
        for name in fields:
            if name not in known:
                raise BadRequest(
                    f"{where} has no field {_shown(name)}.",
                    remedy=f"Its fields are: {', '.join(known)}.",
                )
    values = {}
    for name, (kind, required) in known.items():
        if name in fields:
            values[name] = kind.check(fields[name], f"{where}.{name}")
        elif required:
            raise BadRequest(f"{where} needs the field {name}.")
    return of(**values)


def write(value: Any) -> Any:
    """Return JSON types, without None fields."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            name: write(item)
            for name in kinds(type(value))
            if (item := getattr(value, name)) is not None
        }
    if isinstance(value, (tuple, list)):
        return [write(each) for each in value]
    return value


def _shown(name: str) -> str:
    return ascii(name if len(name) <= 40 else name[:40] + "...")


def _json_type(value: object) -> str:
    names = {str: "a string", bool: "a boolean", dict: "an object", list: "a list"}
    return "null" if value is None else names.get(type(value), "a number")


@dataclass(frozen=True)
class DecodeError:
    """Unreadable message."""

    error: SpeechError
    type: str | None = None
    """Type, where readable."""
    context_id: str | None = None
    """Context, where readable."""
    request_id: str | None = None


def decode(text: str, kinds: Mapping[str, type], *, strict: bool) -> Any | DecodeError | None:
    """Decode a JSON message of the given types.

    ``strict`` (server) refuses unknown types and fields by name; else unknown fields are ignored
    and an unknown type gives None.
    """
    try:
        fields = json.loads(
            text, parse_constant=_no_constant, object_pairs_hook=_no_twins if strict else None
        )
    except (ValueError, RecursionError) as error:
        # JSONDecodeError repeats none of the text in ``msg``; a deep nest ends in RecursionError.
        what = error.msg if isinstance(error, json.JSONDecodeError) else str(error)[:80]
        return DecodeError(BadRequest(f"The message is not JSON: {what}."))
    except SpeechError as error:
        return DecodeError(error)
    if not isinstance(fields, dict):
        return DecodeError(BadRequest("The message is not a JSON object."))
    kind_name = fields.pop("type", None)
    if not isinstance(kind_name, str):
        return DecodeError(BadRequest("The message has no type."))
    context_id, request_id = _name(fields, "context_id"), _name(fields, "request_id")
    kind = kinds.get(kind_name)
    if kind is None:
        if not strict:
            return None
        unknown = BadRequest(
            f"There is no message type {kind_name[:40]!a}.",
            remedy=f"The types are: {', '.join(kinds)}.",
            context_id=context_id,
        )
        return DecodeError(unknown, None, context_id, request_id)
    try:
        return read(kind, fields, where=kind_name, strict=strict)
    except SpeechError as error:
        error.context_id = context_id
        return DecodeError(error, kind_name, context_id, request_id)


def encode(message: Any) -> str:
    """Return valid-Unicode JSON text."""
    text = json.dumps(
        {"type": message.type, **write(message)}, ensure_ascii=False, separators=(",", ":")
    )
    if text.isascii():
        return text
    # A lone surrogate has no UTF-8 form (RFC 3629 section 3).
    return clean(text)


def _name(fields: Mapping[str, object], key: str) -> str | None:
    try:
        return Text(1, 128, printable=True).check(fields.get(key), key)
    except SpeechError:
        return None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise BadRequest("The message has a field twice.")
    return fields
