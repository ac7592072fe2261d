"""One connection's decisions, message by message."""

from __future__ import annotations

import base64
import json

import pytest

from qwen3tts_server.dialects.http_errors import FieldRefused
from qwen3tts_wire.errors import BadRequest, EngineFailed, UnknownVoice
from qwen3tts_wire.heard import Word
from tests.server.vllm_omni.line import (
    CANCEL,
    CLOSE,
    DONE,
    SENTENCES,
    STREAM,
    Line,
    config,
    text,
)

WORD = Word(text="Hi", start=0, end=2400, char_start=0, char_end=2)


def test_a_file_is_announced_sent_whole_and_counted() -> None:
    line = Line()
    line.say(config(), text("Hello. "), text("World"))
    assert line.types == []  # without splitting, nothing is said before the end
    line.say(DONE)
    assert line.last == {
        "type": "audio.start",
        "utterance_index": 0,
        "sentence_index": 0,
        "sentence_text": "Hello. World",
        "format": "wav",
    }
    line.speak(b"RIFF")
    assert line.read[1:] == [
        b"RIFF",
        '{"type":"audio.done","utterance_index":0,"sentence_index":0,"total_bytes":4,"error":false}',
        '{"type":"session.done","utterance_index":0,"total_sentences":1}',
    ]
    line.say(CLOSE)
    assert line.code() == 1000


def test_a_stream_says_its_rate() -> None:
    line = Line()
    line.say(STREAM, text("Hello"), DONE)
    assert line.last["sample_rate"] == 24000
    assert line.last["format"] == "pcm"
    assert "word_timestamps" not in line.last
    line.audio(b"abcd")
    line.audio(b"ef")
    line.finish()
    assert line.read[1:3] == [b"abcd", b"ef"]
    assert line.messages[-2]["total_bytes"] == 6


def test_with_timestamps_audio_is_json_and_the_words_come_last() -> None:
    line = Line()
    line.say({**STREAM, "word_timestamps": True}, text("Hi"), DONE)
    assert line.last["word_timestamps"] is True
    line.audio(bytes(4800))
    line.audio(bytes(2400))
    line.finish(WORD)
    first, second, last, done, _ = line.messages[1:]
    assert first == {
        "type": "audio.chunk",
        "utterance_index": 0,
        "sentence_index": 0,
        "chunk_id": 0,
        "chunk_start_ms": 0,
        "chunk_end_ms": 100,
        "sample_rate": 24000,
        "audio_b64": base64.b64encode(bytes(4800)).decode(),
        "timestamps": None,
    }
    assert (second["chunk_id"], second["chunk_start_ms"], second["chunk_end_ms"]) == (1, 100, 150)
    assert last["audio_b64"] == ""
    assert (last["chunk_id"], last["chunk_start_ms"], last["chunk_end_ms"]) == (2, 0, 150)
    assert last["timestamps"] == [{"word": "Hi", "start_ms": 0, "end_ms": 100}]
    assert done["total_bytes"] == 7200


def test_no_words_are_silence_or_not_known() -> None:
    line = Line()
    line.say({**STREAM, "word_timestamps": True}, text("..."), DONE)
    line.finish()
    assert line.messages[1]["timestamps"] == []
    line.say(text("Hi"), DONE)
    line.speak()
    assert [each["timestamps"] for each in line.messages if each["type"] == "audio.chunk"][
        2
    ] is None


def test_sentences_are_said_one_after_the_other_while_text_comes() -> None:
    line = Line()
    line.say(SENTENCES, text("One. Two. Th"))
    assert line.speak() == "One."
    assert line.speak() == "Two."
    assert line.silent()
    line.say(text("ree."), DONE)
    assert line.speak() == "Three."
    assert line.last == {"type": "session.done", "utterance_index": 0, "total_sentences": 3}


def test_the_connection_goes_on_with_the_next_utterance() -> None:
    line = Line()
    line.say(config(), DONE)
    assert line.last == {"type": "session.done", "utterance_index": 0, "total_sentences": 0}
    line.say(text(""), DONE)
    assert line.last == {"type": "session.done", "utterance_index": 1, "total_sentences": 0}
    line.say(text("Hi"), DONE)
    line.speak()
    assert line.last == {"type": "session.done", "utterance_index": 2, "total_sentences": 1}


