"""JSON text to messages and back. Reading never raises: what cannot be read is a ``Fault``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from qwen3tts_text.surrogates import clean
from qwen3tts_wire.errors import BadRequest, SpeechError
from qwen3tts_wire.fields import Text, read, write


@dataclass(frozen=True)
class Fault:
    """A message that could not be read."""

    error: SpeechError
    type: str | None = None
    """Its type, where that much could be read."""
    context_id: str | None = None
    """The context it names, where that much could be read."""
    request_id: str | None = None


def decode(text: str, kinds: Mapping[str, type], *, strict: bool) -> Any | Fault | None:
    """Read one JSON message of the given types.

    ``strict`` refuses unknown types and fields by name (a server); without it unknown fields are
    ignored and an unknown type gives None (a client).
    """
    try:
        fields = json.loads(
            text, parse_constant=_no_constant, object_pairs_hook=_no_twins if strict else None
        )
    except (ValueError, RecursionError) as error:
        # JSONDecodeError repeats none of the text in ``msg``; a deep nest ends in RecursionError.
        what = error.msg if isinstance(error, json.JSONDecodeError) else str(error)[:80]
        return Fault(BadRequest(f"The message is not JSON: {what}."))
    except SpeechError as error:
        return Fault(error)
    if not isinstance(fields, dict):
        return Fault(BadRequest("The message is not a JSON object."))
    kind_name = fields.pop("type", None)
    if not isinstance(kind_name, str):
        return Fault(BadRequest("The message has no type."))
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
        return Fault(unknown, None, context_id, request_id)
    try:
        return read(kind, fields, where=kind_name, strict=strict)
    except SpeechError as error:
        error.context_id = context_id
        return Fault(error, kind_name, context_id, request_id)


def encode(message: Any) -> str:
    """One message as JSON text that is always valid Unicode."""
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
