"""vLLM-Omni's WebSocket: what goes wrong there is our error, and only once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_engine.upstream.engine import UpstreamEngine
from qwen3tts_engine.upstream.settings import UpstreamSettings
from qwen3tts_wire.errors import (
    BadRequest,
    EngineFailed,
    EngineUnavailable,
    LimitExceeded,
    ServerBusy,
    SpeechError,
    UnknownVoice,
)
from tests.engine.upstream.peers import OmniPeer, Script, Talk, sound_of, upstream
from tests.engine.upstream.speaking import TEXT, heard, is_said
from tests.engine.waiting import until

pytestmark = pytest.mark.network


def refusing(message: str, **fields: Any) -> Script:
    """As 0.30: the unit starts, is refused, ends."""

    async def script(talk: Talk) -> None:
        await talk.start()
        await talk.tell("error", message=message, **fields)
        await talk.done(error=True)
        await talk.over()

    return script


async def failing_late(talk: Talk) -> None:
    await talk.start()
    await talk.sound(sound_of("Good"))
    await talk.tell("error", message="CUDA out of memory", partial_audio=True, action="discard")
    await talk.done(error=True)
    await talk.over()


async def failing_without_a_word(talk: Talk) -> None:
    await talk.start()
    await talk.done(error=True)
    await talk.over()


async def hanging_up_in_the_middle(talk: Talk) -> None:
    await talk.start()
    await talk.sound(sound_of("Good"))
    await talk.vanish()


async def hanging_up_before_the_sound(talk: Talk) -> None:
    await talk.start()
    await talk.vanish()


async def hanging_up_with_a_reason(talk: Talk) -> None:
    await talk.start()
    await talk.socket.close(1011, "engine dead")


async def error_then_1006(talk: Talk) -> None:
    await talk.tell("error", message="Internal error: 'text'")
    await talk.vanish()


async def silent(talk: Talk) -> None:
    await talk.start()
    await talk.sound(bytes(48_000))
    await talk.done()
    await talk.over()


async def nothing_said(talk: Talk) -> None:
    await talk.over(0)


def saying(data: str | bytes) -> Script:
    async def script(talk: Talk) -> None:
        await talk.socket.send(data)
        await talk.gone()

    return script


def starting(**fields: Any) -> Script:
    async def script(talk: Talk) -> None:
        await talk.start(**fields)
        await talk.gone()

    return script


async def sound_after_the_end(talk: Talk) -> None:
    await talk.start()
    await talk.done()
    await talk.sound()
    await talk.gone()


async def wav_of_another_rate(talk: Talk) -> None:
    head = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0"
    await talk.start()
    await talk.sound(head + b"data\xff\xff\xff\xff" + bytes(800))
    await talk.gone()


FAULTS: dict[Script, tuple[type[SpeechError], str]] = {
    refusing("Invalid voice 'x'. Supported: vivian"): (UnknownVoice, "Invalid voice"),
    refusing("no", code="limit_exceeded"): (LimitExceeded, "says: no"),
    refusing("no room", code="server_busy"): (ServerBusy, "no room"),
    refusing("bad speed", code="bad_request"): (BadRequest, "bad speed"),
    refusing("it broke", code=5): (EngineFailed, "it broke"),
    refusing("a\x1b[31m\n" + "x" * 10_000): (EngineFailed, "a.\\[31m x{200,}…"),
    failing_late: (EngineFailed, "CUDA out of memory"),
    failing_without_a_word: (EngineFailed, "failed to say"),
    hanging_up_in_the_middle: (EngineFailed, "in the middle of the speech"),
    hanging_up_before_the_sound: (EngineFailed, "before any sound"),
    hanging_up_with_a_reason: (EngineFailed, "1011 engine dead"),
    error_then_1006: (EngineFailed, "Internal error"),
    silent: (EngineFailed, "only silence"),
    nothing_said: (EngineFailed, "no sound"),
    saying("<html>"): (EngineFailed, "no JSON"),
    saying("[1]"): (EngineFailed, "no JSON object"),
    saying("[" * 60_000): (EngineFailed, "no JSON"),
    saying('{"type":"audio.chunk","audio_b64":"%"}'): (EngineFailed, "base64"),
    saying("x" * 70_000): (EngineFailed, "more than 65536 bytes"),
    starting(sample_rate=8000): (EngineFailed, "8000 hertz, not 24000"),
    starting(sample_rate="24000"): (EngineFailed, "hertz"),
    starting(channels=2): (EngineFailed, "2 channels"),
    starting(format="mp3"): (EngineFailed, "mp3, not pcm"),
    sound_after_the_end: (EngineFailed, "out of order"),
    wav_of_another_rate: (EngineFailed, "8000 hertz"),
}


@pytest.mark.parametrize("script", FAULTS, ids=lambda script: script.__qualname__.split(".")[0])
async def test_a_fault_is_our_error_and_the_next_utterance_goes_well(script: Script) -> None:
    kind, said = FAULTS[script]
    peer = OmniPeer(script)
    async with upstream(peer, retries=0, max_message_bytes=65_536) as engine:
        with pytest.raises(SpeechError, match=said) as caught:
            await heard(engine)
        assert caught.value.code == kind.code
        assert caught.value.remedy
        assert caught.value.message.isprintable()
        assert len(caught.value.message) < 400
        assert is_said(await heard(engine))
        await until(lambda: peer.speaking == 0)


@pytest.mark.parametrize(
    "script", [hanging_up_before_the_sound, failing_without_a_word, nothing_said, error_then_1006]
)
async def test_what_failed_before_any_sound_is_asked_for_once_more(script: Script) -> None:
    peer = OmniPeer(script)
    async with upstream(peer) as engine:
        assert is_said(await heard(engine))
        assert len(peer.texts) == 2
        peer.scripts.extend([script, script])
        with pytest.raises(EngineFailed):
            await heard(engine)
        assert len(peer.texts) == 4


@pytest.mark.parametrize("script", [hanging_up_in_the_middle, failing_late])
async def test_half_a_sentence_is_not_begun_again(script: Script) -> None:
    peer = OmniPeer(script)
    async with upstream(peer) as engine:
        with pytest.raises(EngineFailed):
            await heard(engine)
        assert len(peer.texts) == 1


async def test_what_was_made_before_a_fault_is_heard() -> None:
    async with upstream(OmniPeer(failing_late), trim_silence=False) as engine:
        pcm = bytearray()
        with pytest.raises(EngineFailed):  # noqa: PT012 - the sound before it is looked at
            async for chunk in engine.synthesize(SynthesisRequest(TEXT, final=True)):
                pcm += chunk.pcm
        assert bytes(pcm) == sound_of("Good")


REFUSALS: list[tuple[int, bytes, str, type[SpeechError], str]] = [
    (401, b'{"error": {"message": "bad key"}}', "application/json", EngineUnavailable, "bad key"),
    (403, b"", "", EngineUnavailable, "HTTP 403"),
    (404, b"<html>nginx</html>", "text/html", EngineUnavailable, "an HTML page"),
    (429, b"slow down", "text/plain", ServerBusy, "slow down"),
    (500, b"\xff\xfe", "", EngineFailed, "says"),
    (503, b"", "", ServerBusy, "HTTP 503"),
    (200, b"hello", "", EngineUnavailable, "HTTP 200"),
    (301, b"", "", EngineUnavailable, "HTTP 301"),
]


@pytest.mark.parametrize(("status", "body", "kind", "error", "said"), REFUSALS)
async def test_a_refused_connection_is_our_error(
    status: int, body: bytes, kind: str, error: type[SpeechError], said: str
) -> None:
    peer = OmniPeer()
    async with upstream(peer, max_idle=0, retries=0) as engine:
        peer.refusals.append((status, body, kind))
        with pytest.raises(error, match=said) as caught:
            await heard(engine)
        assert caught.value.remedy
        assert is_said(await heard(engine))


@pytest.mark.parametrize(
    "change",
    [
        lambda peer: setattr(peer, "voices_status", 401),
        lambda peer: setattr(peer, "voices_status", 503),
        lambda peer: peer.refusals.append((404, b"no such route", "")),
        lambda peer: peer.refusals.append((401, b"", "")),
    ],
)
async def test_a_server_that_will_not_have_us_is_no_start(
    change: Callable[[OmniPeer], None],
) -> None:
    peer = OmniPeer()
    change(peer)
    with pytest.raises(EngineUnavailable, match=r"127\.0\.0\.1") as caught:
        async with upstream(peer):
            pass
    assert caught.value.remedy


async def test_nobody_there_is_no_start() -> None:
    peer = OmniPeer()
    await peer.start()
    await peer.stop()
    url = peer.url

    engine = UpstreamEngine(UpstreamSettings(url=url, start_s=0.05))
    with pytest.raises(EngineUnavailable, match="does not answer"):
        await engine.start()
