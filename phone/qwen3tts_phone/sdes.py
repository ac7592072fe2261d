"""SRTP keys in session descriptions (RFC 4568): the lines ``a=crypto``, read and chosen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from qwen3tts_phone.srtp_key import KEY_BYTES, SrtpKey

MAX_LINES = 32
"""Most lines of one stream that are looked at."""
_LINE = re.compile(
    r"(\d{1,9})\s+([A-Za-z0-9_]{1,64})\s+inline:([A-Za-z0-9+/=]{1,200})([^\s;]*)(.*)"
)
_LIFETIME = re.compile(r"\|(2\^)?\d{1,20}")
_HARMLESS = re.compile(r"WSH=\d{1,9}")


@dataclass(frozen=True, slots=True)
class Crypto:
    """One line: a suite with its key, by which the describer will send."""

    tag: int
    key: SrtpKey

    def __str__(self) -> str:
        """As it stands behind ``a=crypto:``. Holds the key: not for logs."""
        return f"{self.tag} {self.key.suite} inline:{self.key.key}"


def parse_crypto(value: str) -> Crypto | None:
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
        return Crypto(int(tag), SrtpKey(suite.upper(), key))
    except ValueError:
        return None


def choose(theirs: Sequence[Crypto], suites: Sequence[str]) -> Crypto | None:
    """The first of their lines whose suite is ours (section 5.1.2); None = there is none."""
    return next((line for line in theirs if line.key.suite in suites), None)


def confirmed(answer: Sequence[Crypto], offered: Sequence[Crypto]) -> tuple[Crypto, Crypto] | None:
    """Our line that an answer took, and its own (section 5.1.3): same tag, same suite; or None."""
    for line in answer[:1]:
        for ours in offered:
            if (ours.tag, ours.key.suite) == (line.tag, line.key.suite):
                return ours, line
    return None
