"""POST /v1/audio/speech: what is said, in which form, and how it is sent."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import wave
from collections.abc import Sequence
from typing import Any

import av
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_codecs.wav import UNKNOWN_LENGTH
from qwen3tts_engine.base import Voice
from qwen3tts_server.dialects.encoding import FORMS, content_type
from qwen3tts_server.dialects.openai.answer import SILENCE_MS, words_headers
from qwen3tts_server.settings import OpenAISettings, ServerSettings
from tests.engine.fake_engine import CHAR_SAMPLES, VOICES, FakeEngine, tone
from tests.server.openai.caller import Answer, calling, until

HELLO = "Hello there."
HELLO_PCM = b"".join(map(tone, HELLO))


class AbleEngine(FakeEngine):
    """One that does all that may be asked."""

    options = frozenset(
        {"speed", "seed", "instructions", "sampling", "initial_codec_chunk_frames", "lead"}
    )


class TwoVoices(FakeEngine):
    """One whose voices all speak."""

    def voices(self) -> Sequence[Voice]:
        return VOICES[:2]


def duration_ms(data: bytes) -> float:
    with av.open(io.BytesIO(data), "r") as file:
        samples = sum(frame.samples / frame.sample_rate for frame in file.decode(audio=0))
    return 1000 * samples


@pytest.mark.parametrize("stream", [None, True, False])
@pytest.mark.parametrize("form", FORMS)
async def test_every_form_is_what_it_says(form: str, stream: bool | None) -> None:
    async with calling(FakeEngine()) as caller:
        answer = await caller.speak(response_format=form, stream=stream)
    assert answer.status == 200
    assert answer.complete
    assert answer.headers["content-type"] == content_type(form)
    assert answer.headers["x-sample-rate"] == "24000"
    if form == "pcm":
        assert answer.body == HELLO_PCM
    else:
        assert 600 <= duration_ms(answer.body) < 710
    known = stream is False or (stream is None and form == "wav")
    assert ("content-length" in answer.headers) == known
    if known:
        assert int(answer.headers["content-length"]) == len(answer.body)


async def test_mp3_is_what_a_request_without_a_form_gets_unless_it_is_set() -> None:
    async with calling(FakeEngine()) as caller:
        assert (await caller.speak()).headers["content-type"] == "audio/mpeg"
        assert (await caller.speak(response_format=None)).headers["content-type"] == "audio/mpeg"
    wavs = ServerSettings(openai=OpenAISettings(default_format="wav"))
    async with calling(FakeEngine(), wavs) as caller:
        assert (await caller.speak()).headers["content-type"] == "audio/wav"


@pytest.mark.parametrize("rate", [8000, 16000, 24000, 22050, 44100, 48000, 12345])
async def test_sample_rates(rate: int) -> None:
    frames = round(len(HELLO) * rate / 20)
    async with calling(FakeEngine()) as caller:
        whole = await caller.speak(response_format="wav", sample_rate=rate)
        raw = await caller.speak(response_format="pcm", sample_rate=rate)
        mp3 = await caller.speak(response_format="mp3", sample_rate=rate)
    with wave.open(io.BytesIO(whole.body)) as file:
        assert file.getframerate() == rate
        assert file.getnframes() == frames
        assert file.readframes(file.getnframes()) == raw.body
    assert raw.headers["x-sample-rate"] == str(rate)
    assert len(raw.body) == 2 * frames
    with av.open(io.BytesIO(mp3.body), "r") as sound:
        assert sound.streams.audio[0].rate == (16000 if rate == 12345 else rate)
        assert mp3.headers["x-sample-rate"] == str(sound.streams.audio[0].rate)


@pytest.mark.parametrize("form", ["wav", "pcm", "flac", "mp3", "opus", "aac"])
@pytest.mark.parametrize("rate", [8001, 44100])
async def test_every_form_is_had_at_any_rate_whole_and_streamed(form: str, rate: int) -> None:
    fields: dict[str, Any] = {"response_format": form, "sample_rate": rate}
    async with calling(FakeEngine()) as caller:
        for more in ({"stream": False}, {"stream_format": "audio"}, {"stream_format": "sse"}):
            answer = await caller.speak(**fields, **more)
            assert answer.status == 200
            assert rate <= int(answer.headers["x-sample-rate"]) <= 48000
            assert answer.body


@pytest.mark.parametrize("rate", [7999, 48001, 0, -8000, 2**70, 24000.5, "24000", True])
async def test_a_sample_rate_out_of_bounds_is_refused_by_name(rate: object) -> None:
    async with calling(FakeEngine()) as caller:
        answer = await caller.speak(sample_rate=rate)
    assert answer.status == 400
    assert answer.error["param"] == "sample_rate"


async def test_a_whole_file_tells_its_usage_in_the_headers_that_vllm_omni_has() -> None:
    async with calling(FakeEngine()) as caller:
        headers = (await caller.speak(response_format="wav")).headers
        streamed = (await caller.speak(response_format="pcm")).headers
        done = (await caller.speak(response_format="pcm", stream_format="sse")).events[-1]
    names = ("input", "output", "total", "input-text", "input-audio")
    told = [int(headers[f"x-vllm-omni-{name}-tokens"]) for name in names]
    used = done["usage"]
    details = used["input_token_details"]
    assert told[:3] == [used[f"{name}_tokens"] for name in names[:3]]
    assert told[3:] == [details["text_tokens"], details["audio_tokens"]] == [len(HELLO), 0]
    # What a stream takes is known at its end only.
    assert not [name for name in streamed if name.startswith("x-vllm-omni")]


async def test_a_streamed_wav_has_a_header_of_unknown_length() -> None:
    async with calling(FakeEngine()) as caller:
        answer = await caller.speak(response_format="wav", stream=True)
    assert answer.body[40:44] == UNKNOWN_LENGTH.to_bytes(4, "little")
    assert answer.body[44:] == HELLO_PCM


DELIVERIES: list[tuple[dict[str, Any], str, str]] = [
    # fields, Accept, kind
    ({}, "", "raw"),
    ({}, "*/*", "raw"),
    ({}, "text/event-stream", "sse"),
    ({}, "audio/*, text/event-stream;q=0.5", "sse"),
    ({}, "text/event-stream;q=0, */*", "raw"),
    ({"stream": True}, "", "raw"),
    ({"stream": True}, "application/octet-stream", "raw"),
    ({"stream": True}, "Text/Event-Stream", "sse"),
    ({"stream": True, "stream_format": "audio"}, "text/event-stream", "raw"),
    ({"stream": True, "stream_format": "sse"}, "", "sse"),
    ({"stream_format": "sse"}, "", "sse"),
    ({"stream_format": "audio"}, "", "raw"),
    ({"stream": False}, "", "whole"),
    ({"stream": False}, "text/event-stream", "whole"),
    ({"stream": False, "stream_format": "audio"}, "", "whole"),
    ({"stream": False, "stream_format": "sse"}, "", "sse"),
]


@pytest.mark.parametrize(("fields", "accept", "kind"), DELIVERIES)
async def test_how_it_is_sent(fields: dict[str, Any], accept: str, kind: str) -> None:
    async with calling(FakeEngine()) as caller:
        answer = await caller.speak({"accept": accept}, response_format="pcm", **fields)
    _check(answer, kind)


@pytest.mark.parametrize("form", ["pcm", "wav"])
async def test_stream_true_alone_may_be_set_to_mean_events(form: str) -> None:
    events = ServerSettings(openai=OpenAISettings(stream_default="sse"))
    async with calling(FakeEngine(), events) as caller:
        _check(await caller.speak(response_format="pcm", stream=True), "sse")
        _check(await caller.speak(response_format="pcm", stream=True, stream_format="audio"), "raw")
        _check(await caller.speak(response_format="pcm"), "raw")


def _check(answer: Answer, kind: str) -> None:
    assert answer.status == 200
    assert ("content-length" in answer.headers) == (kind == "whole")
    if kind != "sse":
        assert answer.headers["content-type"] == "audio/pcm"
        assert answer.body == HELLO_PCM
        return
    *deltas, done = answer.events
    assert {each["type"] for each in deltas} == {"speech.audio.delta"}
    assert b"".join(base64.b64decode(each["audio"]) for each in deltas) == HELLO_PCM
    assert done == {
        "type": "speech.audio.done",
        "usage": {
            "input_tokens": 12,
            "output_tokens": 8,
            "total_tokens": 20,
            "input_token_details": {"text_tokens": 12, "audio_tokens": 0},
        },
    }


@pytest.mark.parametrize("form", FORMS)
async def test_events_carry_every_form(form: str) -> None:
    async with calling(FakeEngine()) as caller:
        answer = await caller.speak(response_format=form, stream_format="sse")
    *deltas, done = answer.events
    assert done["type"] == "speech.audio.done"
    data = b"".join(base64.b64decode(each["audio"]) for each in deltas)
    if form != "pcm":
        assert 600 <= duration_ms(data) < 710


async def test_sound_comes_while_the_rest_is_made() -> None:
    engine = FakeEngine()
    async with calling(engine) as caller:
        call = caller.speaking(response_format="pcm", voice="step")
        engine.step()
        first = await call.some()
        assert first.status == 200
        assert first.body == HELLO_PCM[: 4 * CHAR_SAMPLES]
        assert not first.complete
        engine.step(100)
        assert (await call.done()).body == HELLO_PCM


@pytest.mark.parametrize("fields", [{"stream": True}, {"stream_format": "sse"}, {"stream": False}])
async def test_a_client_that_leaves_frees_the_engine_at_once(fields: dict[str, Any]) -> None:
    engine = FakeEngine(capacity=1)
    async with calling(engine) as caller:
        call = caller.speaking(response_format="pcm", voice="stall", **fields)
        await until(lambda: engine.active > 0)
        await call.leave()
        assert (engine.active, engine.cancelled) == (0, 1)
        assert not call.answer.complete
        assert (await caller.speak(response_format="pcm")).body == HELLO_PCM


async def test_a_client_may_leave_before_its_turn() -> None:
    engine = FakeEngine(capacity=1)
    async with calling(engine) as caller:
        first = caller.speaking(response_format="pcm", voice="stall")
        await first.some()
        second = caller.speaking(response_format="pcm")
        await until(lambda: len(engine.requests) == 2)
        await second.leave()
        assert second.answer.status == 0
        engine.release()
        assert (await first.done()).complete


async def test_a_client_that_takes_nothing_is_cut_off_and_its_engine_freed() -> None:
    engine = FakeEngine()
    impatient = ServerSettings(openai=OpenAISettings(send_timeout_s=0.01))
    async with calling(engine, impatient) as caller:
        for stream in (True, False):
            call = caller.speaking(response_format="pcm", stream=stream)
            call.taking.clear()
            assert not (await call.done()).complete
            assert engine.active == 0


async def test_a_slow_reader_holds_back_only_itself() -> None:
    engine = FakeEngine()
    small = ServerSettings(ahead_ms=100)
    async with calling(engine, small) as caller:
        slow = caller.speaking(response_format="pcm", input="a" * 400)
        slow.taking.clear()
        await until(lambda: engine.active > 0)
        others = [caller.speak(response_format="pcm") for _ in range(20)]
        assert all(each.body == HELLO_PCM for each in await asyncio.gather(*others))
        slow.taking.set()
        assert len((await slow.done()).body) == 2 * 400 * CHAR_SAMPLES


@pytest.mark.parametrize("stream", [True, False])
async def test_an_engine_that_fails_before_any_sound_is_a_500(stream: bool) -> None:
    async with calling(FakeEngine()) as caller:
        answer = await caller.speak(voice="fail", response_format="pcm", stream=stream)
    assert answer.status == 500
    assert answer.error == {
        "message": "It was told to fail. Choose another voice.",
        "type": "server_error",
        "param": None,
        "code": "engine_failed",
    }


@pytest.mark.parametrize("voice", ["fail-late", "crash"])
async def test_a_raw_stream_that_breaks_is_cut_off_a_whole_file_is_refused(voice: str) -> None:
    async with calling(FakeEngine()) as caller:
        raw = await caller.speak(voice=voice, response_format="pcm", stream=True)
        whole = await caller.speak(voice=voice, response_format="pcm", stream=False)
    assert raw.status == 200
    assert raw.body
    assert not raw.complete
    assert whole.status == 500
    assert whole.error["code"] == "engine_failed"


async def test_a_stream_of_events_ends_with_its_error() -> None:
    async with calling(FakeEngine()) as caller:
        answer = await caller.speak(voice="fail-late", response_format="pcm", stream_format="sse")
    assert answer.complete
    *deltas, last = answer.events
    assert deltas
    assert last["type"] == "speech.audio.error"
    assert last["error"]["code"] == "engine_failed"


async def test_a_server_that_stops_ends_what_is_under_way_with_an_error() -> None:
    engine = FakeEngine()
    async with calling(engine) as caller:
        raw = caller.speaking(voice="stall", response_format="pcm", stream=True)
        events = caller.speaking(voice="stall", response_format="pcm", stream_format="sse")
        waiting = caller.speaking(voice="step", response_format="pcm")
        await raw.some()
        await events.some()
        await caller.service.drain(0)
        assert not (await raw.done()).complete
        assert (await events.done()).events[-1]["error"]["code"] == "server_busy"
        assert (await waiting.done()).status == 503
        refused = await caller.speak()
    assert refused.status == 503
    assert refused.headers["retry-after"] == "1"
    assert refused.error["code"] == "server_busy"


async def test_more_requests_than_the_server_takes_are_told_to_try_again() -> None:
    engine = FakeEngine()
    async with calling(engine, ServerSettings(max_connections=2)) as caller:
        calls = [caller.speaking(voice="stall", response_format="pcm") for _ in range(2)]
        for call in calls:
            await call.some()
        assert (await caller.speak()).status == 503
        engine.release()
        for call in calls:
            assert (await call.done()).complete
        assert (await caller.speak()).status == 200


async def test_fields_reach_the_engine() -> None:
    engine = AbleEngine()
    async with calling(engine) as caller:
        answer = await caller.speak(
            response_format="pcm",
            voice={"id": "tone"},
            language="English",
            speed=1.25,
            seed=-1,
            instructions="Calmly.",
            temperature=0.5,
            top_k=3,
            initial_codec_chunk_frames=2,
        )
        await caller.speak(response_format="pcm", speaker="TONE-DE", language="de")
        await caller.speak(response_format="pcm", language="Auto", seed=0)
    assert "x-ignored-fields" not in answer.headers
    request, other, third = engine.requests
    assert request.text == HELLO
    assert (request.voice, request.language, request.speed) == ("tone", "en", 1.25)
    assert request.seed == 2**63 - 1
    assert request.instructions == "Calmly."
    assert request.sampling is not None
    assert (request.sampling.temperature, request.sampling.top_k) == (0.5, 3)
    assert request.initial_codec_chunk_frames == 2
    assert (other.voice, other.language) == ("tone-de", "de")
    assert (third.language, third.seed) == (None, 0)


async def test_fields_that_change_nothing_are_named() -> None:
    async with calling(FakeEngine()) as caller:
        answer = await caller.speak(
            response_format="pcm",
            instructions="Calmly.",
            seed=7,
            max_new_tokens=100,
            extra_params={"a": 1},
            non_streaming_mode=True,
            initial_codec_chunk_frames=0,
            made_up="field",
        )
    assert answer.status == 200
    assert answer.headers["x-ignored-fields"] == (
        "instructions, seed, initial_codec_chunk_frames, max_new_tokens, non_streaming_mode,"
        " extra_params"
    )


@pytest.mark.parametrize(("flag", "layout"), [(True, "full"), (False, "streaming"), (None, None)])
async def test_the_layout_asked_for_is_the_engines_where_it_has_one(
    flag: bool | None, layout: str | None
) -> None:
    engine = FakeEngine()
    engine.options = frozenset({"layout"})
    async with calling(engine) as caller:
        answer = await caller.speak(response_format="pcm", non_streaming_mode=flag)
    assert answer.status == 200
    assert "non_streaming_mode" not in answer.headers.get("x-ignored-fields", "")
    assert engine.requests[-1].layout == layout


@pytest.mark.parametrize("voice", ["alloy", "Verse", "cedar", "default", "Tones", None, ""])
async def test_names_of_voices(voice: str | None) -> None:
    async with calling(TwoVoices()) as caller:
        assert (await caller.speak(response_format="pcm", voice=voice)).body == HELLO_PCM


async def test_openais_voices_speak_every_language() -> None:
    class Strict(TwoVoices):
        def check(self, voice: str | None, language: str | None) -> None:
            super().check(voice, language)
            if voice == "tone" and language == "de":
                super().check("unlisted", None)

    engine = Strict()
    async with calling(engine) as caller:
        for name in ("alloy", "echo", "onyx"):
            assert (await caller.speak(voice=name, language="German")).status == 200
        refused = await caller.speak(voice="tone", language="German")
    assert {request.voice for request in engine.requests} == {"tone-de"}
    assert refused.status == 400
    assert refused.error["param"] == "language"


@pytest.mark.parametrize("text", ["...", "?!", "—", "。", "🙂", "<>", "*", "\u200b.", "- - -"])
@pytest.mark.parametrize("fields", [{"stream": True}, {"stream": False}, {"stream_format": "sse"}])
async def test_a_text_with_nothing_to_say_is_a_short_silence(
    text: str, fields: dict[str, Any]
) -> None:
    silence = bytes(2 * 24 * SILENCE_MS)
    async with calling(FakeEngine()) as caller:
        answer = await caller.speak(input=text, response_format="pcm", **fields)
    assert answer.status == 200
    if "stream" in fields:
        assert answer.body == silence
    else:
        assert base64.b64decode(answer.events[0]["audio"]) == silence


@settings(max_examples=30, deadline=None)
@given(text=st.text(min_size=1, max_size=60))
def test_any_text_is_sound_or_a_named_error(text: str) -> None:
    async def check() -> None:
        async with calling(FakeEngine()) as caller:
            answer = await caller.speak(input=text, response_format="wav")
        if answer.status == 200:
            with wave.open(io.BytesIO(answer.body)) as file:
                assert file.getnframes() > 0
        else:
            assert answer.status == 400
            assert answer.error["param"] == "input"

    asyncio.run(check())


async def test_times_of_words_in_a_header() -> None:
    async with calling(FakeEngine()) as caller:
        answer = await caller.speak(response_format="wav", word_timestamps=True, sample_rate=8000)
        events = await caller.speak(stream_format="sse", word_timestamps=True)
        raw = await caller.speak(stream=True, word_timestamps=True)
    words = [
        {"word": "Hello", "start_ms": 0, "end_ms": 250},
        {"word": "there.", "start_ms": 300, "end_ms": 600},
    ]
    assert json.loads(answer.headers["x-word-timestamps"]) == words
    assert events.events[-1]["word_timestamps"] == words
    assert raw.status == 400
    assert raw.error["param"] == "word_timestamps"


async def test_times_of_words_need_an_engine_that_knows_them() -> None:
    engine = FakeEngine()
    engine.alignment = "none"
    async with calling(engine) as caller:
        answer = await caller.speak(response_format="wav", word_timestamps=True)
        assert (await caller.speak(response_format="wav", word_timestamps=False)).status == 200
    assert answer.error["param"] == "word_timestamps"


def test_the_header_of_words_is_bounded_and_says_what_is_left_out() -> None:
    words = [{"word": "ü" * 10, "start_ms": 1, "end_ms": 2}] * 100
    headers = words_headers(words)
    assert len(headers["X-Word-Timestamps"]) <= 4096
    kept = json.loads(headers["X-Word-Timestamps"])
    assert kept
    assert len(kept) + int(headers["X-Word-Timestamps-Omitted"]) == 100
    assert words_headers([]) == {"X-Word-Timestamps": "[]"}


async def test_many_at_once_do_not_disturb_each_other() -> None:
    async with calling(FakeEngine(capacity=4)) as caller:
        texts = [f"Number {i}." for i in range(40)]
        calls = [caller.speak(input=text, response_format="pcm") for text in texts]
        answers = await asyncio.gather(*calls)
    for text, answer in zip(texts, answers, strict=True):
        assert answer.body == b"".join(map(tone, text))
