"""What vLLM-Omni's clients send: read field by field, refused by name."""

from __future__ import annotations

import contextlib
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_server.dialects.vllm_omni import messages
from qwen3tts_server.dialects.vllm_omni.messages import SessionConfig, config_of, parse
from qwen3tts_server.settings import VllmOmniSettings
from qwen3tts_wire.errors import BadRequest, LimitExceeded, SpeechError
from qwen3tts_wire.fields import kinds

SETTINGS = VllmOmniSettings()
DOCS = Path(__file__).resolve().parents[3] / "docs" / "dialects" / "vllm_omni.md"


def test_what_is_left_out_is_as_vllm_omni_has_it() -> None:
    assert config_of({}) == SessionConfig()
    assert SessionConfig().response_format == "wav"
    assert SessionConfig().split_granularity == "none"
    assert SessionConfig().speed == 1.0
    assert not SessionConfig().stream_audio


def test_every_field_is_read() -> None:
    fields: dict[str, Any] = {
        "model": "m",
        "voice": "v",
        "task_type": "Base",
        "language": "Chinese",
        "instructions": "gently",
        "ref_audio": "data:audio/wav;base64,AAAA",
        "ref_text": "words",
        "x_vector_only_mode": True,
        "speaker_embedding": [0, 0.5],
        "response_format": "pcm",
        "speed": 1,
        "stream_audio": True,
        "word_timestamps": True,
        "max_new_tokens": 2**62,
        "initial_codec_chunk_frames": 0,
        "non_streaming_mode": False,
        "seed": -(2**63),
        "split_granularity": "none",
        "streaming_mode": "token_level",
    }
    assert fields.keys() == kinds(SessionConfig).keys()
    read = config_of(fields)
    assert {**vars(read), "speaker_embedding": [0, 0.5]} == fields


def test_speaker_is_voice_and_voice_goes_first() -> None:
    assert config_of({"speaker": "Vivian"}).voice == "Vivian"
    assert config_of({"speaker": "Vivian", "voice": "Ryan"}).voice == "Ryan"


def test_unknown_fields_are_passed_over_and_their_content_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG):
        assert config_of({"voize": "secret", "stream_mode": "token"}) == SessionConfig()
    assert "2 fields" in caplog.text
    assert "secret" not in caplog.text
    assert "voize" not in caplog.text


NO_STRING: tuple[object, ...] = (5, 1.5, True, [], {})
MISTYPED: dict[str, tuple[object, ...]] = {
    **dict.fromkeys(("model", "voice", "speaker", "language"), NO_STRING),
    "instructions": NO_STRING,
    "ref_audio": NO_STRING,
    "ref_text": NO_STRING,
    "task_type": ("base", "", "Clone", 1),
    "x_vector_only_mode": ("true", 1),
    "speaker_embedding": ("0.1", [None], ["0"], [True], [0.1] * 8193, {"0": 1}),
    "response_format": ("aac", "WAV", "", None, 1),
    "speed": (0.24, 4.01, "1.0", True, [1]),
    "stream_audio": (None, "true", 1),
    "word_timestamps": (None, "yes", 0),
    "max_new_tokens": (0, -1, 2**63, 1.5, "10", True),
    "initial_codec_chunk_frames": (-1, 2**63, 0.5, "4"),
    "non_streaming_mode": ("no", 0),
    "seed": (2**63, -(2**63) - 1, 0.5, "7", True),
    "split_granularity": (None, "word", "Sentence", 1),
    "streaming_mode": ("token", "Token_level", 1, True),
}


@pytest.mark.parametrize(
    ("field", "value"), [(name, each) for name, values in MISTYPED.items() for each in values]
)
def test_a_field_that_cannot_be_is_refused_by_its_name(field: str, value: object) -> None:
    named = "voice" if field == "speaker" else field
    with pytest.raises(SpeechError, match=rf"session\.config\.{named}\b"):
        config_of({field: value})


