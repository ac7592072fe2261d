"""The softphone's server over real connections, with aiortc in place of a browser."""

from __future__ import annotations

import asyncio
import io
import json
import threading
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from qwen3tts_agent.agent import Agent
from qwen3tts_agent.chat.messages import ChatMessage
from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.errors import PortBusy
from qwen3tts_phone.softphone.connection import BAD_TOKEN, NO_HELLO, SESSION_OVER, TAKEN_OVER
from qwen3tts_phone.softphone.messages import PROTOCOL
from qwen3tts_phone.softphone.server import IDLE_S, MAX_PENDING_PER_ADDRESS, Softphone
from qwen3tts_phone.softphone.settings import EngineSettings, SoftphoneSettings
from qwen3tts_server.run import running_server
from qwen3tts_wire.errors import BadRequest, ConnectionLost, UnknownVoice
from tests.e2e.far_ends import speech
from tests.engine.fake_engine import CloningEngine, FakeEngine
from tests.fakes import FakeClock
from tests.softphone.far_browser import far_browser
from tests.softphone.page_client import PageClient, page_client

pytestmark = pytest.mark.network

WITHIN_S = 60.0


@dataclass
class Served:
    softphone: Softphone
    url: str
    """The speech server's."""

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.softphone.port}"


@asynccontextmanager
async def served(
    engine: FakeEngine | None = None, *, parts: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Served]:
    async with asyncio.timeout(WITHIN_S), running_server(engine or FakeEngine()) as speech:
        engines = (EngineSettings(speech.url, "Tones"),)
        async with Softphone(
            engines=engines, voice="tone", **(parts or {}), **settings
        ) as softphone:
            yield Served(softphone, speech.url)


@asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator[PageClient]:
    """A softphone, and a page of it that has said hello."""
    async with served(**settings) as here, page_client(here.softphone) as page:
        yield page


# --- the page's files, and who may ask


async def test_the_page_comes_with_nothing_from_elsewhere() -> None:
    async with served() as here, aiohttp.ClientSession() as http:
        async with http.get(here.base) as answer:
            assert answer.status == 200
            assert answer.content_type == "text/html"
            policy = answer.headers["Content-Security-Policy"]
            text = await answer.text()
        assert "default-src 'self'" in policy
        assert f"ws://127.0.0.1:{here.softphone.port}" in policy
        assert "unsafe" not in policy
        for header, value in (
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Frame-Options", "DENY"),
            ("Cache-Control", "no-store"),
        ):
            assert answer.headers[header] == value
        assert here.softphone.token not in text
        async with http.get(f"{here.base}/static/softphone.css") as answer:
            assert (answer.status, answer.content_type) == (200, "text/css")


@pytest.mark.parametrize(
    "path",
    ["/static/server.py", "/static/..%2fserver.py", "/static/", "/etc/passwd", "/../server.py"],
)
async def test_only_the_pages_own_files_are_served(path: str) -> None:
    async with (
        served() as here,
        aiohttp.ClientSession() as http,
        http.get(f"{here.base}{path}") as answer,
    ):
        assert answer.status == 404
        assert (await answer.json())["error"]["code"] == "http"
        assert "Content-Security-Policy" in answer.headers


async def test_another_sites_name_or_page_is_refused() -> None:
    async with served() as here, aiohttp.ClientSession() as http:
        async with http.get(here.base, headers={"Host": "rebound.evil.example"}) as answer:
            assert answer.status == 403
            assert (await answer.json())["error"]["code"] == "wrong_place"
        token = {"Authorization": f"Bearer {here.softphone.token}"}
        for origin in ({}, {"Origin": "http://evil.example"}):
            async with http.post(f"{here.base}/voices", headers={**token, **origin}) as answer:
                assert answer.status == 403
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await http.ws_connect(f"{here.base}/ws", protocols=[PROTOCOL], headers=origin)
            assert refused.value.status == 403


