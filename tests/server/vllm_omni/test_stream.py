"""vLLM-Omni's message sequences against a server that listens."""

from __future__ import annotations

import base64
import io
import logging
import wave

import av
import pytest

from qwen3tts_engine.base import SynthesisRequest
from tests.engine.fake_engine import CHAR_SAMPLES, FakeEngine, tone
from tests.server.test_metrics import figures
from tests.server.vllm_omni.line import (
    CANCEL,
    CLOSE,
    DONE,
    JSON,
    SENTENCES,
    STREAM,
    config,
    text,
)
from tests.server.vllm_omni.peer import empty, idle, peer, serving, speaking
from tests.server.voices.world import Cloner, wav

pytestmark = pytest.mark.network


def tones(words: str) -> bytes:
    return b"".join(map(tone, words))


# --- the message sequences of the example client ---


async def test_the_example_clients_sequence_with_two_utterances() -> None:
    # Its defaults: a speaker by name, a task, a language; one file for each utterance.
    first = config(
        speaker="tone", task_type="CustomVoice", language="Auto", response_format="wav", speed=1.0
    )
    async with serving() as server, peer(server, first) as client:
        for number, words in enumerate(("Hello you", "And you")):
            for word in words.split(" "):
                await client.say(text(word + " "))
            await client.say(DONE)
            start, done, end = await client.until("session.done")
            assert start == {
                "type": "audio.start",
                "utterance_index": number,
                "sentence_index": 0,
                "sentence_text": words,
                "format": "wav",
            }
            (file,) = client.frames
            assert done["total_bytes"] == len(file)
            assert end["total_sentences"] == 1
            with wave.open(io.BytesIO(file)) as opened:
                assert opened.getframerate() == 24000
                assert opened.readframes(opened.getnframes()) == tones(words)
        await client.say(CLOSE)
        assert await client.rest() == ([], 1000)


@pytest.mark.parametrize("form", ["wav", "flac", "mp3", "opus"])
async def test_every_file_can_be_played(form: str) -> None:
    async with serving() as server, peer(server, config(response_format=form)) as client:
        await client.say(text("Hello, hello"), DONE)
        start, done, _ = await client.until("session.done")
        assert start["format"] == form
        assert "sample_rate" not in start
        (file,) = client.frames
        assert done["total_bytes"] == len(file)
        with av.open(io.BytesIO(file), "r") as opened:
            frames = list(opened.decode(audio=0))
        seconds = sum(frame.samples for frame in frames) / frames[0].sample_rate
        assert seconds == pytest.approx(12 * 0.05, abs=0.09)


async def test_a_pcm_file_is_the_samples() -> None:
    async with serving() as server, peer(server, config(response_format="pcm")) as client:
        await client.say(text("Hello"), DONE)
        await client.until("session.done")
        assert client.frames == [tones("Hello")]


async def test_a_stream_comes_while_it_is_made() -> None:
    engine = FakeEngine()
    async with serving(engine) as server, peer(server, {**STREAM, "voice": "step"}) as client:
        await client.say(text("Hello"), DONE)
        start = await client.hear()
        assert isinstance(start, dict)
        assert start["sample_rate"] == 24000
        engine.step()
        assert await client.hear() == tones("He")
        engine.step(9)
        done, _ = await client.until("session.done")
        assert client.sound == tones("llo")
        assert done["total_bytes"] == len(tones("Hello"))


async def test_sentences_are_said_while_text_comes() -> None:
    async with serving() as server, peer(server, SENTENCES) as client:
        await client.say(text("One. Tw"))
        heard = await client.until("audio.done")
        assert heard[0]["sentence_text"] == "One."
        await client.say(text("o. Three"), DONE)
        heard = await client.until("session.done")
        starts = [each for each in heard if each["type"] == "audio.start"]
        assert [each["sentence_text"] for each in starts] == ["Two.", "Three"]
        assert [each["sentence_index"] for each in starts] == [1, 2]
        assert client.sound == tones("Two.Three")
        assert heard[-1]["total_sentences"] == 3


async def test_words_come_with_their_times() -> None:
    ask = {**STREAM, "word_timestamps": True}
    async with serving() as server, peer(server, ask) as client:
        await client.say(text("Good day"), DONE)
        start, *chunks, last, done, _ = await client.until("session.done")
        assert start["word_timestamps"] is True
        sound = b"".join(base64.b64decode(each["audio_b64"]) for each in chunks)
        assert sound == tones("Good day")
        assert last["timestamps"] == [
            {"word": "Good", "start_ms": 0, "end_ms": 200},
            {"word": "day", "start_ms": 250, "end_ms": 400},
        ]
        assert done["total_bytes"] == len(sound)
        assert client.frames == []


