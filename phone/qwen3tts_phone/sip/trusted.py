"""Authorization of what steers a call from elsewhere: REFER and Replaces (RFC 3891 section 8)."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.message import Request
from qwen3tts_phone.sip.networks import address_of

if TYPE_CHECKING:
    from qwen3tts_phone.sip.agent import Agent
    from qwen3tts_phone.sip.call import Call
    from qwen3tts_phone.sip.dialog import Dialog


def may_steer(agent: Agent, request: Request, call: Call, dialog: Dialog) -> bool:
    """Return whether a request's source may transfer or replace a call.

    It may as the dialog's own peer: the host that the INVITE went to or came from, or that our
    requests of the dialog go to. So may the servers of an account, and trusted networks.
    """
    source = request.source
    if source is None:
        return True
    address = address_of(source.host)
    return address in _peers(call, dialog) or agent.trusts(source.host, request)


def _peers(call: Call, dialog: Dialog) -> set[object]:
    hosts = [call.hop.host]
    with contextlib.suppress(BadSip):
        hosts.append(call.agent.hop(dialog.first_hop).host)
    return {address for host in hosts if (address := address_of(host)) is not None}