def test_all_at_once_is_answered_in_order() -> None:
    line = Line()
    line.say(SENTENCES, text("One. Two"), DONE, {"type": "what"}, text("Six"), DONE, CLOSE)
    said = [line.speak(), line.speak(), line.speak()]
    assert said == ["One.", "Two", "Six"]
    assert line.types == [
        *("audio.start", "audio.done", "audio.start", "audio.done", "session.done"),
        "error",
        *("audio.start", "audio.done", "session.done"),
    ]
    assert line.code() == 1000


def test_a_configuration_replaces_the_whole_one_before_it_and_holds_from_the_next_text() -> None:
    line = Line()
    line.say({**STREAM, "voice": "tone"}, text("One"), DONE, config(language="de"), text("Two"))
    assert line.unit().config.voice == "tone"
    line.speak()
    line.say(DONE)
    assert line.unit().config.voice is None
    assert line.unit().config.language == "de"
    assert not line.unit().config.stream_audio


def test_a_configuration_within_an_utterance_is_refused_and_the_old_one_kept() -> None:
    line = Line()
    line.say(STREAM, text("One"), config())
    assert line.last["code"] == "protocol_error"
    assert "input.done" in line.last["message"]
    line.say(DONE)
    assert line.unit().config.stream_audio
    line.speak()
    line.say({"type": "session.config", "speed": "fast"}, text("Two"), DONE)
    assert line.messages[-2]["code"] == "bad_request"
    assert line.unit().config.stream_audio


def test_the_model_must_be_served() -> None:
    def find(name: str) -> str:
        if name != "tones":
            raise FieldRefused(BadRequest("There is no such model."), "model")
        return name

    line = Line(find)
    line.say(config(model="tones"), config(model="drums"))
    assert line.last["param"] == "model"
    assert line.last["code"] == "bad_request"
    assert line.code() is None
    other = Line(find)
    other.say(config(model="drums"))
    assert other.code() == 1008


def test_a_failed_unit_is_told_and_the_next_is_tried() -> None:
    line = Line()
    line.say(SENTENCES, text("One. Two. "))
    line.fail(FieldRefused(UnknownVoice("No such voice.", remedy="Try tone."), "voice"))
    assert line.messages[1:3] == [
        {
            "type": "error",
            "message": "Generation failed for utterance 0, sentence 0: No such voice. Try tone.",
            "code": "unknown_voice",
            "retryable": False,
            "param": "voice",
            "utterance_index": 0,
            "sentence_index": 0,
        },
        {
            "type": "audio.done",
            "utterance_index": 0,
            "sentence_index": 0,
            "total_bytes": 0,
            "error": True,
        },
    ]
    line.audio(bytes(10))
    line.fail(EngineFailed("broke"))
    error, done = line.messages[-2:]
    assert (error["partial_audio"], error["action"]) == (True, "discard")
    assert error["retryable"] is True
    assert (done["total_bytes"], done["error"]) == (10, True)
    line.say(DONE)
    assert line.last["total_sentences"] == 2


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ("no json", 1008),
        ({"type": "input.text", "text": "Hi"}, 1008),
        (DONE, 1008),
        (CANCEL, 1008),
        (CLOSE, 1008),
        ({"type": "hello"}, 1008),
        ({"type": "session.config", "speed": 9}, 1008),
        (b"\x00", 1003),
        (b"", 1003),
        ("x" * (128 * 1024 + 1), 1009),
        ("x" * (4 * 1024 * 1024 + 1), 1009),
    ],
)
def test_what_comes_before_a_configuration_ends_the_connection(
    bad: dict[str, object] | str | bytes, code: int
) -> None:
    line = Line()
    line.say(bad)
    assert line.types == ["error"]
    assert line.last["code"]
    assert line.told == [line.last["code"]]
    assert line.code() == code
    line.say(config(), text("Hi"), DONE)
    assert line.types == ["error"]


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ("no json", "bad_request"),
        ({"type": "hello"}, "protocol_error"),
        ({"type": "audio.start"}, "protocol_error"),
        ({"type": "input.text"}, "bad_request"),
        ({"type": "input.text", "text": None}, "bad_request"),
        ({"type": "input.text", "text": 5}, "bad_request"),
        ({"type": "input.text", "text": ["Hi"]}, "bad_request"),
        ({"type": "session.config", "seed": "x"}, "bad_request"),
        (b"\x00\x01", "protocol_error"),
        ("x" * (128 * 1024 + 1), "limit_exceeded"),
    ],
)
def test_later_an_error_changes_nothing(bad: dict[str, object] | str | bytes, code: str) -> None:
    line = Line()
    line.say(STREAM)
    line.say(bad, bad)
    assert line.types == ["error", "error"]
    assert line.last["code"] == code
    assert line.code() is None
    line.say(text("Hi"), DONE)
    assert line.speak() == "Hi"