async def test_everything_may_be_sent_at_once() -> None:
    story = [
        SENTENCES,
        text("One. Two"),
        DONE,
        config(response_format="pcm"),
        text("Three. Four"),
        DONE,
        CLOSE,
    ]
    async with serving() as server, peer(server, *story) as client:
        heard, code = await client.rest()
        assert code == 1000
        assert [each["sentence_text"] for each in heard if each["type"] == "audio.start"] == [
            "One.",
            "Two",
            "Three. Four",
        ]
        assert [each["total_sentences"] for each in heard if each["type"] == "session.done"] == [
            2,
            1,
        ]


async def test_a_long_text_is_taken_in_turns_and_said_whole() -> None:
    words = "words " * 1500
    async with serving() as server, peer(server, STREAM, text(words), DONE) as client:
        start = await client.hear()
        assert isinstance(start, dict)
        assert start["sentence_text"] == words.strip()
        await client.hear()
        await client.say(CANCEL)
        await client.until("input.cancelled")


async def test_text_with_nothing_to_say_is_an_empty_unit() -> None:
    async with serving() as server:
        async with peer(server, config(response_format="pcm"), text("..."), DONE) as client:
            heard = await client.until("session.done")
            assert [each["type"] for each in heard] == ["audio.start", "audio.done", "session.done"]
            assert client.frames == [b""]
        async with peer(server, STREAM, DONE) as client:
            (end,) = await client.until("session.done")
            assert end["total_sentences"] == 0


# --- what is asked of the engine ---


async def asked(*messages: JSON, engine: FakeEngine | None = None) -> SynthesisRequest:
    engine = engine or FakeEngine()
    async with serving(engine) as server, peer(server, *messages, text("Hi"), DONE) as client:
        heard = await client.until("session.done")
        assert heard[1]["type"] == "audio.done", heard[1]
    return engine.requests[-1]


async def test_the_configuration_reaches_the_engine() -> None:
    request = await asked(
        config(
            voice="Tones",
            language="English",
            instructions="Gently.",
            seed=-1,
            initial_codec_chunk_frames=1000,
            non_streaming_mode=True,
        )
    )
    assert (request.voice, request.language) == ("tone", "en")
    assert request.instructions == "Gently."
    assert request.seed == 2**63 - 1
    assert request.initial_codec_chunk_frames == 100
    assert request.final
    plain = await asked(config(language="auto", initial_codec_chunk_frames=0, speaker=""))
    assert (plain.voice, plain.language, plain.initial_codec_chunk_frames) == (None, None, None)


@pytest.mark.parametrize(("flag", "layout"), [(True, "full"), (False, "streaming"), (None, None)])
async def test_the_layout_is_the_engines_where_it_has_one(
    flag: bool | None, layout: str | None
) -> None:
    engine = FakeEngine()
    engine.options = frozenset({"layout"})
    assert (await asked(config(non_streaming_mode=flag), engine=engine)).layout == layout


async def test_speed_is_the_engines_where_it_has_one() -> None:
    engine = FakeEngine()
    engine.options = frozenset({"speed"})
    assert (await asked(config(speed=1.5), engine=engine)).speed == 1.5
    assert (await asked(config(speed=None), engine=engine)).speed == 1.0


async def test_openais_voices_are_known() -> None:
    assert (await asked(config(voice="alloy"))).voice is not None


async def test_a_bound_in_tokens_is_a_bound_in_sound() -> None:
    ask = {**STREAM, "max_new_tokens": 2, "word_timestamps": True}
    async with serving() as server:
        async with peer(server, ask, text("ab cdefgh"), DONE) as client:
            *_, last, done, _ = await client.until("session.done")
            assert done["total_bytes"] == 2 * 2 * 1920
            assert last["timestamps"] == [{"word": "ab", "start_ms": 0, "end_ms": 100}]
        whole = config(response_format="pcm", max_new_tokens=1)
        async with peer(server, whole, text("abcdefgh"), DONE) as client:
            await client.until("session.done")
            assert client.sound == tones("abcdefgh")[: 2 * 1920]


async def test_a_recording_is_a_voice_read_once_for_each_configuration() -> None:
    engine = Cloner()
    reference = "data:audio/wav;base64," + base64.b64encode(wav()).decode()
    ask = config(ref_audio=reference, ref_text="Hello.", split_granularity="sentence")
    async with serving(engine) as server, peer(server, ask) as client:
        await client.say(text("One. Two"), DONE)
        heard = await client.until("session.done")
        assert [each.get("error") for each in heard if each["type"] == "audio.done"] == [False] * 2
        assert engine.computed == 1
        assert set(engine.spoken_with) == set(engine.made)
        await client.say(
            config(task_type="Base", ref_audio=reference[22:], x_vector_only_mode=True)
        )
        await client.say(text("Three"), DONE)
        await client.until("session.done")
        assert engine.computed == 2
        assert list(engine.made.values()) == ["Hello.", None]