async def test_behind_a_proxy_with_tls_the_page_is_served_and_a_right_token_always_passes() -> None:
    proxied = {"Origin": "https://phone.example.org", "X-Forwarded-Proto": "https"}
    async with (
        served(public_url="https://phone.example.org", trusted_proxies=("127.0.0.1",)) as here,
        aiohttp.ClientSession() as http,
    ):
        assert here.softphone.url.startswith("https://phone.example.org/#token=")
        named = {**proxied, "X-Forwarded-Host": "phone.example.org"}
        async with http.get(here.base, headers=named) as answer:
            assert answer.status == 200
            assert "wss://phone.example.org" in answer.headers["Content-Security-Policy"]
        for headers in (proxied, named):  # a proxy may pass on the Host or not
            socket = await http.ws_connect(f"{here.base}/ws", protocols=[PROTOCOL], headers=headers)
            await socket.close()
        other = {**named, "Origin": "https://evil.example"}
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await http.ws_connect(f"{here.base}/ws", protocols=[PROTOCOL], headers=other)

        async def shown(token: str, client: str) -> int:
            headers = {
                **named,
                "Authorization": f"Bearer {token}",
                "X-Forwarded-For": client,
            }
            async with http.get(f"{here.base}/recordings/none", headers=headers) as answer:
                return answer.status

        wrong = [await shown("wrong", "203.0.113.9") for _ in range(12)]
        assert set(wrong) == {401, 429}
        assert await shown(here.softphone.token, "203.0.113.9") == 404
        assert await shown("wrong", "203.0.113.10") == 401


@pytest.mark.parametrize("line", ["Host: twice", "Authorization: Bearer {token}\0"])
async def test_a_request_that_cannot_be_read_is_refused_and_nothing_of_it_is_logged(
    caplog: pytest.LogCaptureFixture, line: str
) -> None:
    async with served() as here:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.softphone.port)
        head = f"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n{line}\r\n\r\n"
        writer.write(head.format(token=here.softphone.token).encode())
        assert (await reader.read()).startswith(b"HTTP/1.0 400 ")
        writer.close()
        assert here.softphone.token not in caplog.text
        assert "Traceback" not in caplog.text


async def test_what_breaks_in_a_request_is_told_without_its_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served() as here, aiohttp.ClientSession() as http:

        def broken(name: str) -> Path:
            raise LookupError(name)

        here.softphone._services.recorded.path = broken  # type: ignore[method-assign]
        headers = {"Authorization": f"Bearer {here.softphone.token}"}
        async with http.get(f"{here.base}/recordings/secret", headers=headers) as answer:
            assert answer.status == 500
            assert (await answer.json())["error"]["code"] == "internal_error"
        assert "LookupError" in caplog.text
        assert "secret" not in caplog.text


async def test_a_socket_of_another_protocol_is_refused() -> None:
    async with served() as here, aiohttp.ClientSession() as http:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect(f"{here.base}/ws", headers={"Origin": here.base})
        assert refused.value.status == 422


# --- hello


async def test_a_wrong_token_is_told_and_closed_and_soon_has_to_wait() -> None:
    async with served() as here, aiohttp.ClientSession() as http:
        codes = []
        for _ in range(6):
            page = await PageClient(here.softphone, http).open()
            await page.send("hello", token="wrong")
            assert await page.closed() == BAD_TOKEN
            (error,) = page.told
            assert error["fatal"]
            assert error["remedy"]
            codes.append(error["code"])
        assert codes == ["bad_token"] * 5 + ["slow_down"]
        headers = {"Authorization": "Bearer wrong", "Origin": here.base}
        async with http.post(f"{here.base}/voices", headers=headers) as answer:
            assert answer.status == 429
            assert int(answer.headers["Retry-After"]) >= 1


@pytest.mark.parametrize("first", ['{"type": "ping", "time": 1}', "garbage", '{"type": "hello"}'])
async def test_a_page_that_does_not_begin_with_hello_is_closed(first: str) -> None:
    async with served() as here, aiohttp.ClientSession() as http:
        page = await PageClient(here.softphone, http).open()
        await page.socket.send_str(first)
        assert await page.closed() == 1008
        assert page.told[0]["code"] == "bad_request"
        assert here.softphone.sessions == 0


