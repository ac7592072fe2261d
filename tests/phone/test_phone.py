"""A phone that speaks over somebody else's connection."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone.call import control
from qwen3tts_phone.media import admission
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_phone.media.reports import MediaLoad
from qwen3tts_phone.media.types import RemoteMedia
from qwen3tts_phone.phone import Account, Phone, PhoneSettings
from qwen3tts_phone.sdp.session import SdpSession
from qwen3tts_phone.sip.endpoint import SipEndpoint
from qwen3tts_phone.sip.gate import BUSY_S
from qwen3tts_phone.sip.message.message import Request, Response
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.sip_call import SipCall
from qwen3tts_server.run import running_server
from qwen3tts_speech.link import SpeechLink
from qwen3tts_wire.errors import ConnectionLost

pytestmark = pytest.mark.network

NO_SERVER = "ws://127.0.0.1:1/v1/speech"


async def test_with_a_shared_link_it_is_up_while_no_server_is_there() -> None:
    async with Phone(link=SpeechLink(NO_SERVER)) as phone:
        assert phone.uri.startswith("sip:agent@127.0.0.1:")
    with pytest.raises(ConnectionLost):
        await Phone(PhoneSettings(server_url=NO_SERVER)).__aenter__()


async def test_a_shared_link_stays_open_when_the_phone_is_closed() -> None:
    async with running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server:
        link = SpeechLink(server.url)
        async with Phone(link=link) as phone:
            assert phone.link is link
        assert not (await link.client()).closed
        await link.close()


async def test_a_host_that_is_not_the_accounts_is_called_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[Account | None] = []
    place = SipEndpoint.place

    async def placing(self: SipEndpoint, *arguments: Any, **options: Any) -> SipCall:
        used.append(arguments[2])
        return await place(self, *arguments, **options)

    monkeypatch.setattr(SipEndpoint, "place", placing)
    link = SpeechLink(NO_SERVER)
    account = Account("sip:127.0.0.1:1", "200", "secret", register=False)
    settings = PhoneSettings(account=account)
    async with Phone(settings, link=link) as agent, Phone(link=link) as other:
        for with_account in (True, False):
            call = await agent.dial(other.uri, with_account=with_account)
            async with asyncio.timeout(10):
                theirs = await anext(other.incoming())
                await theirs.reject()
                await call.ended()
            assert ("sip:200@" in theirs.remote_uri) is with_account
    assert used == [account, None]


async def test_a_call_has_a_speaker_between_the_answer_and_the_end() -> None:
    link = SpeechLink(NO_SERVER)
    async with Phone(link=link) as agent, Phone(link=link) as caller:
        theirs = await caller.dial(agent.uri)
        async with asyncio.timeout(10):
            ours = await anext(agent.incoming())
            speakers = [ours.speaker]
            await ours.answer()
            await theirs.answered()
            speakers.append(ours.speaker)
            await theirs.hangup()
            await ours.ended()
            speakers.append(ours.speaker)
    before, meanwhile, after = speakers
    assert before is after is None
    assert meanwhile is not None
    assert meanwhile.link is link


async def test_a_caller_from_whom_nothing_comes_gets_no_more_sound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever forges the source of an INVITE must not have a third party flooded with our RTP."""
    monkeypatch.setattr(control, "CALLER_WITHIN_S", 0.0)
    sends: asyncio.Queue[bool] = asyncio.Queue()
    update = MediaLeg.update

    async def updating(self: MediaLeg, remote: RemoteMedia) -> None:
        await update(self, remote)
        sends.put_nowait(remote.send)

    monkeypatch.setattr(MediaLeg, "update", updating)
    kept: list[tuple[Request | Response, Hop]] = []
    link = SpeechLink(NO_SERVER)
    async with Phone(link=link) as agent, SipEndpoint() as caller:
        layer = caller.agent.layer
        monkeypatch.setattr(layer, "send_statelessly", lambda *sent: kept.append(sent))
        await caller.place(agent.uri, SdpSession("127.0.0.1", 9).offer())
        async with asyncio.timeout(10):
            ours = await anext(agent.incoming())
            answering = asyncio.ensure_future(ours.answer())
            assert await sends.get() is False
            assert not answering.done()
            monkeypatch.undo()
            monkeypatch.setattr(MediaLeg, "update", updating)
            layer.send_statelessly(*kept[0])
            caller.flush()
            await answering
            assert await sends.get() is True
            await ours.hangup()


async def test_a_setting_says_whose_descriptions_of_third_hosts_are_believed() -> None:
    link = SpeechLink(NO_SERVER)
    for setting, server, stranger in [
        ("pause", False, False),
        ("trusted", True, False),
        ("send", True, True),
    ]:
        account = Account("sip:192.0.2.5", "200", "secret", register=False)
        settings = PhoneSettings(account=account, third_hosts=setting)
        async with Phone(settings, link=link) as phone:
            assert phone.trusts_media_of("192.0.2.5") is server
            assert phone.trusts_media_of("203.0.113.9") is stranger
            assert phone.trusts_media_of("127.0.0.1") is server


async def test_a_phone_that_cannot_pace_another_call_refuses_it_with_503_and_retry_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "LEAST_CALLS", 0)
    link = SpeechLink(NO_SERVER)
    async with Phone(link=link) as agent, SipEndpoint() as caller:
        for second in range(1, 4):  # reports of a media process that is at its end
            agent._media.process.on_load(MediaLoad(10**9 * second, 10**9 * second, calls=60))
        call = await caller.place(agent.uri, SdpSession("127.0.0.1", 9).offer())
        async with asyncio.timeout(10):
            ended = await call.wait_ended()
        assert (ended.status, ended.headers["Retry-After"]) == (503, str(BUSY_S))
        assert not agent.calls
