"""One branch of a call of ours: the early dialog of one phone that rings (RFC 3261 section 12.1.2,
RFC 3262 section 4)."""

from __future__ import annotations

import re

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.dialog import Dialog
from qwen3tts_phone.sip.message import Request, Response

MAX_PRACKS = 64
"""Most reliable provisional answers of one branch that are acknowledged."""
MAX_RSEQ = 2**32 - 1

_NUMBER = re.compile(r"[0-9]{1,10}")


def rseq_of(response: Response) -> int | None:
    """The number of a provisional answer that is sent reliably, or None where it is not."""
    if not any(option.lower() == "100rel" for option in response.values("Require")):
        return None
    text = (response.get("RSeq") or "").strip()
    if response.status <= 100 or not _NUMBER.fullmatch(text):
        return None
    number = int(text)
    return number if 1 <= number <= MAX_RSEQ else None


class Branch:
    """What has come from one phone before the answer."""

    def __init__(self, dialog: Dialog | None) -> None:
        self.dialog = dialog
        """None where its Contact or route cannot be used."""
        self.described = ""
        """The SDP that it sent last."""
        self.agreed = False
        """Whether our offer has been answered reliably, so that changes are possible."""
        self._rseq: int | None = None
        self._left = MAX_PRACKS

    @classmethod
    def of(cls, invite: Request, response: Response) -> Branch:
        """The branch that a provisional answer begins; without a tag there is no dialog yet."""
        try:
            whole = response.to.tag is not None and response.contact is not None
            return cls(Dialog.of_caller(invite, response) if whole else None)
        except BadSip:
            return cls(None)

    def takes(self, rseq: int) -> bool:
        """Whether a reliable answer is the next one; else it came before, or one is missing.

        Section 4: those are neither processed nor acknowledged.
        """
        if self._rseq is not None and rseq != self._rseq + 1:
            return False
        if self.dialog is None or self._left <= 0:
            return False
        self._left -= 1
        self._rseq = rseq
        return True

    def prack(self, response: Response, rseq: int) -> Request:
        """The PRACK to a reliable provisional answer (section 7.2), still without Via."""
        if self.dialog is None:
            raise BadSip("There is nobody to acknowledge it to.")
        request = self.dialog.request("PRACK")
        request.add("RAck", f"{rseq} {response.cseq} {response.cseq_method}")
        return request