def test_every_field_has_been_mistyped() -> None:
    assert MISTYPED.keys() - {"speaker"} == kinds(SessionConfig).keys()


@pytest.mark.parametrize(
    "fields",
    [
        {"stream_audio": True},
        {"stream_audio": True, "response_format": "mp3"},
        {"stream_audio": True, "response_format": "pcm", "speed": 1.5},
    ],
)
def test_streaming_needs_pcm_and_the_usual_speed(fields: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match="stream_audio"):
        config_of(fields)
    good = config_of({"stream_audio": True, "response_format": "pcm", "speed": None})
    assert good.stream_audio


@pytest.mark.parametrize(
    "data",
    [
        "",
        "x",
        "{",
        "[]",
        '"session.config"',
        "null",
        "7",
        "{}",
        '{"type": null}',
        '{"type": 5}',
        '{"type": ["session.config"]}',
        '{"type": "input.text", "text": NaN}',
        '{"type": "input.text", "text": Infinity}',
        "[" * 100_000,
        '{"a":' * 20_000,
        '{"type": 1' + "0" * 5000 + "}",
        '{"type": "x"} {"type": "y"}',
        "\ufeff{}",
    ],
)
def test_what_is_no_json_object_with_a_type_is_named(data: str) -> None:
    with pytest.raises(BadRequest):
        parse(data, SETTINGS)


def test_a_message_has_the_bound_of_its_type() -> None:
    words = "w" * (128 * 1024)
    with pytest.raises(LimitExceeded, match="131072"):
        parse(json.dumps({"type": "input.text", "text": words}), SETTINGS)
    with pytest.raises(LimitExceeded, match="131072"):
        parse(json.dumps({"type": "input.text", "text": words + "session.config"}), SETTINGS)
    assert parse(json.dumps({"type": "session.config", "ref_audio": words}), SETTINGS)[1] == {
        "ref_audio": words
    }
    with pytest.raises(LimitExceeded, match="4194304"):
        parse(json.dumps({"type": "session.config", "ref_audio": words * 33}), SETTINGS)


@pytest.mark.parametrize("part", ["[],", "{},", '"a",', "\\u0041"])
def test_a_long_configuration_of_many_small_parts_is_not_read(part: str) -> None:
    bomb = '{"type":"session.config","a":[' + part * 100_000
    with pytest.raises(LimitExceeded, match="16384 parts"):
        parse(bomb, SETTINGS)


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda data: data.decode("latin-1")))
def test_any_text_is_read_or_refused(data: str) -> None:
    try:
        kind, fields = parse(data, SETTINGS)
    except SpeechError:
        return
    assert isinstance(kind, str)
    assert isinstance(fields, dict)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*kinds(SessionConfig), "speaker", "x"]), json_values))
def test_any_fields_give_a_configuration_or_a_named_error(fields: dict[str, Any]) -> None:
    with contextlib.suppress(SpeechError):
        assert config_of(fields).response_format in messages.FORMATS


@given(st.text(st.characters(), max_size=40))
def test_answers_are_valid_unicode_whatever_they_repeat(words: str) -> None:
    halves = words + "\ud83d" + words
    data = messages.message("audio.start", sentence_text=halves)
    assert json.loads(data.encode("utf-8"))["type"] == "audio.start"


def test_the_documentation_has_every_field_with_its_kind_and_default() -> None:
    page = DOCS.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)`[^|]* \| (.*?) \|$", page, re.MULTILINE))
    for name, (kind, _) in kinds(SessionConfig).items():
        default = SessionConfig.__dataclass_fields__[name].default
        shown = "left out" if default is None else f"`{json.dumps(default)}`"
        assert rows[name].startswith(f"{_bounds(kind.describe())} | {shown} |"), name


def _bounds(description: str) -> str:
    return re.sub(r"string, 0 to \d{19} characters", "string", description)
