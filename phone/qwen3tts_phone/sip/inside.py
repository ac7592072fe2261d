"""Requests inside a dialog: which of them means what (RFC 3261 section 12.2.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.addresses import ALLOW
from qwen3tts_phone.sip.call_state import CallState
from qwen3tts_phone.sip.info import DTMF, DTMF_RELAY, InfoReceived, read_dtmf
from qwen3tts_phone.sip.message import Request, reply
from qwen3tts_phone.sip.referral import Referral
from qwen3tts_phone.sip.transaction import Transaction

if TYPE_CHECKING:
    from qwen3tts_phone.sip.call import Call
    from qwen3tts_phone.sip.dialog import Dialog

MAX_INFO_BYTES = 8192
"""Largest body of an INFO that is handed on."""


def receive_inside(
    call: Call, request: Request, transaction: Transaction, dialog: Dialog, now: float
) -> None:
    """A request of the far end inside a dialog of ours."""
    method = request.method
    early = call.dialog is not dialog
    if method == "BYE" and not early:
        call.remote_bye(request, transaction, now)
    elif method in ("INVITE", "UPDATE"):
        call.modification.received.receive(request, transaction, dialog, now)
    elif method == "PRACK":
        call.receive_prack(request, transaction, dialog, now)
    elif method == "INFO":
        _receive_info(call, request, transaction, now)
    elif method == "REFER":
        Referral.receive(call, request, transaction, dialog, now)
    elif method == "BYE":
        # Section 15: whoever has not answered yet cannot hang up.
        transaction.send_response(reply(request, 481), now)
    else:
        response = reply(request, 405)
        response.add("Allow", ALLOW)
        transaction.send_response(response, now)


def _receive_info(call: Call, request: Request, transaction: Transaction, now: float) -> None:
    if call.state is CallState.ENDING:
        transaction.send_response(reply(request, 481), now)
        return
    if request.get("Info-Package") is not None:
        # RFC 6086 section 4.2.2: a package that we have not said we take.
        response = reply(request, 469, "Bad INFO Package")
        response.add("Recv-Info", "")
        transaction.send_response(response, now)
        return
    if len(request.body) > MAX_INFO_BYTES:
        transaction.send_response(reply(request, 413, "Request Entity Too Large"), now)
        return
    kind = (request.get("Content-Type") or "").partition(";")[0].strip().lower()
    if kind in (DTMF_RELAY, DTMF):
        try:
            key = read_dtmf(kind, request.body)
        except BadSip:
            transaction.send_response(reply(request, 400), now)
            return
        transaction.send_response(reply(request, 200), now)
        call.notify(key)
        return
    body = request.body
    transaction.send_response(reply(request, 200), now)
    call.notify(InfoReceived(kind if body else "", body))
