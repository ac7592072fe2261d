"""Which call an INVITE with Replaces takes the place of (RFC 3891 section 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qwen3tts_phone.errors import BadSip
from qwen3tts_phone.sip.call_state import CallState
from qwen3tts_phone.sip.message import Request
from qwen3tts_phone.sip.replaces import Replaces
from qwen3tts_phone.sip.trusted import may_steer

if TYPE_CHECKING:
    from qwen3tts_phone.sip.agent import Agent
    from qwen3tts_phone.sip.call import Call

CONFIRMED = (CallState.ANSWERED, CallState.UP)
OURS_EARLY = (CallState.CALLING, CallState.PROCEEDING)


def replaced_call(agent: Agent, request: Request) -> Call | int | None:
    """The call to replace, the status to refuse with, or None where nothing is to be replaced.

    Raises BadSip for a header that names no dialog, or several.
    """
    values = request.headers.getlist("Replaces")
    if not values:
        return None
    if len(values) > 1 or len(request.values("Replaces")) > 1:
        raise BadSip("An INVITE replaces one dialog.")
    wanted = Replaces.parse(values[0])
    found = agent.dialogs.find(wanted.call_id, wanted.to_tag, wanted.from_tag)
    if found is None:
        return 481
    call, dialog = found
    if not may_steer(agent, request, call, dialog):
        # RFC 3891 section 8: to know the tags is not enough.
        return 403
    if call.state in CONFIRMED and call.dialog is dialog:
        return 486 if wanted.early_only else call
    if call.state in OURS_EARLY:
        return call
    # An early dialog that they began cannot be replaced; one that is over is declined.
    return 603 if call.state in (CallState.ENDING, CallState.LEAVING) else 481
