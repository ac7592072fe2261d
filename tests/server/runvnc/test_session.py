"""Messages to a client of the runvnc protocol, step by step."""

from __future__ import annotations

import json
from typing import Any

import pytest

from qwen3tts_server.settings import RunvncSettings, ServerSettings
from qwen3tts_wire.errors import BadRequest, EngineFailed
from qwen3tts_wire.messages import Limits
from tests.server.runvnc.client import AUDIO, Talk


def error(talk: Talk) -> dict[str, Any]:
    """The one answer, an error."""
    (answer,) = talk.read()
    assert isinstance(answer, dict)
    assert answer["type"] == "error"
    assert answer["message"].strip()
    return answer


def test_connected_comes_first_and_says_what_speaks() -> None:
    assert Talk().heard == [
        {"type": "connected", "model": "tones", "mock_mode": False, "optimized": True}
    ]


def test_a_recording_becomes_the_voice_of_the_connection() -> None:
    talk = Talk()
    talk.say("init", ref_audio_base64=AUDIO, ref_text="Hi.", language="English")
    assert talk.loading is not None
    assert talk.loading.ref_audio_base64 == AUDIO
    talk.load("v9", "Hi.")
    assert talk.read() == [
        {
            "type": "ready",
            "voice_loaded": True,
            "voice_id": "v9",
            "cached": False,
            "ref_text": "Hi.",
        }
    ]
    talk.say("generate_stream", text="Hello.")
    assert (talk.orders[0].voice, talk.orders[0].language) == ("v9", "English")
    assert talk.orders[0].format.encoding == "mulaw"


def test_ready_has_the_text_found_out_and_says_when_none_was() -> None:
    talk = Talk()
    talk.say("init", ref_audio_base64=AUDIO, auto_transcribe=True)
    talk.load("v9", "As heard.")
    assert talk.read()[0]["ref_text"] == "As heard."  # type: ignore[call-overload]
    talk.say("init", ref_audio_base64=AUDIO, auto_transcribe=True)
    talk.load("v8", x_vector_only=True)
    assert talk.read()[0]["x_vector_only"] is True  # type: ignore[call-overload]


def test_a_recording_needs_its_text_or_a_word_about_it() -> None:
    talk = Talk()
    talk.say("init", ref_audio_base64=AUDIO, ref_text=" ")
    assert "ref_text" in error(talk)["message"]
    talk.say("init", ref_audio_base64=AUDIO, x_vector_only=True)
    assert talk.loading is not None


def test_an_init_without_a_voice_is_refused() -> None:
    talk = Talk()
    talk.say("init")
    assert "ref_audio_base64" in error(talk)["message"]
    assert talk.errored == ["bad_request"]


def test_a_voice_that_cannot_be_made_leaves_the_one_before_it() -> None:
    talk = Talk().ready()
    talk.say("init", ref_audio_base64=AUDIO, ref_text="Hi.")
    talk.refuse(BadRequest("This engine makes no voices.", remedy="Name one."))
    answer = error(talk)
    assert (answer["code"], answer["ends"]) == ("bad_request", "none")
    talk.say("generate_stream", text="Hello.")
    assert talk.orders[0].voice == "tone"


def test_what_is_said_is_bracketed_and_cut_into_frames_the_last_one_filled_up() -> None:
    talk = Talk().ready()
    talk.say("generate_stream", text="Hello.", language="Auto", initial_chunk_tokens=4)
    assert (talk.text, talk.ended) == ("Hello.", True)
    assert talk.orders[0].initial_codec_chunk_frames == 4
    assert talk.orders[0].language is None
    talk.sound(b"\x01" * 100)
    assert talk.kinds() == ["audio_start"]
    talk.sound(b"\x02" * 100)
    assert talk.read() == [b"\x01" * 100 + b"\x02" * 60]
    talk.finish()
    assert talk.read() == [b"\x02" * 40 + b"\xff" * 120, {"type": "audio_end"}]


