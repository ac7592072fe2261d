"""Carriers at our WebSocket port: signatures, passes, start answers, subprotocols; real sockets."""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import AsyncIterator

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from qwen3tts_phone.streams.carriers.jambonz import jambonz
from qwen3tts_phone.streams.carriers.plivo import plivo
from qwen3tts_phone.streams.carriers.twilio import twilio
from qwen3tts_phone.streams.server import Streams
from qwen3tts_phone.streams.settings import StreamSettings
from qwen3tts_speech.link import SpeechLink
from tests.streams.carrier_fixtures import first_messages

pytestmark = pytest.mark.network

NOWHERE = "ws://127.0.0.1:1/v1/speech"
PUBLIC = "https://voice.example.com/calls"
TOKEN = "auth-token"


@pytest.fixture
async def streams() -> AsyncIterator[Streams]:
    link = SpeechLink(NOWHERE)
    kinds = (
        twilio(auth_token=TOKEN, account_sid="", public_url=PUBLIC),
        plivo(auth_token=TOKEN, auth_id="", public_url=PUBLIC),
        jambonz(user="u", password="p"),
    )
    settings = StreamSettings(kinds=kinds, server_url=NOWHERE)
    async with Streams(settings, link=link) as streams:
        yield streams
    await link.close()


def signature(url: str) -> dict[str, str]:
    digest = hmac.digest(TOKEN.encode(), url.encode(), "sha1")
    return {"X-Twilio-Signature": base64.b64encode(digest).decode()}


async def refused(url: str, **options: object) -> int:
    with pytest.raises(InvalidStatus) as caught:
        async with connect(url, **options):  # type: ignore[arg-type]
            pass
    return caught.value.response.status_code


async def test_a_signed_stream_becomes_a_call_and_another_is_refused(streams: Streams) -> None:
    url = f"ws://127.0.0.1:{streams.port}/twilio"
    assert await refused(url) == 403
    wrong = signature("wss://voice.example.com/calls/plivo")
    assert await refused(url, additional_headers=wrong) == 403
    good = signature("wss://voice.example.com/calls/twilio")
    async with connect(url, additional_headers=good) as socket:
        for message in first_messages("twilio"):
            await socket.send(message)
        call = await anext(streams.incoming())
        assert call.id == "CAXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX"
        assert call.remote_uri == "+15550100"
        await call.answer()
        await call.hangup()


async def test_the_start_answer_is_given_to_the_carrier_and_leads_to_a_call(
    streams: Streams,
) -> None:
    path = "/plivo/answer?CallUUID=1&From=15550100"
    url = f"http://127.0.0.1:{streams.port}{path}"
    nonce = "n1"
    text = f"{PUBLIC}/plivo/answer?CallUUID=1&From=15550100.{nonce}"
    digest = hmac.digest(TOKEN.encode(), text.encode(), "sha256")
    headers = {
        "X-Plivo-Signature-V3": base64.b64encode(digest).decode(),
        "X-Plivo-Signature-V3-Nonce": nonce,
    }
    async with httpx.AsyncClient() as http:
        assert (await http.get(url)).status_code == 403
        assert (await http.get(url + "9", headers=headers)).status_code == 403
        answer = await http.get(url, headers=headers)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/xml"
    (passed,) = re.findall(r"wss://voice\.example\.com/calls(/plivo/pass/[^<]+)<", answer.text)
    assert "from=15550100" in answer.text
    here = f"ws://127.0.0.1:{streams.port}"
    assert await refused(f"{here}/plivo") == 403
    assert await refused(here + passed[:-1]) == 403
    async with connect(here + passed) as socket:
        for message in first_messages("plivo"):
            await socket.send(message)
        call = await anext(streams.incoming())
        assert call.line == "plivo"
        await call.hangup()


async def test_jambonz_agrees_on_its_subprotocol_and_shows_its_password(streams: Streams) -> None:
    url = f"ws://127.0.0.1:{streams.port}/jambonz"
    wanted = [Subprotocol("audio.jambonz.org")]
    assert await refused(url, subprotocols=wanted) == 403
    basic = {"Authorization": "Basic " + base64.b64encode(b"u:p").decode()}
    async with connect(url, subprotocols=wanted, additional_headers=basic) as socket:
        assert socket.subprotocol == "audio.jambonz.org"
        for message in first_messages("jambonz"):
            await socket.send(message)
        call = await anext(streams.incoming())
        await call.answer()
        await call.hangup()
        assert [each async for each in socket][-1] == '{"type":"disconnect"}'
