"""Why something with a call did not come about, in a few words that a model can pass on."""

from __future__ import annotations

_BY_STATUS = {
    401: "the telephone server does not accept our account",
    402: "the telephone server wants the account to be paid",
    403: "it is not allowed there",
    404: "there is no such number",
    407: "the telephone server does not accept our account",
    408: "no answer",
    410: "nobody has that number any more",
    480: "nobody can be reached there now",
    484: "the number is not complete",
    486: "busy",
    487: "it was ended before it was answered",
    488: "the phone there does not understand our sound",
    600: "busy",
    603: "declined",
    604: "there is no such number",
    606: "the phone there does not understand our sound",
    608: "declined",
}
_BY_CLASS = {
    3: "the number has moved",
    5: "the telephone network has no room or has failed",
    6: "declined",
}
NO_ANSWER = "no answer"
MAX_CHARS = 200


def cause_of(error: BaseException) -> str:
    """The cause, as it follows a colon. The far end's own words do not reach the model."""
    from qwen3tts_phone.errors import CalleeUnreachable, CallRefused
    from qwen3tts_wire.errors import SpeechError

    if isinstance(error, CallRefused):
        return (
            _BY_STATUS.get(error.status)
            or _BY_CLASS.get(error.status // 100)
            or f"it was refused with SIP status {error.status}"
        )
    if isinstance(error, CalleeUnreachable):
        # Ours to say: it rang in vain, or nothing is at that address.
        return _clause(error.message)
    if isinstance(error, SpeechError):
        return _clause(error.message)
    return "something broke here; the log says more"


def failed_call(cause: str) -> str:
    """The sentence for a call that has not come about."""
    return f"The call was not answered: {cause}."


def _clause(message: str) -> str:
    text = "".join(char if char.isprintable() else "?" for char in message)[:MAX_CHARS]
    return text.rstrip(". ")