@pytest.mark.parametrize(
    ("fields", "frames"),
    [
        ({}, None),
        ({"initial_chunk_tokens": 0, "emit_every_frames": 2}, 2),
        ({"initial_chunk_tokens": 4, "emit_every_frames": 2, "decode_window_frames": 80}, 4),
        ({"initial_chunk_tokens": 5000, "stream_chunk_tokens": 4}, 100),
    ],
)
def test_the_first_chunk_is_as_asked(fields: dict[str, int], frames: int | None) -> None:
    talk = Talk().ready()
    talk.say("generate_stream", text="Hello.", **fields)
    assert talk.orders[0].initial_codec_chunk_frames == frames


def test_a_cancel_stops_at_once_and_is_answered_by_one_audio_end() -> None:
    talk = Talk().ready()
    talk.generate(20)
    talk.session.data_to_send(talk.now)
    talk.say("cancel")
    assert talk.speaking is None
    assert talk.kinds() == ["audio_end"]
    talk.session.sound(1, bytes(1600))
    talk.act(talk.session.ended(1))
    talk.say("cancel")
    assert talk.kinds() == []


def test_a_cancel_is_in_time_while_the_last_frames_wait() -> None:
    talk = Talk().ready()
    talk.generate(20)
    talk.finish()
    talk.say("cancel")
    assert talk.kinds() == ["audio_start", "audio_end"]
    assert talk.kinds() == []


def test_the_old_ends_before_the_new_begins() -> None:
    talk = Talk().ready()
    talk.generate(20)
    talk.say("generate_stream", text="Another.")
    assert talk.kinds() == ["audio_start", "audio_end", "audio_start"]
    assert (talk.text, talk.speaking) == ("Another.", 2)
    talk.session.sound(1, bytes(160))
    talk.sound(b"\x05" * 160)
    assert talk.read() == [b"\x05" * 160]


def test_a_request_that_is_refused_leaves_what_is_being_said() -> None:
    talk = Talk().ready()
    talk.generate()
    talk.read()
    talk.say("generate_stream", text=" ")
    assert error(talk)["code"] == "bad_text"
    talk.say("generate_stream", text="Hello.", voice_id="unlisted")
    assert error(talk)["code"] == "unknown_voice"
    talk.say("generate_stream", text="Hello.", language="Klingon")
    assert error(talk)["code"] == "unknown_voice"
    talk.sound(bytes(160))
    talk.finish()
    assert talk.kinds() == [".", "audio_end"]


def test_a_failure_takes_the_place_of_audio_end_after_what_was_made() -> None:
    talk = Talk().ready()
    talk.generate(1)
    talk.fail(EngineFailed("It broke.", remedy="Say it again."))
    assert talk.kinds() == ["audio_start", ".", "error"]
    assert talk.heard[-1] == {
        "type": "error",
        "message": "It broke. Say it again.",
        "code": "engine_failed",
        "retryable": True,
        "ends": "speech",
    }
    talk.generate()
    assert talk.kinds() == ["audio_start"]


def test_generate_comes_at_an_even_pace_and_has_audio_start() -> None:
    talk = Talk().ready()
    talk.generate(4, kind="generate")
    assert talk.kinds() == ["audio_start", "."]
    for frame in range(1, 4):
        due = talk.session.next_write(talk.now)
        assert due is not None
        assert due == pytest.approx(100.0 + 0.01 * frame)
        assert talk.kinds() == []
        talk.now = due + 1e-9
        assert talk.kinds() == ["."]
    talk.finish()
    assert talk.kinds() == ["audio_end"]


def test_frames_that_are_late_do_not_come_in_a_burst() -> None:
    talk = Talk().ready()
    talk.generate(30, kind="generate")
    talk.read()
    talk.now += 5.0
    assert len(talk.kinds()) <= 2
    unpaced = Talk(generate_frame_ms=0).ready()
    unpaced.generate(30, kind="generate")
    assert unpaced.kinds().count(".") == 30