async def test_a_page_that_says_nothing_is_closed() -> None:
    async with served(hello_s=0.05) as here, aiohttp.ClientSession() as http:
        page = await PageClient(here.softphone, http).open()
        assert await page.closed() == NO_HELLO


async def test_more_pages_than_may_be_are_told_so() -> None:
    async with served(max_sessions=1) as here, page_client(here.softphone) as first:
        second = await PageClient(here.softphone, first.http).open()
        await second.send("hello", token=here.softphone.token)
        assert await second.closed() == 1013
        assert second.told[0]["code"] == "server_busy"


async def test_a_message_that_is_too_long_ends_the_connection() -> None:
    async with opened(message_bytes=16_384) as page:
        await page.socket.send_str("x" * 20_000)
        assert await page.closed() == 1009


async def test_messages_that_cannot_be_read_are_answered_and_the_page_goes_on() -> None:
    async with opened() as page:
        await page.socket.send_bytes(b"\x00")
        assert (await page.until("error"))["code"] == "bad_request"
        await page.send("ping", time=3.0, more=1)
        error = await page.until("error")
        assert "more" in error["message"]
        assert error["about"] == "ping"
        await page.send("ping", time=3.0)
        assert (await page.until("pong"))["time"] == 3.0


# --- calls


@pytest.mark.parametrize("codec", ["opus", "PCMU"])
async def test_what_is_typed_is_spoken_and_followed_word_by_word(codec: str) -> None:
    async with opened() as page, far_browser() as far:
        answer = await page.call(far, codec=codec)
        assert answer["codec"] == codec
        await page.type(1, "Good ", "morning ", "everyone.")
        spoken = await page.until("spoken")
        assert (spoken["heard"], spoken["remaining"]) == ("Good morning everyone.", "")
        assert not spoken["interrupted"]
        assert spoken["typed"] == 1
        assert min(spoken["stages"].values()) == 0.0
        told = [each for each in page.told if each["type"] == "words"]
        text = "Good morning everyone."
        words = [text[word[0] : word[1]] for each in told for word in each["words"]]
        assert words == ["Good", "morning", "everyone."]
        positions = [each["position"] for each in page.told if each["type"] == "heard"]
        assert positions == sorted(positions)
        assert len(positions) > 3
        await far.until(30)
        assert np.abs(far.heard()).max() > 1000
        await page.send("hangup")
        ended = await page.until("state", state="ended")
        assert (ended["by"], ended["code"]) == ("remote", "")


async def test_typed_words_that_are_stopped_are_told_apart_and_typing_goes_on() -> None:
    async with opened() as page, far_browser() as far:
        await page.call(far)
        await page.send("type", utterance=1, text="This is a rather long text. " * 8)
        await page.until("heard")
        await page.send("interrupt")
        spoken = await page.until("spoken")
        assert spoken["interrupted"]
        assert spoken["remaining"]
        assert spoken["heard"] + spoken["remaining"] == "This is a rather long text. " * 8
        await page.send("type", utterance=1, text="More.")
        await page.send("type_end", utterance=1)
        again = await page.until("spoken")
        assert (again["heard"], again["typed"]) == ("More.", 1)


async def test_the_number_of_a_typed_utterance_does_not_fall_and_its_length_is_bounded() -> None:
    async with opened(text_chars=20) as page, far_browser() as far:
        await page.call(far)
        await page.send("type", utterance=2, text="Twenty characters ok")
        await page.send("type", utterance=2, text="!")
        assert (await page.until("error"))["code"] == "limit_exceeded"
        await page.send("type", utterance=1, text="Before.")
        assert (await page.until("error"))["code"] == "bad_request"


