from __future__ import annotations

import asyncio
import io
import json
import wave
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from email.message import Message
from email.parser import BytesParser
from typing import Any

import httpx
import numpy as np
import pytest

from qwen3tts_agent.recognition.kinds import check_recogniser, recogniser_named
from qwen3tts_agent.recognition.openai import TranscriptionRecogniser
from qwen3tts_agent.recognition.settings import TranscriptionSettings
from qwen3tts_phone.detection.recogniser import (
    Recogniser,
    RecogniserUnavailable,
    RecognitionFailed,
    RecognitionTimeout,
)
from qwen3tts_wire.errors import EngineUnavailable
from tests.agent.recognition.sounds import RATE, Talk, quiet, tone
from tests.fakes import FakeClock, settle
from tests.server.openai.caller import Hearing, calling

URL = "http://recogniser.test/v1"
Handler = Callable[[httpx.Request], httpx.Response]


def said(text: str = "Good morning.", **more: Any) -> httpx.Response:
    return httpx.Response(200, json={"text": text, **more})


class Peer:
    """Server with scripted answers that remembers the requests."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def form(self, number: int = -1) -> dict[str, Message]:
        request = self.requests[number]
        head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
        parts = BytesParser().parsebytes(head + request.content).walk()
        named = ((each.get_param("name", header="content-disposition"), each) for each in parts)
        return {str(name): each for name, each in named if name is not None}

    def fields(self, number: int = -1) -> dict[str, str]:
        return {
            name: str(part.get_payload())
            for name, part in self.form(number).items()
            if name != "file"
        }


@asynccontextmanager
async def talking(
    transport: httpx.AsyncBaseTransport | Peer, clock: FakeClock | None = None, **settings: Any
) -> AsyncIterator[Talk]:
    if isinstance(transport, Peer):
        transport = httpx.MockTransport(transport)
    chosen = TranscriptionSettings(**{"url": URL, "early": False, **settings})
    recogniser = TranscriptionRecogniser(chosen, transport=transport, clock=clock)
    try:
        yield Talk(await recogniser.open())
    finally:
        await recogniser.close()


async def test_our_own_server_has_the_route() -> None:
    engine = Hearing()
    async with (
        calling(engine) as caller,
        talking(httpx.ASGITransport(caller.app), languages=("de",), prompt="Wien") as talk,
    ):
        text = await talk.recognition.end_turn(talk.turn(tone(1.0)))
    assert text.text == "Guten Tag. Auf Wiedersehen."
    [(sound, language, _)] = engine.whisper.asked
    assert language == "de"
    with wave.open(io.BytesIO(sound)) as wav:
        assert (wav.getframerate(), wav.getnchannels(), wav.getsampwidth()) == (RATE, 1, 2)
        samples = np.frombuffer(wav.readframes(wav.getnframes()), "<i2")
    assert len(samples) == pytest.approx(1.6 * RATE, abs=400)
    assert np.abs(samples).max() == pytest.approx(8000, abs=10)


async def test_our_own_server_says_that_it_has_no_model() -> None:
    engine = Hearing()
    engine.whisper.error = EngineUnavailable("There is no model.")
    clock = FakeClock()
    async with calling(engine) as caller, talking(httpx.ASGITransport(caller.app), clock) as talk:
        text = asyncio.ensure_future(talk.recognition.end_turn(talk.turn(tone(0.5))))
        while not clock._sleepers:  # noqa: ASYNC110 - threads of the server are waited for
            await asyncio.sleep(0.001)
        await clock.advance(2.0)
        with pytest.raises(RecognitionFailed, match="overloaded or broken"):
            await text


async def test_the_fields_of_a_turn() -> None:
    peer = Peer(said())
    wanted: dict[str, Any] = {"model": "small", "prompt": "Wien", "response_format": "verbose_json"}
    async with talking(peer, languages=("de", "en"), api_key="a-key", **wanted) as talk:
        await talk.recognition.end_turn(talk.turn(tone(0.5)))
    assert str(peer.requests[0].url) == f"{URL}/audio/transcriptions"
    assert peer.fields() == wanted, "of two languages the server finds out which it is"
    file = peer.form()["file"]
    assert (file.get_filename(), file.get_content_type()) == ("turn.wav", "audio/wav")
    assert peer.requests[0].headers["authorization"] == "Bearer a-key"


async def test_a_key_goes_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "for-openai-alone")
    monkeypatch.delenv("QWEN3TTS_STT_KEY", raising=False)
    peer = Peer(said())
    async with talking(peer) as talk:
        await talk.recognition.end_turn(talk.turn(tone(0.5)))
    assert "authorization" not in peer.requests[0].headers
    async with talking(peer, url="https://api.openai.com/v1") as talk:
        await talk.recognition.end_turn(talk.turn(tone(0.5)))
    assert peer.requests[1].headers["authorization"] == "Bearer for-openai-alone"


async def test_openai_without_a_key_is_refused_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(RecogniserUnavailable, match="there is no key for") as caught:
        await check_recogniser("openai")
    assert "OPENAI_API_KEY" in caught.value.remedy


async def test_silence_is_not_sent() -> None:
    peer = Peer(said("Thanks for watching!"))
    async with talking(peer) as talk:
        assert (await talk.recognition.end_turn(talk.turn(quiet(0.5)))).text == ""
    assert not peer.requests


async def test_a_pause_is_sent_and_what_is_understood_is_told() -> None:
    peer = Peer(said("Good"), said("Good morning."))
    recogniser = TranscriptionRecogniser(
        TranscriptionSettings(URL), transport=httpx.MockTransport(peer)
    )
    partial: list[str] = []
    talk = Talk(await recogniser.open(lambda each: partial.append(each.text)))
    talk.recognition.pause(talk.turn(tone(0.5)))
    async with asyncio.timeout(20):
        while not partial:
            await settle()
    assert partial == ["Good"]
    talk.recognition.resume()
    talk.say(tone(0.5))
    assert (await talk.recognition.end_turn(talk.at)).text == "Good morning."
    await recogniser.close()


@pytest.mark.parametrize(
    ("answer", "text", "language", "sure"),
    [
        (said(" Good\nmorning. "), "Good morning.", "", None),
        (said("Hi", language="english", segments=[]), "Hi", "english", None),
        (
            said("Hi.", language="en", segments=[{"avg_logprob": -0.1, "no_speech_prob": 0.01}]),
            *("Hi.", "en", 0.905),
        ),
        (  # invented from noise, as its own figures say
            said("Thank you.", segments=[{"avg_logprob": -1.2, "no_speech_prob": 0.8}]),
            *("", "", None),
        ),
        (said("Hi", segments=[{"avg_logprob": "x"}, 3]), "Hi", "", None),
        (said("word " * 200), "", "", None),  # more than can be said in the time
        (said("..."), "", "", None),
        (httpx.Response(200, text="Hi.\n"), "Hi.", "", None),
    ],
)
async def test_answers(
    answer: httpx.Response, text: str, language: str, sure: float | None
) -> None:
    plain = "json" not in answer.headers["content-type"]
    async with talking(Peer(answer), response_format="text" if plain else "json") as talk:
        found = await talk.recognition.end_turn(talk.turn(tone(0.5)))
    assert (found.text, found.language) == (text, language)
    assert found.confidence == (sure if sure is None else pytest.approx(sure, abs=0.01))


@pytest.mark.parametrize(
    ("answer", "kind", "match", "remedy"),
    [
        (httpx.Response(401), RecogniserUnavailable, "asks for a key", "QWEN3TTS_STT_KEY"),
        (httpx.Response(402), RecogniserUnavailable, "requires payment", ""),
        (
            httpx.Response(404, json={"detail": "Model 'whisper-1' is not installed"}),
            *(RecogniserUnavailable, "no such path or model .404.: Model 'whisper-1'", "whisper-1"),
        ),
        (
            httpx.Response(400, json={"error": {"message": "bad language"}}),
            *(RecogniserUnavailable, "refused the request .400.: bad language", "language"),
        ),
        (
            httpx.Response(302, headers={"location": "http://elsewhere.test/"}),
            *(RecogniserUnavailable, "redirects", "final address"),
        ),
        (httpx.Response(200, html="<p>Hi</p>"), RecogniserUnavailable, "a web page", "/v1"),
        (httpx.Response(200, text="Hi"), RecognitionFailed, "not JSON", "/v1"),
        (httpx.Response(200, json=["Hi"]), RecognitionFailed, "no text", ""),
        (httpx.Response(200, json={"text": 5}), RecognitionFailed, "no text", ""),
        (httpx.Response(200, content=b"x" * (1 << 21)), RecognitionFailed, "too long", ""),
        (httpx.ReadTimeout("slow"), RecognitionFailed, "no answer within", "smaller model"),
        (httpx.ConnectTimeout("far"), RecognitionFailed, "no connection within", "address"),
    ],
)
async def test_what_goes_wrong_is_told_with_its_remedy(
    answer: httpx.Response | Exception, kind: type[Exception], match: str, remedy: str
) -> None:
    peer = Peer(answer)
    async with talking(peer) as talk:
        with pytest.raises(kind, match=f"recogniser at {URL}: .*{match}") as caught:
            await talk.recognition.end_turn(talk.turn(tone(0.5)))
    assert remedy in getattr(caught.value, "remedy", "")
    assert len(peer.requests) == 1


@pytest.mark.parametrize(
    ("first", "wait_s"),
    [
        (httpx.Response(503), 0.25),
        (httpx.Response(429, headers={"retry-after": "1"}), 1.0),
        (httpx.Response(429, headers={"retry-after": "3600"}), 2.0),
        (httpx.Response(500, headers={"retry-after": "soon"}), 0.25),
        (httpx.RemoteProtocolError("closed while idle"), 0.25),
        (httpx.ConnectError("refused"), 0.25),
    ],
)
async def test_a_request_is_made_once_more(
    first: httpx.Response | Exception, wait_s: float
) -> None:
    clock, peer = FakeClock(), Peer(first, said())
    async with asyncio.timeout(20), talking(peer, clock) as talk:
        text = asyncio.ensure_future(talk.recognition.end_turn(talk.turn(tone(0.5))))
        while not clock._sleepers:
            await settle()
        assert clock._sleepers[0][0] == pytest.approx(clock.now() + wait_s)
        await clock.advance(wait_s)
        assert (await text).text == "Good morning."
    assert peer.requests[0].content.partition(b"RIFF")[2] == (
        peer.requests[1]
        .content.partition(b"RIFF")[2]
        .replace(
            peer.requests[1].headers["content-type"].partition("=")[2].encode(),
            peer.requests[0].headers["content-type"].partition("=")[2].encode(),
        )
    )


async def test_not_a_third_time() -> None:
    clock, peer = FakeClock(), Peer(httpx.ConnectError("refused"))
    async with asyncio.timeout(20), talking(peer, clock) as talk:
        text = asyncio.ensure_future(talk.recognition.end_turn(talk.turn(tone(0.5))))
        while not clock._sleepers:
            await settle()
        await clock.advance(0.25)
        with pytest.raises(RecognitionFailed, match="cannot be reached: refused"):
            await text
    assert len(peer.requests) == 2


async def test_a_turn_does_not_wait_longer_than_it_may() -> None:
    async def never(request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with talking(httpx.MockTransport(never), timeout_s=0.05) as talk:
        with pytest.raises((RecognitionTimeout, RecognitionFailed)):
            await talk.recognition.end_turn(talk.turn(tone(0.5)))


async def test_neither_words_nor_keys_are_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with talking(Peer(said("my secret words")), api_key="a-secret-key") as talk:
        found = await talk.recognition.end_turn(talk.turn(tone(0.5)))
    settings = TranscriptionSettings(URL, api_key="a-secret-key", prompt="a secret name")
    assert "secret" not in caplog.text + repr(settings) + repr(found)


async def test_names() -> None:
    made = recogniser_named(
        "openai:http://127.0.0.1:8000/v1?model=Systran/faster-whisper-small&language=de&early=no"
        "&prompt=Wien%20Graz"
    )
    assert isinstance(made, TranscriptionRecogniser)
    assert made.settings == TranscriptionSettings(
        "http://127.0.0.1:8000/v1",
        "Systran/faster-whisper-small",
        languages=("de",),
        prompt="Wien Graz",
        early=False,
    )
    plain: Recogniser = recogniser_named("OpenAI:gpt-4o-mini-transcribe", languages=("en",))
    assert isinstance(plain, TranscriptionRecogniser)
    assert plain.settings == TranscriptionSettings(
        model="gpt-4o-mini-transcribe", languages=("en",)
    )


@pytest.mark.network
async def test_a_check_measures_a_server_and_says_where_the_sound_goes() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(head.lower().partition(b"content-length:")[2].split()[0])
            assert b"RIFF" in await reader.readexactly(length)
            body = json.dumps({"text": ""}).encode()
            kind = "Content-Type: application/json"
            writer.write(
                f"HTTP/1.1 200 OK\r\n{kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            )
            writer.write(body)

    async def call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except asyncio.IncompleteReadError:
            writer.close()

    async with asyncio.timeout(20):
        server = await asyncio.start_server(call, "127.0.0.1", 0)
        async with server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
            report = await check_recogniser(f"openai:{url}?model=small", languages=("de",))
        assert (report.kind, report.model, report.language) == ("openai", "small", "de")
        assert report.address == url
        assert report.wait_s is not None
        assert report.real_time_factor is not None
        with pytest.raises(RecognitionFailed, match="cannot be reached") as caught:
            await check_recogniser(f"openai:{url}")
    assert "whether its server runs" in caught.value.remedy