def test_text_is_spoken_while_it_is_written() -> None:
    talk = Talk().ready()
    talk.say("text", text="")
    assert talk.kinds() == []
    talk.say("text", text="Hello \ud83d")
    assert talk.kinds() == ["audio_start"]
    assert (talk.text, talk.ended) == ("Hello ", False)
    talk.say("text", text="\ude00 you.", final=False)
    talk.sound(bytes(160))
    assert talk.kinds() == ["."]
    talk.say("text", text="", final=True)
    assert (talk.text, talk.ended) == ("Hello \U0001f600 you.", True)
    talk.finish()
    assert talk.kinds() == ["audio_end"]
    talk.say("text", text="Again.", final=True)
    assert talk.kinds() == ["audio_start"]
    assert talk.ended


def test_text_that_ends_before_it_began_is_refused() -> None:
    talk = Talk().ready()
    talk.say("text", text=" ", final=True)
    assert error(talk)["code"] == "bad_text"


def test_without_a_voice_nothing_is_said_unless_one_is_named_or_set() -> None:
    talk = Talk()
    talk.say("generate_stream", text="Hello.")
    assert "init" in error(talk)["message"]
    talk.say("generate_stream", text="Hello.", voice_id="tone")
    assert talk.kinds() == ["audio_start"]
    talk = Talk(default_voice="tone")
    talk.say("generate_stream", text="Hello.")
    assert talk.orders[0].voice == "tone"


def test_what_comes_while_a_voice_is_loaded_waits_for_it() -> None:
    talk = Talk()
    talk.say("init", ref_audio_base64=AUDIO, ref_text="Hi.")
    talk.say("generate_stream", text="Hello.")
    talk.say("init", voice_id="tone")
    talk.say("generate_stream", text="Hello.")
    talk.say("ping")
    assert talk.kinds() == ["pong"]
    talk.load("v1")
    assert talk.kinds() == ["ready", "audio_start"]
    assert talk.orders[-1].voice == "v1"
    talk.load("tone")
    assert talk.kinds() == ["ready", "audio_end", "audio_start"]
    assert talk.orders[-1].voice == "tone"


def test_a_cancel_takes_back_what_waits_for_a_voice() -> None:
    talk = Talk()
    talk.say("init", ref_audio_base64=AUDIO, ref_text="Hi.")
    talk.say("generate_stream", text="Hello.")
    talk.say("init", voice_id="tone")
    talk.say("cancel")
    talk.say("cancel")
    assert talk.kinds() == ["audio_end"]
    talk.load()
    talk.load("tone")
    assert talk.kinds() == ["ready", "ready"]


def test_what_waits_for_a_voice_is_bounded_and_refusals_go_on() -> None:
    talk = Talk(max_waiting=2, max_init_bytes=500)
    talk.say("init", ref_audio_base64=AUDIO, ref_text="Hi.")
    talk.say("generate_stream", text="a" * 400)
    talk.say("generate_stream", text="b" * 400)
    assert error(talk)["code"] == "server_busy"
    talk.say("text", text="")
    talk.say("text", text="")
    assert error(talk)["code"] == "server_busy"
    talk.refuse(BadRequest("No."))
    assert talk.kinds() == ["error", "error"]
    assert talk.loading is None


@pytest.mark.parametrize(
    "message",
    [
        "",
        "{",
        "[]",
        "null",
        "7",
        '"init"',
        "{}",
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"type":"ping","x":' + "9" * 5000 + "}",
        '{"type":"ping","x":NaN}',
        '{"type":7}',
        '{"type":"generate_stream"}',
        '{"type":"generate"}',
        '{"type":"text"}',
        '{"type":"session.config"}',
        '{"type":"generate_stream","text":7}',
        '{"type":"generate_stream","text":null}',
        '{"type":"generate_stream","text":["Hello"]}',
        '{"type":"generate_stream","text":"Hello","initial_chunk_tokens":"4"}',
        '{"type":"generate_stream","text":"Hello","initial_chunk_tokens":-1}',
        '{"type":"generate_stream","text":"Hello","voice_id":7}',
        '{"type":"generate_stream","text":"Hello","language":{}}',
        '{"type":"text","text":"Hello","final":"yes"}',
        '{"type":"init","ref_audio_base64":7}',
        '{"type":"init","voice_id":"a\\u0000b"}',
        '{"type":"init","voice_id":"' + "v" * 300 + '"}',
        '{"type":"init","voice_id":"tone","x_vector_only":1}',
        b"",
        b"\x00" * 320,
    ],
)
def test_a_bad_message_has_a_named_answer_and_the_connection_goes_on(message: str | bytes) -> None:
    talk = Talk().ready()
    talk.raw(message)
    answer = error(talk)
    assert answer["code"] in ("bad_request", "limit_exceeded")
    assert answer["ends"] == "none"
    assert len(json.dumps(answer)) < 600
    assert talk.close_code() is None
    talk.say("ping")
    assert talk.kinds() == ["pong"]


