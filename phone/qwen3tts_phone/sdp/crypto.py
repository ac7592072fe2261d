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
"""What can be spoken, best known first: the first one is what every phone with SRTP has."""


@dataclass(frozen=True, slots=True)
class SrtpKey:
    """The key of one direction of a stream. Its repr does not show it."""

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
        """Master key followed by master salt."""
        return base64.b64decode(self.key)

    @classmethod
    def new(cls, suite: str) -> SrtpKey:
        """A fresh one; raises ValueError for a suite that is not known."""
        sizes = KEY_BYTES.get(suite)
        if sizes is None:
            raise ValueError(f"suite={suite!r}: known are {', '.join(KEY_BYTES)}")
        return cls(suite, base64.b64encode(secrets.token_bytes(sum(sizes))).decode())


MAX_LINES = 32
"""Most lines of one stream that are looked at."""
_LINE = re.compile(
    r"(\d{1,9})\s+([A-Za-z0-9_]{1,64})\s+inline:([A-Za-z0-9+/=]{1,200})([^\s;]*)(.*)"
)
_LIFETIME = re.compile(r"\|(2\^)?\d{1,20}")
_HARMLESS = re.compile(r"WSH=\d{1,9}")


@dataclass(frozen=True, slots=True)
class CryptoAttribute:
    """One line: a suite with its key, by which the describer will send."""

    tag: int
    key: SrtpKey

    def __str__(self) -> str:
        """As it stands behind ``a=crypto:``. Holds the key: not for logs."""
        return f"{self.tag} {self.key.suite} inline:{self.key.key}"


def parse_crypto(value: str) -> CryptoAttribute | None:
    """Read what stands behind ``a=crypto:``.

    None for what cannot be used here, as if the line were not there (section 5.1.2): an unknown
    suite, a key of another length, several keys or an index for them (MKI), a parameter that
    changes the processing and is not marked as optional.
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


def choose(theirs: Sequence[CryptoAttribute], suites: Sequence[str]) -> CryptoAttribute | None:
    """The first of their lines whose suite is ours (section 5.1.2); None = there is none."""
    return next((line for line in theirs if line.key.suite in suites), None)


def confirmed(
    answer: Sequence[CryptoAttribute], offered: Sequence[CryptoAttribute]
) -> tuple[CryptoAttribute, CryptoAttribute] | None:
    """Our line that an answer took, and its own (section 5.1.3): same tag, same suite; or None."""
    for line in answer[:1]:
        for ours in offered:
            if (ours.tag, ours.key.suite) == (line.tag, line.key.suite):
                return ours, line
    return None
