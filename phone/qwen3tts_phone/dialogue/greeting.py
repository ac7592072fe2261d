"""Who takes a call of ours, a person or a machine, and when it is time to speak."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Literal, Protocol

from qwen3tts_phone.audio.answering import Answerer, AnsweringSettings
from qwen3tts_phone.call.events import HeardFrame
from qwen3tts_phone.dialling.retries import who_answered
from qwen3tts_phone.errors import MachineAnswered
from qwen3tts_phone.facts import CallFacts

OnMachine = Literal["speak", "hang-up", "after-beep"]
"""Where an answering machine takes a call: speak all the same, and listen for none; hang up; leave
the message after its beep. With the last two the words wait for a person's greeting, too."""


class GreetedCall(Protocol):
    """What of a `Call` is needed."""

    @property
    def facts(self) -> CallFacts:
        """What is known of it."""

    @property
    def audio(self) -> Callable[..., AsyncGenerator[HeardFrame, None]]:
        """What the far end says."""


async def await_greeting(
    call: GreetedCall,
    wanted: OnMachine,
    settings: AnsweringSettings | None = None,
    told: Callable[[Answerer], None] = lambda heard: None,
) -> None:
    """Listen to who answers, and return when it is time to speak.

    With a person that is after the greeting, with a machine when it records. ``told`` is given who
    it is, the moment it is known.

    Raises:
        MachineAnswered: it is one, and it gets no message.
    """
    async for heard in who_answered(call.audio(steady=True), settings):
        if not isinstance(heard, Answerer):
            return
        call.facts.answered_by = heard.kind
        told(heard)
        if heard.kind != "machine":
            return
        if wanted == "hang-up":
            raise MachineAnswered(
                f"an answering machine took the call ({heard.words}).",
                remedy="Call again later, or leave a message after its beep (after-beep).",
            )
