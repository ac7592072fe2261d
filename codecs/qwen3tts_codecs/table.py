"""Table of codecs: a new one is a module with ``SPECS``, and a line of `MODULES`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Final

from qwen3tts_codecs.errors import UnknownPayload
from qwen3tts_codecs.payload import UNRATED, CodecRating, CodecSpec, Payload

__all__ = [
    "BROWSER_CODECS",
    "CODECS",
    "SDP_CODECS",
    "CodecRating",
    "CodecSpec",
    "agreed_payload",
    "codec_by_alias",
    "codecs_by_name",
    "payload_by_name",
    "payload_by_type",
    "rating_of",
]

MODULES: Final = (
    "g711",
    "g722",
    "opus",
    "l16",
)
"""The table: modules of this package, each with its ``SPECS``, best known first."""


def _specs(module: str) -> Sequence[CodecSpec]:
    specs: Sequence[CodecSpec] = import_module(f"qwen3tts_codecs.{module}").SPECS
    return specs


CODECS: Final[dict[str, CodecSpec]] = {
    spec.name.upper(): spec for module in MODULES for spec in _specs(module)
}

SDP_CODECS: Final[dict[str, CodecSpec]] = {
    name: spec for name, spec in CODECS.items() if spec.in_sdp
}
"""Codecs that telephone calls can negotiate."""

BROWSER_CODECS: Final = tuple(
    spec.name
    for spec in sorted(CODECS.values(), key=lambda spec: -spec.payload.sample_hz)
    if spec.in_browsers
)
"""Names of those that browsers have, the widest band first."""

_BY_TYPE: Final = {spec.payload_type: spec.payload for spec in CODECS.values() if spec.static}
_BY_NAME: Final = {
    name: spec.payload for name, spec in CODECS.items() if spec.in_sdp or spec.static
}
_BY_ALIAS: Final = {alias: spec for spec in CODECS.values() for alias in spec.aliases}


def payload_by_name(name: str) -> Payload:
    """Return the format of an rtpmap name, any case. Raises UnknownPayload."""
    payload = _BY_NAME.get(name.upper())
    if payload is None:
        raise UnknownPayload(f"no payload format {name!r}; known: {', '.join(_BY_NAME)}")
    return payload


def payload_by_type(payload_type: int) -> Payload:
    payload = _BY_TYPE.get(payload_type)
    if payload is None:
        raise UnknownPayload(
            f"payload type {payload_type} is not static here; known: {sorted(_BY_TYPE)}"
        )
    return payload


def codecs_by_name(names: Sequence[str]) -> tuple[CodecSpec, ...]:
    """Return negotiable codecs by name, any case. Raises ValueError."""
    found = tuple(SDP_CODECS[name.upper()] for name in names if name.upper() in SDP_CODECS)
    if not found or len(found) != len(names):
        known = tuple(spec.name for spec in SDP_CODECS.values())
        raise ValueError(f"codecs={tuple(names)!r}: known are {known}")
    return tuple(dict.fromkeys(found))


def codec_by_alias(alias: str) -> CodecSpec | None:
    return _BY_ALIAS.get(alias)


def agreed_payload(name: str, payload_type: int, fmtp: str = "") -> Payload:
    """Return the format agreed by SDP, with the far end's ``fmtp``. Raises UnknownPayload."""
    spec = CODECS.get(name.upper())
    if spec is None or name.upper() not in _BY_NAME:
        raise UnknownPayload(f"no payload format {name!r}; known: {', '.join(_BY_NAME)}")
    return spec.agreed(payload_type, fmtp)


def rating_of(name: str) -> CodecRating:
    """Return an encoding name's E-model parameters, or `UNRATED`."""
    spec = CODECS.get(name.upper())
    return UNRATED if spec is None else spec.rating
