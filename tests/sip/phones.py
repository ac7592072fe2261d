"""Endpoints that call and answer on 127.0.0.1."""

from __future__ import annotations

import asyncio

from qwen3tts_phone.sdp.session import SdpSession
from qwen3tts_phone.sip import (
    CallState,
    ReinviteReceived,
    SipCall,
    SipEndpoint,
    Timers,
)

QUICK = Timers(t1=0.05, t2=0.2, t4=0.2)


def session(port: int = 40000) -> SdpSession:
    return SdpSession("127.0.0.1", port)


async def answer_all(endpoint: SipEndpoint, seen: list[SipCall]) -> None:
    """Answer each call and each change of it, until cancelled."""
    async with asyncio.TaskGroup() as group:
        async for call in endpoint.incoming:
            seen.append(call)
            group.create_task(answer_one(call))


async def answer_one(call: SipCall) -> None:
    ours = session(50000)
    assert call.offer is not None
    await call.answer(ours.answer(call.offer)[0])
    async for event in call.events:
        if isinstance(event, ReinviteReceived) and event.offer is not None:
            event.respond(ours.answer(event.offer)[0])


async def good_call(endpoint: SipEndpoint, to: str) -> None:
    """A call that is set up, held, resumed and ended."""
    ours = session()
    async with asyncio.timeout(10):
        call = await endpoint.place(to, ours.offer())
        answer = await call.answered()
        assert answer is not None
        assert ours.accept(answer).port == 50000
        held = await call.hold(ours)
        assert not held.receive
        resumed = await call.resume(ours)
        assert resumed.receive
        await call.bye()
    assert call.state is CallState.ENDED
