"""How a call ended, in plain words."""

from __future__ import annotations

from qwen3tts_phone.sip.call_state import Ended
from qwen3tts_wire.errors import SpeechError


def ended_in_words(ended: Ended, error: SpeechError | None = None) -> str:
    """One clause, without a full stop where it is no error's own message."""
    if error is not None:
        return str(error)
    if ended.by == "local":
        return "we hung up"
    if ended.by == "remote":
        return f"the other side hung up{f' ({ended.reason})' if ended.reason else ''}"
    return f"{ended.by} {ended.status or ''} {ended.reason}".strip()
