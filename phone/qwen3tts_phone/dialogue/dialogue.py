"""The part of a `Call` that asks its far end, and finds out who has taken it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from qwen3tts_phone.audio.answering import Answerer, AnsweringSettings
from qwen3tts_phone.call.events import AnswererHeard
from qwen3tts_phone.dialogue.asking import Question, ask
from qwen3tts_phone.dialogue.gathered import Gathered
from qwen3tts_phone.dialogue.greeting import OnMachine, await_greeting
from qwen3tts_phone.errors import MachineAnswered

if TYPE_CHECKING:
    from qwen3tts_phone.call.call import Call
    from qwen3tts_phone.recognise.base import Recognise, Recogniser


class Dialogue:
    """For `Call` alone, which has the rest."""

    _greeting: asyncio.Task[None] | None = None
    """Listens to who answers; None = nobody does."""

    async def ask(
        self,
        question: str,
        *,
        keys: int | None = None,
        hear: Recogniser | Recognise | str | None = None,
        until: str = "#",
        first_s: float = 8.0,
        pause_s: float = 3.0,
        tries: int = 1,
        again: str = "",
    ) -> Gathered:
        """Say a question and wait for its answer: keys, or with ``hear`` words as well.

        The first key, or the far end's voice, silences the question. Keys that were pressed before
        it count, and it is not said then. On a call of ours that still rings it waits for the
        answer of the phone. While an `Agent` talks on the call, it asks; this is for other calls.

        Args:
            question: what is said.
            keys: most keys of an answer, which is complete with the last; None = any number, 0 =
                keys are no answer.
            hear: makes text of what is said, as in :meth:`Call.hear`; None = keys alone.
            until: keys that complete the answer and are no part of it; empty = none.
            first_s: seconds after the question's end within which the answer must begin.
            pause_s: seconds after a key within which the next one must come.
            tries: how often it is asked in all where nothing comes, or nothing is understood.
            again: said from the second time on; empty = the question.

        Raises:
            ValueError: a bound that makes no sense; its text begins with the name.
            WrongState: the call is over, or came in and is not answered.
            SpeechError: the voice failed; as :meth:`Call.say`.
        """
        asked = Question(question, keys, until, first_s, pause_s, tries, again)
        call = cast("Call", self)
        await self._audible()
        return await ask(call, asked, hear)

    def screen(self, wanted: OnMachine, settings: AnsweringSettings | None = None) -> None:
        """Listen to who answers this call of ours, before anything is said. For `Phone`."""
        self._greeting = asyncio.create_task(self._greeted(wanted, settings), name="greeting")
        self._greeting.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _audible(self) -> None:
        """Wait for the answer of a call of ours that still rings, and for a greeting."""
        call = cast("Call", self)
        body = call._body
        rings = call.direction == "out" and not (body.may_speak or body.over.is_set())
        if rings or self._greeting is not None:
            await call.answered()

    async def _greeted(self, wanted: OnMachine, settings: AnsweringSettings | None) -> None:
        """Return when it is time to speak; a machine that gets no message is hung up on."""
        call = cast("Call", self)

        def tell(heard: Answerer) -> None:
            call._body.tell(AnswererHeard(call.clock.now(), heard.kind, heard.words))

        await asyncio.shield(call._body.up)
        try:
            await await_greeting(call, wanted, settings, tell)
        except MachineAnswered:
            await call.hangup()
            raise