def test_a_message_that_is_too_long_ends_the_connection() -> None:
    for text, most in (("x" * 300, "chars"), ("x" * 900, "bytes")):
        talk = Talk(max_message_chars=200, max_init_bytes=800).ready()
        talk.generate()
        talk.read()
        talk.say("generate_stream", text=text)
        answer = error(talk)
        assert (answer["code"], answer["ends"]) == ("limit_exceeded", "connection"), most
        assert talk.close_code() == 1009
        assert talk.speaking is None
        talk.say("ping")
        assert talk.kinds() == []


def test_a_text_is_bounded_also_when_it_comes_in_pieces() -> None:
    settings = ServerSettings(
        limits=Limits(max_text_chars=10), runvnc=RunvncSettings(default_voice="tone")
    )
    talk = Talk(settings=settings)
    talk.say("generate_stream", text="x" * 11)
    assert error(talk)["code"] == "limit_exceeded"
    talk.say("text", text="x" * 6)
    talk.say("text", text="y" * 6)
    assert talk.kinds() == ["audio_start", "error"]
    assert talk.text == "xxxxxx"
    talk.say("text", text="zzzz", final=True)
    assert talk.text == "xxxxxxzzzz"


def test_the_engine_is_held_back_while_enough_frames_wait() -> None:
    talk = Talk(settings=ServerSettings(ahead_ms=200)).ready()
    talk.generate(9)
    full = [talk.session.full]
    talk.sound(bytes(160))
    full.append(talk.session.full)
    talk.read()
    full.append(talk.session.full)
    assert full == [False, True, False]


def test_a_client_that_never_speaks_or_is_silent_for_long_is_told_and_closed() -> None:
    talk = Talk()
    talk.pass_time(29.0)
    assert talk.close_code() is None
    talk.pass_time(2.0)
    assert talk.close_code() == 4408
    talk = Talk(idle_s=60.0).ready()
    talk.generate()
    talk.pass_time(600.0)
    assert talk.close_code() is None
    talk.finish()
    talk.read()
    talk.pass_time(59.0)
    assert talk.close_code() is None
    talk.pass_time(2.0)
    assert talk.close_code()


def test_a_server_that_stops_lets_speech_end_and_takes_nothing_new() -> None:
    talk = Talk().ready()
    talk.generate(1)
    talk.act(talk.session.drain(5.0, talk.now))
    assert talk.close_code() is None
    talk.say("generate_stream", text="More.")
    talk.say("init", voice_id="tone")
    assert talk.kinds() == ["audio_start", "error", "error", "."]
    talk.finish()
    assert talk.kinds() == ["audio_end"]
    assert talk.close_code() == 1012


def test_speech_that_takes_too_long_ends_with_an_error_when_the_server_stops() -> None:
    talk = Talk().ready()
    talk.generate(3, kind="generate")
    talk.act(talk.session.drain(5.0, talk.now))
    talk.pass_time(6.0)
    assert talk.heard[-1]["code"] == "server_busy"  # type: ignore[call-overload]
    assert talk.close_code()
    idle = Talk().ready()
    idle.act(idle.session.drain(5.0, idle.now))
    assert idle.close_code()
    loading = Talk()
    loading.say("init", voice_id="v1")
    loading.act(loading.session.drain(5.0, loading.now))
    loading.pass_time(6.0)
    assert loading.close_code()