def test_a_message_beyond_every_bound_closes_with_1009() -> None:
    for data in ("x" * 2001, b"x" * 2001):
        line = Line(max_config_chars=2000, max_message_chars=1000, max_waiting_chars=1000)
        line.say(config(), data)
        assert line.last["code"] == "limit_exceeded"
        assert line.code() == 1009


def test_beyond_every_bound_in_mid_speech_the_unit_ends_in_order() -> None:
    line = Line(max_config_chars=2000, max_message_chars=1000)
    line.say(STREAM, text("Hello"), DONE)
    line.audio(bytes(10))
    line.say("x" * 2001, "x" * 2001)
    assert line.silent()
    assert line.types == ["audio.start", "error", "audio.done"]
    assert line.messages[1]["partial_audio"] is True
    assert line.code() == 1009


def test_text_that_waits_is_bounded_and_text_that_is_said_makes_room() -> None:
    line = Line(max_message_chars=100, max_waiting_chars=100)
    line.say(SENTENCES)
    line.say(text("a" * 59 + ". "))
    line.say(text("b" * 59 + "."))
    assert line.types == ["audio.start"]  # the first is being said and counts no more
    line.say(text("c" * 41))
    line.speak()
    assert line.last["code"] == "limit_exceeded"
    line.say(text(" "), DONE)
    assert line.speak() == "b" * 59 + "."  # what was refused was not taken, all else was
    assert line.last["total_sentences"] == 2


def test_answers_that_wait_are_bounded() -> None:
    for message in (DONE, {"type": "x"}, CANCEL):
        line = Line(max_waiting_answers=20)
        line.say(config())
        line.stuck = True
        line.say(*[message] * 100)
        line.unstick()
        assert line.code() == 1008
        assert line.last["code"] == "limit_exceeded"
        assert len(line.messages) <= 32


def test_a_stuck_client_holds_back_the_next_unit() -> None:
    line = Line()
    line.say(SENTENCES, text("One. Two. "))
    line.stuck = True
    line.speak()
    assert line.silent()
    line.unstick()
    assert line.unit().text == "Two."


# --- input.cancel, our addition ---


def test_cancel_ends_what_is_said_and_what_waits_and_says_when() -> None:
    line = Line()
    line.say(SENTENCES, text("One. Two"), DONE, text("Three. "), {"type": "x"}, text("Four"))
    line.audio(bytes(100))
    line.say(CANCEL)
    assert line.silent()
    assert line.messages[1:] == [
        {
            "type": "audio.done",
            "utterance_index": 0,
            "sentence_index": 0,
            "total_bytes": 100,
            "error": False,
            "cancelled": True,
        },
        {"type": "session.done", "utterance_index": 0, "total_sentences": 1, "cancelled": True},
        {**line.messages[3], "type": "error"},
        {"type": "session.done", "utterance_index": 1, "total_sentences": 0, "cancelled": True},
        {"type": "input.cancelled"},
    ]
    line.say(text("Five"), DONE)
    assert line.speak() == "Five"
    assert line.last == {"type": "session.done", "utterance_index": 2, "total_sentences": 1}


def test_cancel_takes_back_sound_that_was_not_written_and_counts_what_was() -> None:
    line = Line()
    line.say(STREAM, text("Hello"), DONE)
    line.audio(bytes(100))
    line.stuck = True
    line.audio(bytes(50))  # on its way
    line.audio(bytes(20))
    line.say(CANCEL)
    line.unstick()
    assert [len(each) for each in line.read if isinstance(each, bytes)] == [100, 50]
    assert line.messages[-3]["total_bytes"] == 150


