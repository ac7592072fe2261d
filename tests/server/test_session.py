from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from qwen3tts_codecs.g711 import encode_alaw, encode_ulaw
from qwen3tts_codecs.pcm import from_bytes, to_bytes
from qwen3tts_codecs.resample import Resampler
from qwen3tts_engine.base import PcmChunk
from qwen3tts_wire.errors import EngineFailed
from qwen3tts_wire.formats import FORMATS, AudioFormat, AudioFrame
from qwen3tts_wire.heard import Word
from qwen3tts_wire.messages import AlignmentInfo, ErrorInfo, Pong
from tests.server.driver import Driver, tone, voices


def types(events: Sequence[object]) -> list[str]:
    return [type(each).__name__ for each in events]


# --- one utterance ---


def test_a_sentence_is_started_aligned_spoken_and_done() -> None:
    line = Driver()
    no = line.open(voice="tone")
    line.say(no, "Hello.", end=True)
    line.speak(no, 2400)
    line.read()
    assert types(line.events[1:]) == [
        "ContextStarted",
        "AlignmentInfo",
        "AudioFrame",
        "ContextDone",
    ]
    assert line.sound(no) == tone(2400)
    assert (line.done().samples, line.done().chars, line.done().clauses) == (2400, 6, 1)


def test_clauses_go_to_the_engine_one_after_another_without_waiting_for_playout() -> None:
    line = Driver()
    no = line.open()
    line.say(no, "One is said. Two is said. Three is said. ", end=True)
    said = []
    while no in line.speaking:
        said.append(line.speaking[no].text)
        line.speak(no)
    line.read()
    assert "".join(said).replace(" ", "") == "Oneissaid.Twoissaid.Threeissaid."
    assert len(said) > 1
    assert line.done().clauses == len(said)
    assert [request.final for _, request in line.requests].count(True) <= 1
    # A pause at the start of a later clause is part of the speech.
    assert [request.continued for _, request in line.requests] == [False] + [True] * (len(said) - 1)


def test_positions_of_words_count_from_the_contexts_first_sample_and_text() -> None:
    line = Driver()
    no = line.open()
    line.say(no, "One is said. Two is said. ", end=True)
    while no in line.speaking:
        line.speak(no, 2400)
    line.read()
    words = [w for e in line.events if isinstance(e, AlignmentInfo) for w in e.words]
    text = "One is said. Two is said. "
    assert [(w.start, w.end) for w in words] == [
        (2400 * i, 2400 * (i + 1)) for i in range(len(words))
    ]
    for word in words:
        assert text[word.char_start : word.char_end].strip() == word.text


def test_alignment_comes_before_its_audio() -> None:
    line = Driver()
    no = line.open()
    line.say(no, "Hello.", end=True)
    line.produce(no, tone(100), Word("Hello.", 0, 100, 0, 6))
    assert types(line.read())[-2:] == ["AlignmentInfo", "AudioFrame"]


def test_the_first_frame_of_a_clause_is_flagged() -> None:
    line = Driver()
    no = line.open()
    line.say(no, "One is said. Two is said. ", end=True)
    clauses = 0
    while no in line.speaking:
        line.produce(no, tone(2400))
        line.produce(no, tone(2400))
        line.finish(no)
        clauses += 1
    line.read()
    flags = [each.flags for each in line.events if isinstance(each, AudioFrame)]
    assert flags == [1, 0] * clauses


@pytest.mark.parametrize("text", ["", " ", "\n\n", "\U0001f600"])
def test_text_with_nothing_to_say_is_done_at_once(text: str) -> None:
    line = Driver()
    no = line.open()
    line.say(no, text, end=True)
    while no in line.speaking:
        line.finish(no)
    line.read()
    assert line.done().samples == 0
    assert line.done().chars == len(text)


