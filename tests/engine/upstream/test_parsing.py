"""What comes from outside, in any cut and of any kind, without a network."""

from __future__ import annotations

import itertools
import json
import struct
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from qwen3tts_engine.base import Voice
from qwen3tts_engine.upstream.backend import VoiceOffer, read_voices, with_default
from qwen3tts_engine.upstream.http import MOST_CHARS, of_fields, of_status, printable
from qwen3tts_engine.upstream.openai_rest import body_for
from qwen3tts_engine.upstream.settings import ServerRoutes, UpstreamSettings
from qwen3tts_engine.upstream.sound import PcmIntake, speakable
from qwen3tts_engine.upstream.vllm_omni import ExchangeState, UtteranceExchange
from qwen3tts_wire.errors import EngineFailed, SpeechError, UnknownVoice
from tests.engine.upstream.test_openai_rest import DONE, delta, event, wav

FEW = settings(max_examples=40)
"""The fuzz targets of the same code try more."""
CUTS = st.lists(st.integers(0, 300), max_size=30)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
FIELDS = ("type", "message", "code", "format", "sample_rate", "channels", "audio_b64", "error")


def cut(data: bytes, at: list[int]) -> list[bytes]:
    places = [0, *sorted(min(place, len(data)) for place in at), len(data)]
    return [data[one:two] for one, two in itertools.pairwise(places)]


def check(error: SpeechError) -> None:
    assert error.remedy
    assert error.message.isprintable()
    assert len(error.message) < 2 * MOST_CHARS


# --- samples ---


@FEW
@given(st.binary(max_size=400), CUTS, st.booleans(), st.booleans())
@example(b"RIF", [1, 2], False, False)
@example(b"RIFF0000WAVX" + bytes(9), [3, 5, 9, 11], False, False)
def test_the_cut_changes_no_sample(data: bytes, at: list[int], header: bool, told: bool) -> None:
    stream = wav(data, size=len(data) if told else 0) if header else data
    if not header and data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return
    intake = PcmIntake()
    out = [intake.push(piece) for piece in cut(stream, at)]
    assert all(len(piece) % 2 == 0 for piece in out)
    try:
        out.append(intake.end())
    except EngineFailed:
        assert header
        assert not data
    assert b"".join(out) == data[: len(data) & ~1]


@FEW
@given(st.binary(max_size=200), CUTS)
def test_any_bytes_behind_riff_are_sound_or_an_error(data: bytes, at: list[int]) -> None:
    intake = PcmIntake()
    try:
        for piece in cut(b"RIFF\0\0\0\0WAVE" + data, at):
            assert len(intake.push(piece)) % 2 == 0
        intake.end()
    except EngineFailed as error:
        check(error)


def test_a_wav_header_without_an_end_is_not_kept() -> None:
    intake = PcmIntake()
    with pytest.raises(EngineFailed, match="does not end"):
        intake.push(b"RIFF\0\0\0\0WAVE" + struct.pack("<4sI", b"LIST", 2**31))


def test_what_follows_a_wav_files_samples_is_not_heard() -> None:
    intake = PcmIntake()
    assert intake.push(wav(b"abcd", size=4) + b"LISTxxxx") == b"abcd"
    assert intake.push(b"more") == b""


# --- the WebSocket's messages ---


@FEW
@given(st.lists(st.binary(max_size=9) | st.dictionaries(st.sampled_from(FIELDS), JSON), max_size=8))
def test_any_messages_are_sound_or_an_error(messages: list[bytes | dict[str, Any]]) -> None:
    exchange = UtteranceExchange()
    try:
        for message in messages:
            data = message if isinstance(message, bytes) else json.dumps(message)
            assert isinstance(exchange.receive(data), bytes)
        exchange.closed(1000)
    except SpeechError as error:
        check(error)


KINDS = ("audio.start", "audio.done", "session.done", "sound", "error", "other")


