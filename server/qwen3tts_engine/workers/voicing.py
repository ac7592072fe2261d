"""One job, from the pool to the engine's chunks, said again where its worker is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Protocol

from qwen3tts_engine.base import PcmChunk
from qwen3tts_engine.playout import PlayoutLead
from qwen3tts_engine.workers.messages import Say, Word
from qwen3tts_engine.workers.pool import Pool
from qwen3tts_engine.workers.process import Outcome, Saying
from qwen3tts_wire.errors import EngineFailed, SpeechError


class Hearing(Protocol):
    """One request's sound and words, from what workers say to what the engine gives out."""

    def sound(self, pcm: bytes, words: tuple[Word, ...]) -> PcmChunk | None:
        """Take what a worker said."""
        ...

    def again(self) -> None:
        """The job will be said from its start once more."""
        ...


async def voiced(
    pool: Pool,
    say: Say,
    hearing: Hearing,
    *,
    lead: PlayoutLead | None,
    attempts: int,
    refused: Callable[[Saying], SpeechError],
) -> AsyncGenerator[PcmChunk, None]:
    """Have a job said, and give out what is heard of it.

    Args:
        pool: the workers.
        say: the job.
        hearing: what makes chunks of it.
        lead: the context's sound ahead of its listener.
        attempts: how often it is begun before the loss of its workers is an error; workers that
            were lost before they said anything of it are counted for themselves.
        refused: the error for a job that a worker refused.

    Raises:
        EngineFailed: its workers were lost, or the pool was closed.
        SpeechError: what ``refused`` returns.
    """
    lost = dict.fromkeys((True, False), 0)  # by whether they had begun with it
    while True:
        begun = False
        saying = await pool.say(say, lead)
        try:
            while (sound := await saying.next()) is not None:
                begun = True
                if lead is not None and lead.unpaced:
                    async with pool.turn:
                        await asyncio.sleep(0)
                if (chunk := hearing.sound(sound.pcm, sound.words)) is not None:
                    yield chunk
        finally:
            saying.stop()
        if saying.outcome is Outcome.SAID:
            return
        if pool.closed:
            raise EngineFailed("The engine was closed while it spoke.")
        if saying.outcome is Outcome.REFUSED:
            raise refused(saying)
        # A worker that had died before it was given the text says nothing about the text.
        lost[begun] += 1
        if lost[begun] >= attempts:
            raise EngineFailed(
                f"{sum(lost.values())} speech workers were lost on the same text: {saying.reason}.",
                remedy="Send it again, in other words if it fails again.",
            )
        hearing.again()