# --- units that cannot be said ---


REFUSED: list[tuple[JSON, str, str | None]] = [
    ({"voice": "unlisted"}, "unknown_voice", "voice"),
    ({"language": "Klingon"}, "unknown_voice", "language"),
    ({"speed": 0.3}, "bad_request", "speed"),
    ({"speed": 1.5}, "bad_request", "speed"),
    ({"task_type": "Base", "voice": "tone"}, "bad_request", "task_type"),
    ({"task_type": "VoiceDesign"}, "bad_request", "task_type"),
    ({"ref_audio": "UklGRg==", "ref_text": "x"}, "bad_request", "ref_audio"),
    ({"ref_text": "x"}, "bad_request", "ref_text"),
    ({"ref_audio": "UklGRg==", "task_type": "CustomVoice"}, "bad_request", "ref_audio"),
    ({"speaker_embedding": [0.5] * 1024}, "bad_request", "speaker_embedding"),
    ({"instructions": "x" * 5000}, "limit_exceeded", "instructions"),
    ({"word_timestamps": True}, "bad_request", "word_timestamps"),
]


async def test_what_the_engine_cannot_do_is_refused_for_each_unit() -> None:
    async with serving() as server, peer(server) as client:
        for number, (fields, code, param) in enumerate(REFUSED):
            await client.say(config(split_granularity="sentence", **fields))
            await client.say(text("One. Two"), DONE)
            heard = await client.until("session.done")
            kinds = ["audio.start", "error", "audio.done"] * 2
            assert [each["type"] for each in heard] == [*kinds, "session.done"], fields
            error = heard[1]
            assert (error["code"], error.get("param")) == (code, param)
            place = f"utterance {number}, sentence 0"
            assert error["message"].startswith(f"Generation failed for {place}: ")
        await client.say(STREAM, text("Three"), DONE)
        await client.until("session.done")
        assert client.sound == tones("Three")


async def test_an_engine_without_alignment_cannot_tell_times() -> None:
    engine = FakeEngine()
    engine.alignment = "none"
    ask = {**STREAM, "word_timestamps": True}
    async with serving(engine) as server, peer(server, ask, text("Hi"), DONE) as client:
        heard = await client.until("session.done")
        assert heard[1]["param"] == "word_timestamps"
        assert heard[2]["error"] is True