@FEW
@given(st.lists(st.sampled_from(KINDS), max_size=12))
def test_any_order_ends_done_or_in_an_error(kinds: list[str]) -> None:
    exchange = UtteranceExchange()
    sound = b""
    try:
        for kind in kinds:
            if exchange.done:
                break
            sound += exchange.receive(b"ab" if kind == "sound" else json.dumps({"type": kind}))
        exchange.closed(1006)
        assert exchange.state is ExchangeState.DONE
        assert len(sound) == exchange.received
    except EngineFailed:
        assert not exchange.done


@FEW
@given(st.text(max_size=60))
def test_any_text_is_no_crash(text: str) -> None:
    exchange = UtteranceExchange()
    try:
        assert exchange.receive(text) == b""
    except SpeechError as error:
        check(error)


# --- bodies ---


@FEW
@given(st.binary(max_size=300), CUTS)
def test_the_cut_of_events_changes_no_byte(data: bytes, at: list[int]) -> None:
    body = body_for("text/event-stream; charset=utf-8", None, 10_000)
    half = len(data) // 2
    stream = b": x\r\n\r\n" + delta(data[:half]) + event(type="other") + delta(data[half:]) + DONE
    assert b"".join(map(body.push, cut(stream, at))) == data
    body.end()


@FEW
@given(st.binary(max_size=200) | JSON.map(lambda found: f"data: {json.dumps(found)}\n\n".encode()))
def test_any_events_are_sound_or_an_error(data: bytes) -> None:
    body = body_for("text/event-stream", None, 1000)
    try:
        body.push(data)
        body.end()
    except SpeechError as error:
        check(error)


@FEW
@given(st.text(max_size=40), st.none() | st.text(max_size=12))
@example("audio/pcm; rate=²", "²")
@example("audio/pcm; rate*=utf-8''24000", None)
def test_any_headers_are_a_body_or_an_error(kind: str, rate: str | None) -> None:
    try:
        body_for(kind.replace("\r", "").replace("\n", ""), rate, 100)
    except EngineFailed as error:
        check(error)


# --- faults ---


@FEW
@given(st.integers(100, 599), st.binary(max_size=200), st.sampled_from(["", "text/html", "x"]))
def test_any_answer_is_an_error_with_a_remedy(status: int, body: bytes, kind: str) -> None:
    error = of_status(status, body, kind)
    assert error.remedy
    assert error.message.isprintable()


@FEW
@given(st.integers(400, 599), JSON)
def test_any_json_answer_is_an_error_with_a_remedy(status: int, found: object) -> None:
    for answer in (found, {"error": found}, {"detail": found}, {"detail": [found, {"msg": "x"}]}):
        error = of_status(status, json.dumps(answer).encode(), "application/json")
        assert error.remedy
        assert error.message.isprintable()


def test_a_body_nested_without_end_is_an_error() -> None:
    assert of_status(500, b"[" * 60_000, "application/json").code == "engine_failed"


@FEW
@given(st.dictionaries(st.sampled_from(["message", "code", "param", "type", "remedy"]), JSON))
def test_any_fields_are_an_error_with_a_remedy(fields: dict[str, Any]) -> None:
    assert of_fields(fields).remedy


@FEW
@given(st.text())
def test_what_a_server_says_is_one_bounded_line(text: str) -> None:
    said = printable(text)
    assert said.isprintable()
    assert len(said) <= MOST_CHARS


# --- voices ---


@FEW
@given(st.binary(max_size=100) | JSON.map(lambda found: json.dumps(found).encode()))
def test_any_list_of_voices_is_voices_or_no_list(body: bytes) -> None:
    try:
        voices = read_voices(body)
    except ValueError:
        return
    assert len({voice.id for voice in voices}) == len(voices)
    assert all(voice.id.isprintable() for voice in voices)


def test_every_form_of_list_is_read() -> None:
    assert [v.id for v in read_voices(b'["a", "b", "a", "", 5]')] == ["a", "b"]
    found = read_voices(
        json.dumps(
            {
                "voices": [{"id": "a", "name": "Anna", "language": "de", "gender": "female"}],
                "uploaded_voices": [{"name": "b", "speaker_description": "warm"}],
            }
        ).encode()
    )
    assert found == [
        Voice("a", "Anna", "de", "female", ""),
        Voice("b", "b", "mul", None, "warm"),
    ]


