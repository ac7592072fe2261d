"""SRTP master keys and the `a=crypto` lines that carry them (RFC 4568, RFC 7714)."""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

KEY_BYTES: dict[str, tuple[int, int]] = {
    "AES_CM_128_HMAC_SHA1_80": (16, 14),
    "AES_CM_128_HMAC_SHA1_32": (16, 14),
    "AES_256_CM_HMAC_SHA1_80": (32, 14),
    "AES_256_CM_HMAC_SHA1_32": (32, 14),
    "AEAD_AES_128_GCM": (16, 12),
    "AEAD_AES_256_GCM": (32, 12),
}
"""Length of master key and master salt, in bytes, by the suite's name (RFC 4568 section 6.2,
RFC 6188 section 4, RFC 7714 section 14)."""
SUITES = (
    "AES_CM_128_HMAC_SHA1_80",
    "AEAD_AES_256_GCM",
    "AEAD_AES_128_GCM",
    "AES_CM_128_HMAC_SHA1_32",
)
"""Supported suites in order of preference; every phone with SRTP has the first."""


MAX_LINES = 32
"""Most lines of one stream that are looked at."""
_LINE = re.compile(
    r"(\d{1,9})\s+([A-Za-z0-9_]{1,64})\s+inline:([A-Za-z0-9+/=]{1,200})([^\s;]*)(.*)"
)
_LIFETIME = re.compile(r"\|(2\^)?\d{1,20}")
_HARMLESS = re.compile(r"WSH=\d{1,9}")


@dataclass(frozen=True, slots=True)
class SrtpKey:
    """Master key and salt of one direction; not in its repr."""

    suite: str
    """Name of the crypto suite, one of `KEY_BYTES`."""
    key: str = field(repr=False)
    """Base64 of the master key followed by the master salt."""

    def __post_init__(self) -> None:
        sizes = KEY_BYTES.get(self.suite)
        if sizes is None:
            raise ValueError(f"suite={self.suite!r}: known are {', '.join(KEY_BYTES)}")
        try:
            raw = base64.b64decode(self.key, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(f"the key of {self.suite} is not base64") from None
        if len(raw) != sum(sizes):
            raise ValueError(f"the key of {self.suite} has {len(raw)} bytes, not {sum(sizes)}")

    @property
    def raw(self) -> bytes:
        return base64.b64decode(self.key)

    @classmethod
    def new(cls, suite: str) -> SrtpKey:
        sizes = KEY_BYTES.get(suite)
        if sizes is None:
            raise ValueError(f"suite={suite!r}: known are {', '.join(KEY_BYTES)}")
        return cls(suite, base64.b64encode(secrets.token_bytes(sum(sizes))).decode())


@dataclass(frozen=True, slots=True)
class CryptoAttribute:
    """An ``a=crypto`` line: tag, suite, and the describer's sending key."""

    tag: int
    key: SrtpKey

    def __str__(self) -> str:
        """Format the line's value. Holds the key: not for logs."""
        return f"{self.tag} {self.key.suite} inline:{self.key.key}"


def parse_crypto(value: str) -> CryptoAttribute | None:
    """Parse the value of an ``a=crypto`` line.

    None for a line to be ignored (section 5.1.2): an unknown suite, a key of another length,
    several keys or an MKI, a mandatory parameter that changes the processing.
    """
    match = _LINE.fullmatch(value.strip())
    if match is None:
        return None
    tag, suite, key, more, parameters = match.groups()
    if suite.upper() not in KEY_BYTES or (more and not _LIFETIME.fullmatch(more)):
        return None
    # Section 6.3: parameters that begin with a dash may be passed by.
    for parameter in parameters.split():
        if not parameter.startswith("-") and not _HARMLESS.fullmatch(parameter):
            return None
    try:
        return CryptoAttribute(int(tag), SrtpKey(suite.upper(), key))
    except ValueError:
        return None


def choose_crypto(
    theirs: Sequence[CryptoAttribute], suites: Sequence[str]
) -> CryptoAttribute | None:
    """Return the first line with a suite of ours (section 5.1.2)."""
    return next((line for line in theirs if line.key.suite in suites), None)


def confirmed_crypto(
    answer: Sequence[CryptoAttribute], offered: Sequence[CryptoAttribute]
) -> tuple[CryptoAttribute, CryptoAttribute] | None:
    """Return our accepted line and the answer's (section 5.1.3), or None."""
    for line in answer[:1]:
        for ours in offered:
            if (ours.tag, ours.key.suite) == (line.tag, line.key.suite):
                return ours, line
    return None
