"""The ports that streams come to, with Asterisk's side on real sockets."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from qwen3tts_phone.errors import BadCertificate, CalleeUnreachable, CallError, PortBusy
from qwen3tts_phone.streams.call import StreamCall
from qwen3tts_phone.streams.carriers import CARRIERS as TABLE
from qwen3tts_phone.streams.carriers import carrier_kind
from qwen3tts_phone.streams.carriers.adapter import Handshake, Refused, StreamKind
from qwen3tts_phone.streams.server import Streams
from qwen3tts_wire.errors import BadRequest
from tests.fakes import settle
from tests.sip.certificates import Authority
from tests.speech.fakes import FakeClient
from tests.streams.asterisk_side import MediaSide, audiosocket, media
from tests.streams.calls import fake_link
from tests.streams.far_end import PlainAdapter

pytestmark = pytest.mark.network


class Served:
    def __init__(self, streams: Streams, client: FakeClient) -> None:
        self.streams, self.client = streams, client
        self._calls = streams.incoming()

    async def call(self) -> StreamCall:
        async with asyncio.timeout(20):
            return await anext(self._calls)

    async def made(self, ms: int, *, done: bool = True) -> None:
        """Let the speech server synthesise this part of the utterance."""
        async with asyncio.timeout(20):
            while not self.client.contexts:
                await settle(1)
        context = self.client.contexts[-1]
        context.start()
        context.sound(ms)
        if done:
            context.done()


@asynccontextmanager
async def serving(*kinds: Any, **settings: Any) -> AsyncIterator[Served]:
    client = FakeClient()
    streams = Streams(
        link=fake_link(client), kinds=kinds or ("audiosocket", "asterisk"), **settings
    )
    async with streams:
        yield Served(streams, client)


# --- AudioSocket


async def test_a_call_over_audiosocket_from_its_uuid_to_its_hang_up() -> None:
    async with serving("audiosocket") as here, audiosocket(here.streams.audiosocket_port) as far:
        far.start()
        far.speak()
        call = await here.call()
        assert (call.id, call.line, call.facts.transport) == (str(far.id), "audiosocket", "tcp")
        await call.answer()
        heard = asyncio.ensure_future(anext(call.audio()))
        far.speak(3)
        assert (await heard).rate_hz == 8000
        saying = asyncio.ensure_future(call.say("Hello."))
        await here.made(100)
        assert (await saying).position == 2400
        far.send(0x03, b"5")
        assert await call.dtmf.collect(most=1) == "5"
        await call.hangup()
        await far.until(far.closed.is_set)
        assert far.hung_up
        assert set(far.kinds) == {0x00, 0x10}


async def test_24_khz_goes_straight_through_sample_by_sample() -> None:
    async with serving("audiosocket") as here, audiosocket(here.streams.audiosocket_port) as far:
        far.start()
        far.speak(kind=0x13, size=960)
        call = await here.call()
        await call.answer()
        saying = asyncio.ensure_future(call.say("Hello."))
        await here.made(200)
        await saying
        await call.hangup()
        await far.until(far.closed.is_set)
        assert set(far.kinds) == {0x00, 0x13}
        samples = np.frombuffer(bytes(far.heard), "<i2")
        begun = int(np.argmax(samples != 0))
        assert (samples[begun : begun + 24 * 200] == 1000).all()


async def test_silence_flows_while_nothing_is_said() -> None:
    async with serving("audiosocket") as here, audiosocket(here.streams.audiosocket_port) as far:
        far.start()
        far.speak()
        call = await here.call()
        await call.answer()
        await far.until(lambda: len(far.heard) >= 10 * 320)
        assert not any(far.heard)


async def test_asterisk_that_closes_has_hung_up() -> None:
    async with serving("audiosocket") as here:
        async with audiosocket(here.streams.audiosocket_port) as far:
            far.start()
            far.speak()
            call = await here.call()
            await call.answer()
        await call.ended()
        assert call.detail_record is not None
        assert call.detail_record.values["end"]["by"] == "remote"
        assert call.detail_record.values["end"]["error"] is None


async def test_garbage_over_tcp_ends_without_harm() -> None:
    async with serving("audiosocket", start_s=0.5) as here:
        async with audiosocket(here.streams.audiosocket_port) as far:
            far._writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
            await far.until(far.closed.is_set)
        async with audiosocket(here.streams.audiosocket_port) as far:
            far.start()
            far.speak()
            assert (await here.call()).id == str(far.id)


# --- chan_websocket


@pytest.mark.parametrize("as_json", [True, False])
async def test_a_call_over_chan_websocket_in_both_forms(as_json: bool) -> None:
    async with serving("asterisk") as here, media(here.streams.port, as_json=as_json) as far:
        assert far.connection.subprotocol == "media"
        await far.start()
        call = await here.call()
        assert (call.id, call.stream_id, call.line) == (
            "pbx-1.7",
            "connection-1",
            "chan_websocket",
        )
        await call.answer()
        await far.speak(2)
        await far.event("DTMF_END", digit="7")
        assert await call.dtmf.collect(most=1) == "7"
        saying = asyncio.ensure_future(call.say("Hello."))
        await here.made(300)
        assert (await saying).position == 24 * 300
        assert (np.frombuffer(bytes(far.heard), "<i2")[: 24 * 300] == 1000).all()
        assert call.sink is not None
        assert call.sink.marks.returned_marks > 1
        await call.hangup()
        await far.until(far.closed.is_set)
        assert far.commands[0] == "ANSWER"
        assert far.commands[-1] == "HANGUP"


async def test_an_interruption_flushes_asterisks_queue_and_nothing_follows() -> None:
    async with serving("asterisk") as here, media(here.streams.port) as far:
        await far.start()
        call = await here.call()
        await call.answer()
        utterance = call.speak("A long story.")
        await here.made(20_000)
        await far.until(lambda: len(far.heard) > 960 * 30)
        call.interrupt()
        await far.until(lambda: "FLUSH_MEDIA" in far.commands)
        heard = len(far.heard)
        spoken = await utterance.spoken()
        assert spoken.interrupted
        await far.event("DTMF_END", digit="1")
        await call.dtmf.collect(most=1)
        assert len(far.heard) == heard
        assert far.most_queued <= 960 * 50 * 0.4


async def test_we_connect_to_asterisks_own_http_server() -> None:
    sides: asyncio.Queue[MediaSide] = asyncio.Queue()

    async def accept(connection: Any) -> None:
        side = MediaSide(connection, as_json=True, encoding="ulaw", size=160)
        await side.start()
        sides.put_nowait(side)
        await side.closed.wait()
        await side.close()

    async with (
        serve(accept, "127.0.0.1", 0, subprotocols=[Subprotocol("media")]) as asterisk,
        serving("asterisk") as here,
    ):
        port = next(iter(asterisk.sockets)).getsockname()[1]
        call = await here.streams.connect(f"ws://127.0.0.1:{port}/media/abc")
        far = await sides.get()
        assert far.connection.request.path == "/media/abc"
        assert far.connection.subprotocol == "media"
        assert call.codec == "PCMU"
        await call.answer()
        await call.hangup()
        await far.until(far.closed.is_set)


async def test_where_nothing_answers_the_connecting_says_so() -> None:
    async with serving("asterisk") as here:
        with pytest.raises(CalleeUnreachable):
            await here.streams.connect("ws://127.0.0.1:9/media/abc")
        with pytest.raises(CallError):
            await here.streams.connect("http://127.0.0.1/x")
        with pytest.raises(CallError):
            await here.streams.connect(f"ws://127.0.0.1:{here.streams.port}/nowhere")


async def test_a_far_end_that_is_connected_to_and_says_nothing_is_given_up() -> None:
    async def mute(connection: Any) -> None:
        await connection.wait_closed()

    async with serve(mute, "127.0.0.1", 0) as far, serving("asterisk", start_s=0.2) as here:
        port = next(iter(far.sockets)).getsockname()[1]
        with pytest.raises(CalleeUnreachable, match="did not start"):
            await here.streams.connect(f"ws://127.0.0.1:{port}/media/abc")


async def test_a_format_that_we_cannot_speak_is_hung_up_on() -> None:
    async with serving("asterisk") as here, media(here.streams.port, encoding="speex") as far:
        await far.start()
        await far.until(far.closed.is_set)
        assert far.commands == ["HANGUP"]


# --- who may come in


async def status_of(port: int, path: str, **options: Any) -> int:
    with pytest.raises(InvalidStatus) as refused:
        await connect(f"ws://127.0.0.1:{port}{path}", proxy=None, **options)
    return refused.value.response.status_code


async def test_unknown_paths_are_not_found() -> None:
    async with serving("asterisk") as here:
        assert await status_of(here.streams.port, "/") == 404
        assert await status_of(here.streams.port, "/twilio") == 404


async def test_with_a_token_nobody_comes_in_without() -> None:
    async with serving("asterisk", token="secret") as here:
        port = here.streams.port
        assert await status_of(port, "/asterisk") == 401
        assert await status_of(port, "/asterisk?token=wrong") == 401
        bearer, basic = {"Authorization": "Bearer secret"}, {"Authorization": "Basic dTpzZWNyZXQ="}
        async with media(port, path="/asterisk?token=secret"):
            pass
        async with media(port, additional_headers=bearer):
            pass
        async with media(port, additional_headers=basic):
            pass


async def test_not_even_the_librarys_own_log_shows_a_token(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG):
        async with serving("asterisk", token="not-for-the-log") as here:
            port = here.streams.port
            caplog.clear()
            async with media(port, path="/asterisk?token=not-for-the-log") as far:
                await far.start()
                await here.call()
    theirs = [each for each in caplog.records if not each.name.startswith("websockets.client")]
    assert not [each for each in theirs if "not-for-the-log" in each.getMessage()]


async def test_a_webhook_by_post_is_told_what_is_wrong(caplog: pytest.LogCaptureFixture) -> None:
    async with serving("asterisk") as here:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.streams.port)
        writer.write(b"POST /asterisk/answer HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na")
        assert (await reader.read()).startswith(b"HTTP/1.1 405 ")
        writer.close()
    assert "set its method to GET" in caplog.text


async def test_addresses_that_are_not_allowed_stay_outside() -> None:
    async with serving(allow=("192.0.2.0/24",)) as here:
        assert await status_of(here.streams.port, "/asterisk") == 403
        async with audiosocket(here.streams.audiosocket_port) as far:
            await far.until(far.closed.is_set)


async def test_no_more_calls_than_allowed() -> None:
    async with serving(max_calls=1) as here, audiosocket(here.streams.audiosocket_port) as far:
        far.start()
        far.speak()
        call = await here.call()
        assert await status_of(here.streams.port, "/asterisk") == 503
        await call.hangup()
        await here.streams.drained()
        async with media(here.streams.port):
            pass


async def test_no_more_calls_of_one_address_than_allowed() -> None:
    async with serving(max_per_address=1) as here, media(here.streams.port) as far:
        await far.start()
        await here.call()
        assert await status_of(here.streams.port, "/asterisk") == 429


CARRIERS = {
    "twilio": {"TWILIO_AUTH_TOKEN": "k"},
    "telnyx": {"TELNYX_STREAM_TOKEN": "k"},
    "plivo": {"PLIVO_AUTH_TOKEN": "k"},
    "exotel": {"EXOTEL_STREAM_USER": "u", "EXOTEL_STREAM_PASSWORD": "p"},
    "vonage": {"VONAGE_SIGNATURE_SECRET": "k"},
    "jambonz": {"JAMBONZ_USER": "u", "JAMBONZ_PASSWORD": "p"},
}


def test_every_carrier_is_among_those_that_need_a_key() -> None:
    own = {"audiosocket", "asterisk", "chan_websocket"}
    assert set(TABLE) - own == set(CARRIERS)
    assert {name for name in TABLE if carrier_kind(name).needs_key} == set(CARRIERS)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("name", CARRIERS)
async def test_a_carrier_without_a_key_is_not_served_although_the_port_is_this_machines(
    name: str, host: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for keys in CARRIERS.values():
        for variable in keys:
            monkeypatch.delenv(variable, raising=False)
    monkeypatch.delenv("TELNYX_PUBLIC_KEY", raising=False)
    with pytest.raises(BadRequest, match=f"{name} has no key") as caught:
        async with serving("audiosocket", name, host=host):
            pass
    assert all(variable in caught.value.remedy for variable in CARRIERS[name])
    with pytest.raises(BadRequest):
        async with serving(name, host=host, allow=("127.0.0.1",)):
            pass
    async with serving(name, host=host, token="secret"):
        pass
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert not warnings or host != "127.0.0.1"
    async with serving(name, host=host, insecure=True):
        assert "without a key" in caplog.text
    for variable, value in CARRIERS[name].items():
        monkeypatch.setenv(variable, value)
    async with serving(name, host=host):
        pass


async def test_a_kinds_own_check_is_asked() -> None:
    def check(handshake: Handshake) -> None:
        if handshake.headers.get("x-signature") != "right":
            raise Refused(403, "the signature is wrong")

    kind = StreamKind("plain", lambda handshake: PlainAdapter(), check=check)
    async with serving(kind) as here:
        assert await status_of(here.streams.port, "/plain") == 403
        headers = {"X-Signature": "right"}
        url = f"ws://127.0.0.1:{here.streams.port}/plain"
        async with connect(url, proxy=None, additional_headers=headers) as far:
            await far.send("start one")
            assert (await here.call()).id == "one"


async def test_a_start_answer_is_served_for_a_webhook() -> None:
    def answer(handshake: Handshake) -> tuple[str, str]:
        return "text/xml", f"<Response host='{handshake.headers['host']}'/>"

    kind = StreamKind("plain", lambda handshake: PlainAdapter(), answer=answer)
    async with serving(kind, "asterisk", token="secret") as here:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.streams.port)
        writer.write(b"GET /plain/answer?CallSid=1 HTTP/1.1\r\nHost: a.example\r\n\r\n")
        response = await reader.read()
        assert response.startswith(b"HTTP/1.1 200 OK")
        assert b"Content-Type: text/xml" in response
        assert response.endswith(b"<Response host='a.example'/>")
        writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", here.streams.port)
        writer.write(b"GET /asterisk/answer HTTP/1.1\r\nHost: a.example\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 404")
        writer.close()


async def test_an_adapter_may_refuse_a_connection() -> None:
    def make(handshake: Handshake) -> PlainAdapter:
        raise Refused(400, f"{handshake.query} is no stream")

    async with (
        serving(StreamKind("plain", make)) as here,
        connect(f"ws://127.0.0.1:{here.streams.port}/plain?x=1", proxy=None) as far,
    ):
        with pytest.raises(ConnectionClosed):
            await far.recv()
        assert far.close_code == 1008


# --- limits and the end


async def test_a_message_that_is_too_large_ends_its_call_and_no_other() -> None:
    async with (
        serving("asterisk", max_message_bytes=4096) as here,
        media(here.streams.port) as one,
        media(here.streams.port) as other,
    ):
        await one.start()
        first = await here.call()
        await other.start()
        second = await here.call()
        await one.connection.send(bytes(5000))
        assert "too large" in await first.ended()
        assert not second.over


async def test_draining_lets_nobody_in_and_waits_for_the_last_call() -> None:
    async with serving("asterisk") as here, media(here.streams.port) as far:
        await far.start()
        call = await here.call()
        await here.streams.drain()
        assert await status_of(here.streams.port, "/asterisk") == 503
        drained = asyncio.ensure_future(here.streams.drained())
        assert not drained.done()
        await call.hangup()
        await drained
        assert [each async for each in here.streams] == []


async def test_calls_that_ended_before_anybody_took_them_are_not_kept() -> None:
    async with serving("asterisk") as here:
        for _ in range(4):
            async with media(here.streams.port) as gone:
                await gone.start()
                await gone.connection.ping()  # it has been read
            await here.streams.drained()
        assert here.streams._incoming.qsize() <= 1
        async with media(here.streams.port) as far:
            await far.start()
            assert not (await here.call()).over


async def test_a_call_that_begins_while_it_drains_is_refused_and_not_waited_for() -> None:
    async with serving("asterisk") as here, media(here.streams.port) as far:
        await here.streams.drain()
        await far.start()
        async with asyncio.timeout(10):
            await here.streams.drained()
        assert far.commands[-1] == "HANGUP"
        assert [each async for each in here.streams] == []


async def test_leaving_hangs_up_on_all() -> None:
    async with (
        serving() as here,
        media(here.streams.port) as far,
        audiosocket(here.streams.audiosocket_port) as tcp,
    ):
        await far.start()
        one = await here.call()
        tcp.start()
        tcp.speak()
        two = await here.call()
        await here.streams.__aexit__(None, None, None)
        await far.until(far.closed.is_set)
        await tcp.until(tcp.closed.is_set)
        assert far.commands[-1] == "HANGUP"
        assert tcp.hung_up
        assert one.over
        assert two.over
        left = {task.get_name() for task in asyncio.all_tasks() if not task.done()}
        assert not {name for name in left if "pacer" in name or "stream" in name or "of " in name}


async def test_a_port_that_is_taken_is_named() -> None:
    async with serving("asterisk") as here:
        with pytest.raises(PortBusy, match=str(here.streams.port)):
            async with serving("asterisk", port=here.streams.port):
                pass
        with pytest.raises(PortBusy):
            async with serving("audiosocket", port=here.streams.port):
                pass


async def test_over_tls_the_call_is_encrypted(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    made = authority.sign("streams", "127.0.0.1")
    trust = ssl.create_default_context(cafile=str(authority.file))
    async with (
        serving("asterisk", certificate=made.certificate, key=made.key) as here,
        media(here.streams.port, ssl=trust) as far,
    ):
        await far.start()
        call = await here.call()
        assert call.encrypted
        assert call.facts.transport == "wss"


@pytest.mark.network
async def test_a_key_that_others_may_read_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = Authority(tmp_path).sign("phone", "127.0.0.1")
    made.key.chmod(0o640)
    async with serving("asterisk", certificate=made.certificate, key=made.key):
        assert f"{made.key} can be read by its group (mode 0640)" in caplog.text


async def test_a_certificate_that_is_none_is_told_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "no.pem"
    path.write_text("no certificate")
    with pytest.raises(BadCertificate):
        async with serving("asterisk", certificate=path):
            pass


async def test_an_open_door_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with serving(host="0.0.0.0"):
            pass
    assert "AudioSocket has no password" in caplog.text
    assert "anybody who reaches port" in caplog.text