async def test_a_voice_is_chosen_for_what_is_said_from_then_on() -> None:
    engine = FakeEngine()
    async with served(engine) as here, page_client(here.softphone) as page, far_browser() as far:
        await page.call(far)
        await page.type(1, "One.")
        await page.until("spoken")
        await page.send("voice", voice="tone-de")
        await page.type(2, "Two.")
        await page.until("spoken")
        assert [each.voice for each in engine.requests] == ["tone", "tone-de"]
        await page.send("voice", voice="nobody")
        assert (await page.until("error"))["code"] == "unknown_voice"
        await page.type(3, "Three.")
        assert "nobody" in (await page.until("spoken"))["error"]


async def test_a_voice_that_fails_is_told_with_its_words() -> None:
    async with opened() as page, far_browser() as far:
        await page.call(far, voice="fail")
        await page.type(1, "Good morning.")
        spoken = await page.until("spoken")
        assert spoken["error"]
        assert spoken["remaining"] == "Good morning."


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"sdp": "v=0"}, "bad_sdp"),
        ({"sdp": "garbage"}, "bad_sdp"),
        ({"sdp": "v=0", "engine": "other"}, "no_such_engine"),
    ],
)
async def test_a_call_that_cannot_be_made_says_why_and_another_one_can(
    fields: dict[str, Any], code: str
) -> None:
    async with opened() as page, far_browser() as far:
        await page.send("call", **fields)
        ended = await page.until("state", state="ended")
        assert (ended["code"], ended["by"]) == (code, "error")
        assert ended["remedy"]
        await page.call(far)


async def test_without_a_telephone_there_is_nothing_to_dial_or_listen_to() -> None:
    async with opened() as page, far_browser() as far:
        offer = await far.offer()
        for kind, more in (("dial", {"uri": "sip:a@b"}), ("listen", {"call_id": "x"})):
            await page.send(kind, sdp=offer, **more)
            assert (await page.until("state", state="ended"))["code"] == "bad_request"


async def test_more_calls_than_may_be_are_told_so() -> None:
    async with (
        served(max_calls=1) as here,
        page_client(here.softphone) as first,
        page_client(here.softphone) as second,
        far_browser() as far,
        far_browser() as other,
    ):
        await first.call(far)
        await second.send("call", sdp=await other.offer())
        assert (await second.until("state", state="ended"))["code"] == "server_busy"
        await first.send("hangup")
        await first.until("state", state="ended")
        async with far_browser() as third:
            await second.call(third)


async def test_a_call_ends_when_it_has_lasted_as_long_as_one_may() -> None:
    async with opened(max_call_s=0.3) as page, far_browser() as far:
        await page.call(far)
        assert (await page.until("error"))["code"] == "too_long"
        assert (await page.until("state", state="ended"))["by"] == "local"


async def test_keys_of_the_pad_and_an_agents_words_go_both_ways() -> None:
    keys = asyncio.Event()

    async def model(messages: list[ChatMessage]) -> AsyncIterator[str]:
        keys.set()
        yield f"You pressed {messages[-1].content}."

    listening = ListenSettings(detector="level")
    async with Agent(model, greeting="Press a key.", stt=None, listen=listening) as agent:
        parts = {"agent": agent}
        async with (
            served(parts=parts) as here,
            page_client(here.softphone) as page,
            far_browser() as far,
        ):
            await page.call(far)
            greeting = await page.until("spoken")
            assert greeting["heard"] == "Press a key."
            await page.send("key", digit="4")
            await page.send("key", digit="#")
            await keys.wait()
            said = await page.until("utterance")
            assert said["who"] == "agent"
            assert "4" in (await page.until("spoken"))["heard"]
            await page.send("hangup")
            await page.until("state", state="ended")


@pytest.fixture
async def caller() -> AsyncIterator[EmbeddedEngine]:
    """Whose voice is the caller's."""
    engine = EmbeddedEngine()
    await engine.start()
    yield engine
    await engine.close()


async def test_a_callers_voice_stops_what_is_being_said(caller: EmbeddedEngine) -> None:
    listening = ListenSettings(detector="level")
    async with opened(listen=listening) as page, far_browser() as far:
        await page.call(far)
        await page.send("type", utterance=1, text="This is a rather long text. " * 8)
        await page.until("heard")
        await far.say(await speech(caller, "Wait a moment, please."))
        assert (await page.until("caller"))["speaking"]
        spoken = await page.until("spoken")
        assert spoken["interrupted"]
        assert spoken["remaining"]


