"""Master keys of SRTP as session descriptions carry them (RFC 4568, RFC 7714)."""

from __future__ import annotations

import base64
import binascii
import secrets
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