def test_cancel_is_answered_also_when_there_is_nothing_to_cancel() -> None:
    line = Line()
    line.say(config(), CANCEL, CANCEL)
    assert line.types == ["input.cancelled"] * 2
    line.say(text("Hi"), DONE)
    assert line.messages[-1]["utterance_index"] == 0


def test_what_the_engine_says_after_a_cancel_is_not_heard() -> None:
    line = Line()
    line.say(STREAM, text("Hello"), DONE)
    unit = line.unit()
    line.say(CANCEL)
    count = len(line.read)
    line.act(line.session.audio(unit, b"late", line.now))
    line.act(line.session.finished(unit, (), line.now))
    line.act(line.session.failed(unit, EngineFailed("late"), line.now))
    assert len(line.read) == count


# --- time ---


def test_a_client_that_never_speaks_is_told_and_closed() -> None:
    line = Line()
    line.wait(9.9)
    assert line.code() is None
    line.wait(0.2)
    assert line.last == {
        "type": "error",
        "message": "Timeout waiting for session.config. Connect again.",
        "code": "timeout",
        "retryable": True,
    }
    assert line.code() == 4408


def test_idle_time_ends_the_connection_but_is_not_counted_while_something_is_said() -> None:
    line = Line()
    line.say(STREAM, text("Hello"), DONE)
    line.wait(1000)
    line.speak()
    line.wait(29)
    assert line.code() is None
    line.say(text("more"))
    line.wait(29)
    assert line.code() is None
    line.wait(2)
    assert line.last["message"].startswith("Idle timeout: no message received")
    assert line.code() == 4408


def test_a_client_that_reads_slowly_is_not_idle() -> None:
    line = Line()
    line.say(STREAM, text("Hello"), DONE)
    line.stuck = True
    line.speak()
    line.wait(1000)
    assert line.code() is None
    line.unstick()
    line.wait(31)
    assert line.code() == 4408


def test_timeouts_of_0_never_come() -> None:
    line = Line(config_timeout_s=0, idle_timeout_s=0)
    line.wait(1e6)
    line.say(config())
    line.wait(1e6)
    assert line.code() is None


# --- the server stops ---


def drain(line: Line, seconds: float = 30) -> None:
    line.act(line.session.drain(seconds, line.now))


@pytest.mark.parametrize("messages", [(), (config(),)])
def test_when_the_server_stops_who_says_nothing_is_closed_at_once(
    messages: tuple[dict[str, object], ...],
) -> None:
    line = Line()
    line.say(*messages)
    drain(line)
    assert line.code() == 1012
    assert line.types == []


def test_when_the_server_stops_an_open_utterance_is_finished_and_no_other_begun() -> None:
    line = Line()
    line.say(SENTENCES, text("One. "))
    drain(line)
    line.speak()
    assert line.code() is None
    line.say(text("Two"), DONE, text("Three"))
    assert line.speak() == "Two"
    assert line.types[-3:] == ["audio.done", "session.done", "error"]
    assert line.last["code"] == "server_busy"
    assert line.code() == 1012


def test_at_the_deadline_what_is_said_fails_and_the_connection_is_closed() -> None:
    line = Line()
    line.say(SENTENCES, text("One. Two. "))
    line.audio(bytes(10))
    drain(line, 5)
    line.wait(5)
    assert line.silent()
    assert line.types == ["audio.start", "error", "audio.done"]
    assert line.messages[1]["code"] == "server_busy"
    assert line.code() == 1012


def test_a_stop_may_be_hastened_but_not_put_off() -> None:
    line = Line()
    line.say(STREAM, text("Hello"), DONE)
    drain(line, 5)
    drain(line, 50)
    line.act(line.session.tick(line.now))
    assert not line.silent()
    drain(line, 1)
    line.wait(1)
    assert line.code() == 1012


def test_good_bye_is_the_last_word() -> None:
    line = Line()
    line.say(config(), text("Never said"), CLOSE)
    assert line.types == []
    assert line.code() is not None
    line.say(text("Hi"), DONE)
    line.wait(1000)
    drain(line)
    assert line.types == []


def test_halves_of_characters_are_joined_across_messages() -> None:
    line = Line()
    line.say(config())
    line.say(*(json.dumps(text(half)) for half in ("so \ud83d", "\ude00 \udc00 end\ud83d")))
    line.say(DONE)
    assert line.last["sentence_text"] == "so \U0001f600 \ufffd end\ufffd"