def test_long_chunks_are_cut_into_frames() -> None:
    line = Driver(frame_ms=50)
    no = line.open()
    line.say(no, "Hello.", end=True)
    line.produce(no, tone(5000))
    frames = [each for each in line.read() if isinstance(each, AudioFrame)]
    assert [len(each.data) // 2 for each in frames] == [1200] * 4 + [200]


# --- formats ---


@pytest.mark.parametrize("form", FORMATS, ids=lambda f: f"{f.encoding}-{f.sample_rate}")
def test_sound_comes_in_the_form_asked_for_and_words_keep_their_place(form: AudioFormat) -> None:
    line = Driver()
    no = line.open(format=form)
    line.say(no, "Hello.", end=True)
    for part in range(10):
        line.produce(no, tone(1234), Word("w", 1234 * part, 1234 * (part + 1), 0, 5))
    line.finish(no)
    line.read()
    reference = Resampler(24000, form.sample_rate, aligned=True)
    pcm = [reference.push(from_bytes(tone(1234))) for _ in range(10)] + [reference.flush()]
    encode = {"pcm_s16le": to_bytes, "mulaw": encode_ulaw, "alaw": encode_alaw}[form.encoding]
    assert line.sound(no) == b"".join(encode(part) for part in pcm)
    assert line.done().samples == round(12340 * form.sample_rate / 24000)
    words = [w for e in line.events if isinstance(e, AlignmentInfo) for w in e.words]
    assert [w.start for w in words] == [
        1234 * part * form.sample_rate // 24000 for part in range(10)
    ]


def test_the_end_of_a_clause_does_not_wait_in_the_resampler() -> None:
    line = Driver()
    no = line.open(format=AudioFormat("pcm_s16le", 8000))
    line.say(no, "Hello. ")
    line.client.send_flush(no)
    line.write()
    line.produce(no, tone(2400))
    line.finish(no)
    line.read()
    assert len(line.sound(no)) == 2 * 800
    line.say(no, "And more.", end=True)
    line.produce(no, tone(2400), Word("And", 240, 480, 7, 10))
    line.finish(no)
    line.read()
    assert len(line.sound(no)) == 2 * 1600
    (word,) = line.one(AlignmentInfo).words
    assert (word.start, word.end) == (880, 960)


def test_a_format_that_is_not_served_ends_only_that_context() -> None:
    line = Driver()
    open_ = {"type": "context.open", "context_id": "a", "context_no": 1}
    form = {"encoding": "opus", "sample_rate": 48000}
    line.act(line.session.receive(json.dumps({**open_, "format": form}), line.now))
    line.read()
    assert (line.error().code, line.error().ends) == ("bad_request", "context")


# --- refusals ---


def test_an_unknown_voice_ends_the_context_at_once() -> None:
    line = Driver()
    line.open(voice="unlisted")
    line.read()
    assert (line.error().code, line.error().ends) == ("unknown_voice", "context")
    assert line.error().remedy


def test_the_greeting_says_what_there_is() -> None:
    line = Driver()
    session = line.client.session
    assert session is not None
    assert session.protocol == "qwen3tts.speech.v1"
    assert [each.id for each in session.voices] == [each.id for each in voices()]
    assert session.formats == FORMATS
    assert session.modes == ("clause",)


def test_options_that_the_engine_does_not_know_are_named() -> None:
    line = Driver()
    line.open(seed=3, instructions="softly", speed=1.5, lead_ms=100.0)
    line.read()
    assert line.started().ignored == ("instructions", "speed", "seed")


@pytest.mark.parametrize("mode", ["auto", "clause", "live"])
def test_the_mode_really_used_is_said(mode: str) -> None:
    line = Driver()
    line.open(mode=mode)
    line.read()
    assert line.started().mode == "clause"


def test_loading_a_voice_is_refused_with_its_request() -> None:
    line = Driver()
    line.act(line.session.receive('{"type": "voice.load", "request_id": "r7"}', line.now))
    line.read()
    assert (line.error().request_id, line.error().ends) == ("r7", "none")


def test_a_ping_is_answered_with_the_servers_clock() -> None:
    line = Driver()
    line.client.send_ping(5.0)
    line.write()
    (pong,) = line.read()
    assert pong == Pong(5.0, 100_000.0, 100_000.0)


def test_voice_language_and_speed_reach_the_engine() -> None:
    line = Driver()
    no = line.open(voice="tone-de", language="de", speed=1.25)
    line.say(no, "Guten Tag.", end=True)
    request = line.speaking[no]
    assert (request.voice, request.language, request.speed) == ("tone-de", "de", 1.25)


# --- the engine breaks ---


def test_an_engine_that_breaks_ends_only_its_context_after_what_it_had_made() -> None:
    line = Driver()
    bad, good = line.open(), line.open()
    line.say(bad, "This breaks. And more. ", end=True)
    line.say(good, "This does not.", end=True)
    line.produce(bad, tone(2400))
    line.fail(bad, EngineFailed("It broke.", remedy="Say it again."))
    line.speak(good)
    line.read()
    kinds = [
        "error" if isinstance(e, ErrorInfo) else "audio"
        for e in line.events
        if isinstance(e, ErrorInfo) or (isinstance(e, AudioFrame) and e.context_no == bad)
    ]
    assert kinds == ["audio", "error"]
    assert (line.error().code, line.error().ends) == ("engine_failed", "context")
    assert line.error().retryable
    assert line.done().samples == 2400
    assert bad not in line.speaking


def test_what_the_engine_still_gives_after_a_cancel_is_dropped() -> None:
    line = Driver()
    no = line.open()
    line.say(no, "Hello there. ")
    line.client.send_flush(no)
    line.write()
    line.produce(no, tone(2400))
    line.cancel(no)
    assert line.speaking == {}
    line.act(line.session.produced(no, PcmChunk(tone(100)), line.now))
    line.act(line.session.generated(no, line.now))
    line.act(line.session.failed(no, EngineFailed("late"), line.now))
    assert line.read() == []
    assert line.client.strays == 0


# --- cancel ---


def test_a_cancel_says_what_was_sent_made_heard_and_left() -> None:
    line = Driver()
    no = line.open(window_ms=100.0)
    line.say(no, "Hello there. And more.", end=True)
    line.produce(
        no,
        tone(7200),
        Word("Hello", 0, 1200, 0, 5),
        Word("there", 1200, 7200, 6, 11),
    )
    line.read()
    answer = line.cancel(no, played=1200)
    assert (answer.sent, answer.generated, answer.played) == (2400, 7200, 1200)
    assert (answer.text_heard, answer.text_remaining) == ("Hello", " there. And more.")
    assert line.speaking == {}
    assert "cancelled" in answer.marks


def test_without_a_position_the_last_report_counts_and_without_that_nothing_was_heard() -> None:
    line = Driver()
    one, two = line.open(), line.open()
    for no in (one, two):
        line.say(no, "Hello.", end=True)
        line.speak(no, 2400)
    line.read()
    line.client.send_report(one, 2000)
    line.write()
    assert line.cancel(one).text_heard == "Hello."
    assert line.cancel(two).text_heard == ""


def test_a_position_beyond_what_was_sent_is_taken_as_all_of_it() -> None:
    line = Driver()
    no = line.open()
    line.say(no, "Hello. ")
    line.client.send_flush(no)
    line.write()
    line.produce(no, tone(100), Word("Hello", 0, 100, 0, 5))
    line.read()
    assert line.cancel(no, played=10**9).played == 100


def test_a_context_that_is_done_can_be_cancelled() -> None:
    line = Driver()
    no = line.open()
    line.say(no, "Hello there, \U0001f600", end=True)
    line.speak(no, 2400)
    line.read()
    answer = line.cancel(no, played=2400)
    assert (answer.text_heard, answer.text_remaining) == ("Hello there, \U0001f600", "")


def test_only_so_many_contexts_that_are_done_are_kept() -> None:
    line = Driver(done_kept=2)
    numbers = []
    for _ in range(4):
        no = line.open()
        numbers.append(no)
        line.say(no, "Hi.", end=True)
        line.speak(no)
        line.read()
    line.client.send_cancel(numbers[0])
    line.write()
    line.read()
    assert line.error().ends == "none"
    assert line.cancel(numbers[-1], 2400).text_heard == "Hi."


def test_the_text_of_contexts_that_are_done_is_bounded_together() -> None:
    line = Driver(done_kept_chars=10)
    numbers = []
    for _ in range(3):
        no = line.open()
        numbers.append(no)
        line.say(no, "Hi there.", end=True)
        line.speak(no)
        line.read()
    line.client.send_cancel(numbers[1])
    line.write()
    line.read()
    assert line.error().code == "bad_request"
    assert line.cancel(numbers[2], 0).text_remaining == "Hi there."


# --- marks ---


def test_marks_tell_when_each_stage_was_reached() -> None:
    line = Driver()
    line.now = 1.0
    no = line.open()
    line.now = 1.1
    line.say(no, "Hello. ")
    line.now = 1.2
    line.client.send_flush(no)
    line.write()
    line.now = 1.3
    line.produce(no, bytes(4800))
    line.now = 1.4
    line.produce(no, tone(2400))
    line.now = 1.5
    line.read()
    line.client.send_end(no)
    line.now = 1.6
    line.write()
    line.finish(no)
    line.now = 1.7
    line.read()
    marks = dict(line.done().marks)
    segment, slot = marks.pop("segment_ready"), marks.pop("slot")
    assert 1100 <= segment <= slot <= 1200
    assert marks == {
        "received": 1000.0,
        "first_delta": 1100.0,
        "first_pcm": 1300.0,
        "first_audible": 1400.0,
        "first_sent": 1500.0,
        "generated": 1600.0,
        "done": 1700.0,
    }
    assert line.started().marks == {"received": 1000.0}