async def test_where_it_is_not_wanted_a_voice_stops_nothing(caller: EmbeddedEngine) -> None:
    listening = ListenSettings(detector="level")
    async with opened(listen=listening) as page, far_browser() as far:
        await page.call(far, barge_in=False)
        await page.type(1, "This is a rather long text. " * 2)
        await page.until("heard")
        await far.say(await speech(caller, "Wait a moment, please."))
        assert not (await page.until("spoken"))["interrupted"]


async def test_a_lost_page_comes_back_to_its_call() -> None:
    async with served() as here, page_client(here.softphone) as page, far_browser() as far:
        answer = await page.call(far)
        await page.send("type", utterance=1, text="This is a rather long text. " * 2)
        await page.until("heard")
        await page.lose()
        again = await PageClient(here.softphone, page.http).open()
        welcome = await again.hello(resume=page.session)
        assert (welcome["resumed"], welcome["call_id"]) == (True, answer["call_id"])
        assert (await again.until("state"))["state"] == "up"
        assert (await again.until("utterance"))["text"]
        await again.send("type_end", utterance=1)
        await again.until("spoken")
        assert len(here.softphone.calls) == 1


async def test_a_second_connection_of_a_session_takes_over() -> None:
    async with served() as here, page_client(here.softphone) as page:
        again = await PageClient(here.softphone, page.http).open()
        closed = asyncio.create_task(page.closed())
        assert (await again.hello(resume=page.session))["session"] == page.session
        assert await closed == TAKEN_OVER
        await again.send("ping", time=1.0)
        await again.until("pong")


async def test_a_session_that_is_over_begins_anew() -> None:
    async with served() as here, page_client(here.softphone) as page:
        other = await PageClient(here.softphone, page.http).open()
        welcome = await other.hello(resume="expired")
        assert (welcome["resumed"], welcome.get("call_id")) == (False, None)
        assert welcome["session"] != page.session


async def test_a_page_that_is_closed_ends_its_call_at_once() -> None:
    async with served() as here, page_client(here.softphone) as page, far_browser() as far:
        await page.call(far)
        (call,) = here.softphone.calls
        await page.socket.close(code=1001)
        assert await call.ended() == "the page hung up: it was closed"


async def test_a_script_that_closes_its_socket_without_a_code_has_gone() -> None:
    """As ``socket.close()`` of a browser does: a close frame with nothing in it."""
    async with served() as here, page_client(here.softphone) as page, far_browser() as far:
        await page.call(far)
        (call,) = here.softphone.calls
        await page.socket._writer.send_frame(b"", aiohttp.WSMsgType.CLOSE)
        assert await call.ended() == "the page hung up: it was closed"


async def test_a_beacon_ends_the_call_of_a_page_that_goes() -> None:
    async with served() as here, page_client(here.softphone) as page, far_browser() as far:
        await page.call(far)
        said = {"token": here.softphone.token, "session": page.session}
        headers = {"Origin": here.base}
        leave = f"{here.base}/leave"
        for wrong in ("", "[]", '{"token": 1}', "x" * 9000):
            async with page.http.post(leave, data=wrong, headers=headers) as answer:
                assert answer.status == 422
        closed = asyncio.create_task(page.closed())

        async def in_two_packets() -> AsyncIterator[bytes]:
            whole = json.dumps(said).encode()
            yield whole[:20]
            await asyncio.sleep(0)
            yield whole[20:]

        async with page.http.post(leave, data=in_two_packets(), headers=headers) as answer:
            assert answer.status == 204
        assert await closed == SESSION_OVER


