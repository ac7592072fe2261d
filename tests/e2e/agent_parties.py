"""An agent on the telephone and somebody who calls it, for the tests: real SIP, RTP and speech."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwen3tts_agent.agent import Agent
from qwen3tts_agent.conversation import Conversation
from qwen3tts_agent.recognition.callback import CallbackRecogniser
from qwen3tts_agent.turn_record import TurnRecord
from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone.call.call import Call
from qwen3tts_phone.phone import Phone, PhoneSettings
from qwen3tts_server.run import running_server
from tests.agent.endpoint import Answer, ChatEndpoint
from tests.audio import reference_8k
from tests.e2e.parties import Ear

WITHIN_S = 60.0
"""No conversation of the tests takes so long."""


async def spoken(text: str) -> NDArray[np.int16]:
    """A text as the embedded voice says it, 8 kHz."""
    engine = EmbeddedEngine()
    await engine.start()
    try:
        request = SynthesisRequest(text, final=True)
        pcm = b"".join([chunk.pcm async for chunk in engine.synthesize(request)])
    finally:
        await engine.close()
    return reference_8k(np.frombuffer(pcm, "<i2").astype(np.int16))


class Script:
    """A recogniser that understands these texts, one a turn; nothing after the last."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = list(texts)
        self.seconds: list[float] = []
        """Of each turn that it was given."""
        self.recogniser = CallbackRecogniser(self._recognise)

    async def _recognise(self, samples: NDArray[np.int16], rate_hz: int) -> str:
        self.seconds.append(len(samples) / rate_hz)
        return self._texts.pop(0) if self._texts else ""


@dataclass
class Talking:
    """A conversation under way, seen from both sides."""

    agent: Agent
    endpoint: ChatEndpoint
    phone: Phone
    """The agent's."""
    caller: Call
    """The caller's side of the call."""
    ours: Call
    """The agent's side."""
    ear: Ear
    """What the caller hears."""
    script: Script
    conversing: asyncio.Task[Conversation]
    conversation: Conversation | None = None
    """Known once the first turn is over."""
    done: list[TurnRecord] = field(default_factory=list)
    """The turns that are over."""
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def turns(self, count: int) -> list[TurnRecord]:
        """Wait until so many turns are over."""
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.done) >= count)
        return self.done

    async def ended(self) -> Conversation:
        """The caller hangs up; the conversation."""
        await self.caller.hangup()
        return await self.conversing


@asynccontextmanager
async def talking(
    *answers: Answer, understood: Sequence[str] = (), **options: Any
) -> AsyncIterator[Talking]:
    """A caller on the line with an agent whose model gives these answers.

    ``understood``: what the recogniser makes of the caller's turns; ``options``: of `Agent`.
    """
    script = Script(understood)
    async with (
        asyncio.timeout(WITHIN_S),
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        ChatEndpoint(*answers) as endpoint,
        Phone(PhoneSettings(server_url=server.url)) as phone,
        Phone(PhoneSettings(server_url=server.url)) as theirs,
    ):
        there: list[Talking] = []
        told: set[asyncio.Task[None]] = set()

        async def tell(record: TurnRecord) -> None:
            async with there[0].changed:
                there[0].done.append(record)
                there[0].changed.notify_all()

        def on_turn(conversation: Conversation, record: TurnRecord) -> None:
            there[0].conversation = conversation
            told.add(asyncio.create_task(tell(record)))

        agent = Agent(endpoint.url, stt=script.recogniser, on_turn=on_turn, **options)
        async with agent:
            caller = await theirs.dial(phone.uri)
            ours = await anext(phone.incoming())
            conversing = asyncio.create_task(agent.answer(ours))
            await caller.answered()
            there.append(
                Talking(agent, endpoint, phone, caller, ours, Ear(caller), script, conversing)
            )
            try:
                yield there[0]
            finally:
                await caller.hangup()
                await asyncio.wait([conversing])
                await asyncio.gather(*told)