@pytest.mark.parametrize(("voice", "partial"), [("fail", 0), ("fail-late", 2), ("crash", 2)])
@pytest.mark.parametrize("stream", [True, False])
async def test_an_engine_that_breaks_ends_only_its_unit(
    voice: str, partial: int, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    first = {**(SENTENCES if stream else config()), "voice": voice}
    async with serving() as server, peer(server, first, text("Hello"), DONE) as client:
        heard = await client.until("session.done")
        error, done = heard[1:3]
        assert (error["code"], error["retryable"]) == ("engine_failed", True)
        assert done["error"] is True
        assert done["total_bytes"] == (2 * CHAR_SAMPLES * partial if stream else 0)
        assert error.get("partial_audio", False) is bool(done["total_bytes"])
        await client.say({**STREAM, "voice": "tone"}, text("Hi"), DONE)
        await client.until("session.done")
        assert client.sound == tones("Hi")
    assert "Hello" not in caplog.text


async def test_sound_too_long_for_a_file_is_refused() -> None:
    async with serving(max_file_s=0.3) as server, peer(server, config()) as client:
        await client.say(text("a" * 20), DONE)
        error = (await client.until("session.done"))[1]
        assert error["code"] == "limit_exceeded"
        await client.say(STREAM, text("a" * 20), DONE)
        await client.until("session.done")
        assert client.sound == tones("a" * 20)


# --- the client goes, or wants silence ---


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("polite", [True, False])
async def test_work_stops_when_the_client_goes(stream: bool, polite: bool) -> None:
    engine = FakeEngine(capacity=1)
    ask = {**(STREAM if stream else config()), "voice": "stall"}
    async with serving(engine) as server:
        async with peer(server, ask, text("Hello there"), DONE) as client:
            await speaking(engine)
            if polite:
                await client.socket.close()
            else:
                client.vanish()
            await idle(engine)
            await empty(server)
            assert engine.cancelled == 1
        async with peer(server, STREAM, text("Hi"), DONE) as client:  # the one slot is free
            await client.until("session.done")
            assert client.sound == tones("Hi")


async def test_work_stops_when_the_client_goes_while_its_voice_is_made() -> None:
    engine = Cloner()
    engine.gate.clear()
    ask = config(ref_audio=base64.b64encode(wav()).decode(), ref_text="Hi")
    async with serving(engine) as server:
        async with peer(server, ask, text("Hello"), DONE) as client:
            await client.hear()
            client.vanish()
        await empty(server)
        assert engine.requests == []


async def test_a_cancel_while_a_voice_is_made() -> None:
    engine = Cloner()
    engine.gate.clear()
    ask = config(ref_audio=base64.b64encode(wav()).decode(), ref_text="Hi")
    async with serving(engine) as server, peer(server, ask, text("Hello"), DONE) as client:
        await client.hear()
        await client.say(CANCEL)
        await client.until("input.cancelled")
        await client.say(STREAM, text("Hi"), DONE)
        await client.until("session.done")
        assert client.sound == tones("Hi")


async def test_cloning_needs_somebody_to_clone() -> None:
    ask = config(task_type="Base")
    async with serving(Cloner()) as server, peer(server, ask, text("Hello"), DONE) as client:
        error = (await client.until("session.done"))[1]
        assert (error["code"], error["param"]) == ("bad_request", "ref_audio")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_cancel_frees_the_engine_and_no_sound_follows(stream: bool) -> None:
    engine = FakeEngine(capacity=1)
    ask = {**(SENTENCES if stream else config()), "voice": "stall"}
    async with serving(engine) as server, peer(server, ask) as client:
        await client.say(text("Hello there. And more. "), text("Rest"), DONE)
        await speaking(engine)
        await client.say(CANCEL)
        heard = await client.until("input.cancelled")
        assert [each["type"] for each in heard][-3:] == [
            "audio.done",
            "session.done",
            "input.cancelled",
        ]
        assert heard[-3]["cancelled"] is heard[-2]["cancelled"] is True
        await idle(engine)
        assert engine.cancelled == 1
        await client.say({**STREAM, "voice": "tone"}, text("Hi"), DONE)
        start, *_ = await client.until("session.done")
        assert start["utterance_index"] == 1
        assert client.sound == tones("Hi")


async def test_a_client_that_reads_nothing_stalls_only_itself() -> None:
    engine = FakeEngine()
    async with (
        serving(engine) as server,
        peer(server, STREAM, max_queue=1) as slow,
        peer(server, STREAM) as other,
    ):
        slow.hear_nothing()
        await slow.say(text("word " * 600), DONE)
        await speaking(engine)
        for _ in range(3):
            await other.say(text("Hello"), DONE)
            await other.until("session.done")
            assert other.sound == tones("Hello")
        assert engine.active == 1  # it waits for the slow one and has not made all of it
        slow.hear_again()
        heard = await slow.until("session.done")
        assert heard[-2]["total_bytes"] == len(slow.sound)


async def test_what_is_said_is_not_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        ask = config(voice="Nobodyknown", secretfield="Hidden")
        async with serving() as server, peer(server, ask) as client:
            await client.say(text("Confidential words"), DONE)
            await client.until("session.done")
    ours = [each.getMessage() for each in caplog.records if each.name != "websockets.client"]
    for words in ("onfidential", "idden", "ecretfield", "obodyknown"):
        assert words not in "\n".join(ours)


async def test_what_becomes_of_units_is_counted() -> None:
    engine = FakeEngine()
    async with serving(engine) as server:
        async with peer(server, SENTENCES, text("One. Two"), DONE) as client:
            await client.until("session.done")
            await client.say({"type": "what"}, config(speed=2.0), text("Hi"), DONE)
            await client.until("session.done")
            await client.say(config(voice="fail"), text("Hi"), DONE)
            await client.until("session.done")
            await client.say({**STREAM, "voice": "stall"}, text("Hello"), DONE)
            await speaking(engine)
            await client.say(CANCEL)
            await client.until("input.cancelled")
            await client.say(text("Hello"), DONE)
            await speaking(engine)
            client.vanish()
            await empty(server)
        counted = figures(server.service.meter)
    utterances = {
        key.rpartition(",")[2]: value
        for key, value in counted.items()
        if key.startswith("utterances_total,vllm_omni,")
    }
    assert utterances == {"done": 2, "engine_failed": 1, "cancelled": 1, "gone": 1}
    assert counted["errors_total,protocol_error,vllm_omni"] == 1
    assert counted["errors_total,bad_request,vllm_omni"] == 1
    assert counted["errors_total,engine_failed,vllm_omni"] == 1
    assert counted["connections,vllm_omni"] == 0
