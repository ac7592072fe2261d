"""Calls of a phone that are redirected (3xx), against the rules of its guard."""

from __future__ import annotations

import asyncio

import pytest

from qwen3tts_phone.dialling.guard import GuardSettings
from qwen3tts_phone.errors import CallRefused
from qwen3tts_phone.phone import Phone, PhoneSettings
from qwen3tts_phone.sip.call.incoming import IncomingCall
from qwen3tts_phone.sip.core.settings import SipSettings
from qwen3tts_phone.sip.endpoint import SipEndpoint
from qwen3tts_phone.sip.sip_call import SipCall
from qwen3tts_speech.link import SpeechLink
from tests.sip.phones import QUICK, answer_one

pytestmark = pytest.mark.network


def phone_that_follows(guard: GuardSettings) -> Phone:
    settings = PhoneSettings(sip=SipSettings(timers=QUICK, follow_redirects=True), guard=guard)
    return Phone(settings, link=SpeechLink("ws://127.0.0.1:1/v1/speech"))


def send_on(server: SipEndpoint, call: SipCall, status: int, contact: str) -> None:
    """Answer a call with a 3xx."""
    core = call.core
    assert isinstance(core, IncomingCall)
    response = core.response(status, None)
    response.headers.remove("Contact")
    response.headers.add("Contact", contact)
    core.transaction.send_response(response, server.now())
    server.flush()


@pytest.mark.parametrize(
    "limits",
    [
        GuardSettings(max_concurrent=1),
        GuardSettings(max_calls_per_minute=1),
        GuardSettings(max_calls_per_hour=1),
    ],
    ids=["concurrent", "minute", "hour"],
)
async def test_the_last_call_that_the_limits_permit_follows_its_redirection(
    limits: GuardSettings,
) -> None:
    async with (
        asyncio.timeout(20),
        SipEndpoint(SipSettings(timers=QUICK)) as server,
        SipEndpoint(SipSettings(timers=QUICK)) as callee,
        phone_that_follows(limits) as phone,
    ):
        call = await phone.dial(f"sip:bob@127.0.0.1:{server.port}")
        contact = f"<sip:bob@127.0.0.1:{callee.port}>"
        send_on(server, await anext(server.incoming), 302, contact)
        async with asyncio.TaskGroup() as group:
            group.create_task(answered_there(callee))
            await call.answered()
            assert call.remote_uri == f"sip:bob@127.0.0.1:{callee.port}"
            await call.hangup()


async def answered_there(callee: SipEndpoint) -> None:
    await answer_one(await anext(callee.incoming))


@pytest.mark.parametrize("status", [302, 305])
async def test_an_address_that_is_not_allowed_is_not_called_by_a_redirection(status: int) -> None:
    async with (
        asyncio.timeout(20),
        SipEndpoint(SipSettings(timers=QUICK)) as server,
        SipEndpoint(SipSettings(timers=QUICK)) as stranger,
        phone_that_follows(
            GuardSettings(allowed=(f"bob@127.0.0.1:{server.port}",), max_concurrent=2)
        ) as phone,
    ):
        call = await phone.dial(f"sip:bob@127.0.0.1:{server.port}")
        contact = f"<sip:bob@127.0.0.1:{stranger.port};lr>"
        send_on(server, await anext(server.incoming), status, contact)
        with pytest.raises(CallRefused, match="not among the numbers and addresses"):
            await call.answered()
        assert not stranger.agent.calls
