"""What becomes of a call that an answering machine takes."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from qwen3tts_cli.output import note
from qwen3tts_wire.errors import SpeechError

if TYPE_CHECKING:
    from qwen3tts_phone.answering import AnsweringSettings
    from qwen3tts_phone.phone import Call


class OnMachine(StrEnum):
    """What is done when a machine answers."""

    SPEAK = "speak"
    HANG_UP = "hang-up"
    AFTER_BEEP = "after-beep"


class MachineAnswered(SpeechError):
    """Nobody was there but an answering machine."""

    code = "machine_answered"


async def await_greeting(
    call: Call, wanted: OnMachine, settings: AnsweringSettings | None = None
) -> None:
    """Listen to who answers, and return when it is time to speak.

    With a person that is after the greeting, with a machine when it records.

    Raises:
        MachineAnswered: it is one, and it gets no message.
    """
    from qwen3tts_phone.answering import Answerer
    from qwen3tts_phone.attempt import who_answered

    async for heard in who_answered(call.audio(steady=True), settings):
        if not isinstance(heard, Answerer):
            return
        call.facts.answered_by = heard.kind
        if heard.kind != "machine":
            return
        if wanted is OnMachine.HANG_UP:
            raise MachineAnswered(
                f"an answering machine took the call ({heard.words}).",
                remedy="Call again later, or leave a message with --on-machine after-beep.",
            )
        note("An answering machine; the message begins after its beep.")