@pytest.mark.parametrize("waits", ["head", "body"])
async def test_who_never_sends_the_rest_of_a_request_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, waits: str
) -> None:
    monkeypatch.setattr("qwen3tts_phone.softphone.server.IDLE_S", 0.2)
    monkeypatch.setattr("qwen3tts_phone.softphone.site.LEAVE_S", 0.2)
    async with served() as here:
        host = f"127.0.0.1:{here.softphone.port}"
        reader, writer = await asyncio.open_connection("127.0.0.1", here.softphone.port)
        head = f"POST /leave HTTP/1.1\r\nHost: {host}\r\nOrigin: {here.base}\r\n"
        if waits == "body":
            head += "Connection: close\r\nContent-Length: 100\r\n\r\n{"
        writer.write(head.encode())
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 422 ") if waits == "body" else answer == b""
        writer.close()


# --- recordings and voices


async def test_a_recorded_call_can_be_fetched_with_the_token_alone(tmp_path: Path) -> None:
    async with opened(recordings=tmp_path) as page, far_browser() as far:
        await page.call(far, record=True)
        await page.type(1, "Good morning.")
        await page.until("spoken")
        await page.send("hangup")
        recording = await page.until("recording")
        url = f"{page.base}/recordings/{recording['id']}"
        async with page.http.get(url) as answer:
            assert answer.status == 401
        async with page.http.get(url, headers=page.headers) as answer:
            assert (answer.status, answer.content_type) == (200, "audio/wav")
            assert "attachment" in answer.headers["Content-Disposition"]
            data = await answer.read()
        with wave.open(io.BytesIO(data)) as file:
            assert file.getnchannels() == 2
            assert file.getnframes() / file.getframerate() == pytest.approx(recording["seconds"])
            sound = np.frombuffer(file.readframes(file.getnframes()), np.int16).reshape(-1, 2)
        assert np.abs(sound[:, 1]).max() > 1000  # the voice is the right one
        async with page.http.get(f"{page.base}/recordings/other", headers=page.headers) as answer:
            assert answer.status == 404
        assert len(list(tmp_path.iterdir())) == 1


async def test_where_nothing_is_recorded_a_page_is_told() -> None:
    async with opened(recording=False) as page, far_browser() as far:
        await page.send("call", sdp=await far.offer(), record=True)
        assert "not recorded" in (await page.until("state", state="ended"))["cause"]


async def upload(page: PageClient, **parts: Any) -> tuple[int, dict[str, Any]]:
    form = aiohttp.FormData()
    for name, value in parts.items():
        if isinstance(value, bytes):
            form.add_field(name, value, filename="voice.wav", content_type="audio/wav")
        else:
            form.add_field(name, value)
    url = f"{page.base}/voices"
    async with page.http.post(url, data=form, headers=page.headers) as answer:
        told: dict[str, Any] = await answer.json()
        return answer.status, told


async def test_an_upload_that_cannot_be_used_says_why() -> None:
    async with opened(upload_bytes=2000) as page:
        for parts, status, code in (
            ({"audio": b"RIFF" * 10}, 409, "cannot_clone"),
            ({"audio": b"x" * 2001}, 413, "limit_exceeded"),
            ({"audio": b"x", "engine": "other"}, 404, "no_such_engine"),
            ({"audio": b"x", "more": "y"}, 422, "bad_request"),
            ({"audio": b"x", "ref_text": "y" * 20_000}, 413, "limit_exceeded"),
        ):
            found, told = await upload(page, **parts)
            assert (found, told["error"]["code"]) == (status, code), parts
            assert told["error"]["message"]
        for data, kind in (
            (b"{}", "application/json"),
            (b"junk", "multipart/form-data; boundary=x"),
        ):
            headers = {**page.headers, "Content-Type": kind}
            async with page.http.post(f"{page.base}/voices", data=data, headers=headers) as answer:
                assert answer.status in (409, 422)


async def test_a_voice_of_ones_own_is_made_and_offered_to_all_pages() -> None:
    engine = CloningEngine()
    async with served(engine) as here, page_client(here.softphone) as page:
        status, told = await upload(page, audio=b"RIFFsound", ref_text="It says.", name="Mine")
        assert status == 200
        assert told == {
            "engine": "tones",
            "voice": {"id": "voice-9", "name": "Mine", "language": ""},
        }
        assert engine.loads == [(None, b"RIFFsound", "It says.", False)]
        async with page_client(here.softphone) as other:
            (entry,) = other.told[0]["engines"]
            assert entry["can_clone"]
            assert entry["voices"][0]["id"] == "voice-9"
        engine.error = BadRequest("The recording is damaged.", remedy="Send another one.")
        status, told = await upload(page, audio=b"junk", ref_text="x")
        assert (status, told["error"]["remedy"]) == (422, "Send another one.")