def test_a_voice_is_found_in_any_case_and_near_ones_are_named() -> None:
    offer = VoiceOffer([Voice("Vivian", "Vivian", "zh"), Voice("Ryan", "Ryan", "en")], ())
    assert offer.voice("vivian") == "Vivian"
    assert offer.voice(None) is None
    with pytest.raises(UnknownVoice) as caught:
        offer.voice("vivien")
    assert caught.value.remedy == "Near it: Vivian."


@pytest.mark.parametrize(
    ("wanted", "sent"),
    [
        ("zh", "Chinese"),
        ("zh-Hant-TW", "Chinese"),
        ("EN_us", "English"),
        ("english", "English"),
        ("auto", None),
        ("mul", None),
        (None, None),
    ],
)
def test_a_language_is_sent_by_the_servers_name(wanted: str | None, sent: str | None) -> None:
    assert VoiceOffer([], UpstreamSettings().languages).language(wanted) == sent


def test_without_a_list_of_languages_any_is_sent_as_it_is() -> None:
    assert VoiceOffer([], ()).language("qq-Latn") == "qq-Latn"


def test_the_default_stands_first() -> None:
    voices = [Voice("a", "a", "mul"), Voice("b", "b", "mul")]
    assert [v.id for v in with_default(voices, "b")] == ["b", "a"]
    assert [v.id for v in with_default(voices, "c")] == ["c", "a", "b"]
    assert with_default([], "c") == []


# --- settings ---


@pytest.mark.parametrize(
    ("url", "speech", "base"),
    [
        ("ws://h:1", "ws://h:1/v1/audio/speech/stream", "http://h:1/v1"),
        ("wss://h/v1/", "wss://h/v1/audio/speech/stream", "https://h/v1"),
        ("ws://h/x/audio/speech/stream", "ws://h/x/audio/speech/stream", "http://h/x"),
        ("ws://h/odd", "ws://h/odd", "http://h/v1"),
        ("http://h", "http://h/v1/audio/speech", "http://h/v1"),
        ("https://h/api/v1/", "https://h/api/v1/audio/speech", "https://h/api/v1"),
        ("http://h/v1/audio/speech", "http://h/v1/audio/speech", "http://h/v1"),
    ],
)
def test_the_routes_follow_from_the_address(url: str, speech: str, base: str) -> None:
    UpstreamSettings(url=url)
    assert ServerRoutes.of(url) == ServerRoutes(speech, base, url.split("/")[2])


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "ftp://h"},
        {"url": "http://"},
        {"url": "http://[h"},
        {"url": "http://h:0"},
        {"url": "http://h:99999"},
        {"url": "http://user:key@h"},
        {"url": "http://h?key=1"},
        {"extra": "{"},
        {"extra": "[]"},
        {"options": ("lead",)},
        {"stall_s": 0.0},
        {"first_audio_s": float("nan")},
        {"max_connections": 0},
        {"retries": -1},
        {"task": "sing"},
        {"voices": ("a\nb",)},
        {"voice": "x" * 300},
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        UpstreamSettings(**settings)
    assert "user:key" not in str(caught.value)


def test_the_key_is_not_shown() -> None:
    assert "s3cret" not in repr(UpstreamSettings(api_key="s3cret"))


@pytest.mark.parametrize(
    ("text", "said"), [("a", True), ("5", True), ("你", True), ("€", True), ("…?! \u2013", False)]
)
def test_what_can_be_said(text: str, said: bool) -> None:
    assert speakable(text) is said


def test_samples_are_little_endian() -> None:
    assert PcmIntake().push(np.array([1, -2], "<i2").tobytes()) == b"\x01\x00\xfe\xff"


def test_every_setting_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "upstream.md").read_text("utf-8")
    for each in fields(UpstreamSettings):
        assert f"`{each.name}`" in page
