"""Why a request was sent: the header Reason (RFC 3326)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from qwen3tts_phone.sip.fields import split_list
from qwen3tts_phone.sip.message import Request, Response

MAX_TEXT_CHARS = 200
_PARAMETER = re.compile(r';\s*([A-Za-z-]{1,32})\s*=\s*("(?:[^"\\]|\\.)*"|[^;\s]*)')


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason: ``SIP`` with a status code, ``Q.850`` with a cause of the telephone network."""

    protocol: str
    cause: int | None = None
    text: str = ""

    def __str__(self) -> str:
        number = "" if self.cause is None else f" {self.cause}"
        return self.text or f"{self.protocol}{number}"


def reasons(message: Request | Response) -> list[Reason]:
    """All that a message gives; what cannot be read is left out."""
    found = []
    for line in message.headers.getlist("Reason"):
        for value in split_list(line[:4096]):
            protocol = value.partition(";")[0].strip()
            if not protocol or len(protocol) > 32:
                continue
            cause, text = None, ""
            for match in _PARAMETER.finditer(value):
                name, given = match[1].lower(), match[2]
                if given.startswith('"'):
                    given = re.sub(r"\\(.)", r"\1", given[1:-1])
                if name == "cause" and given.isascii() and given.isdigit() and len(given) <= 3:
                    cause = int(given)
                elif name == "text":
                    text = given[:MAX_TEXT_CHARS]
            found.append(Reason(protocol, cause, text))
    return found[:8]