# --- beginning and end


async def test_nothing_is_left_when_it_ends_in_mid_call() -> None:
    async with asyncio.timeout(WITHIN_S), running_server(FakeEngine()) as speech:
        await asyncio.to_thread(lambda: None)
        tasks, threads = asyncio.all_tasks(), threading.active_count()
        async with aiohttp.ClientSession() as http, far_browser() as far:
            settings = SoftphoneSettings(engines=(EngineSettings(speech.url),), voice="tone")
            async with Softphone(settings) as softphone:
                page = await PageClient(softphone, http).open()
                await page.hello()
                await page.call(far, record=True)
                await page.send("type", utterance=1, text="This is a rather long text. " * 4)
                await page.until("heard")
                folder = softphone._services.recorded.folder
                closed = asyncio.create_task(page.closed())
            assert softphone.calls == frozenset()
            assert await closed in (1001, SESSION_OVER)
            states = [each for each in page.told if each["type"] == "state"]
            assert states[-1]["state"] == "ended"
            assert not folder.exists()
        await asyncio.sleep(0)
        left = {each.get_name() for each in asyncio.all_tasks() - tasks if not each.done()}
        assert {each for each in left if "speech" not in each} == set()
        assert threading.active_count() <= threads + 1


async def test_what_keeps_it_from_beginning_is_told_and_leaves_nothing() -> None:
    async with served() as here:
        engines = here.softphone.settings.engines
        settings = SoftphoneSettings(engines=engines)
        with pytest.raises(PortBusy):
            async with Softphone(settings, port=here.softphone.port):
                pass
        with pytest.raises(UnknownVoice):
            async with Softphone(settings, voice="nobody"):
                pass
        away = replace(settings, engines=(EngineSettings("ws://127.0.0.1:9/v1/speech"),))
        with pytest.raises(ConnectionLost):
            async with Softphone(away):
                pass


async def test_beyond_this_machine_it_is_https_and_tells_its_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    async with served(https=True) as here:
        certificate = here.softphone.certificate
        assert certificate is not None
        assert here.softphone.url.startswith("https://127.0.0.1:")
        sha = bytes.fromhex(certificate.fingerprint.replace(":", ""))
        async with aiohttp.ClientSession() as http:
            base = here.base.replace("http:", "https:")
            async with http.get(base, ssl=aiohttp.Fingerprint(sha)) as answer:
                assert answer.status == 200
                assert "wss://" in answer.headers["Content-Security-Policy"]


async def test_the_token_is_in_the_fragment_and_never_in_a_representation() -> None:
    async with served(token="given-token") as here:
        assert here.softphone.url == f"{here.base}/#token=given-token"
        assert "given-token" not in repr(here.softphone) + repr(here.softphone.settings)


# --- connections without a token


async def test_half_requests_do_not_keep_a_page_out() -> None:
    async with served() as here:
        port = here.softphone.port
        writers = []
        for _ in range(MAX_PENDING_PER_ADDRESS + 40):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            writers.append(writer)
        async with page_client(here.softphone):
            assert here.softphone.sessions == 1
        for writer in writers:
            writer.transport.abort()


async def test_a_connection_that_shows_no_token_is_closed_in_time() -> None:
    clock = FakeClock()
    async with served(parts={"clock": clock}) as here:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.softphone.port)
        async with page_client(here.softphone) as page:
            writer.write(b"GET / HTTP/1.1\r\n")
            await clock.advance(IDLE_S + 1.0)
            assert await reader.read() == b""
            await page.send("ping", time=1.0)
            await page.until("pong")  # one that has shown it stays
        writer.transport.abort()
