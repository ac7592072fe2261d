"""Text that is spoken while it is written, and what else an engine may be told and may tell."""

from __future__ import annotations

from typing import Any

import pytest

from qwen3tts_engine.base import EndReason
from qwen3tts_wire.errors import ServerBusy
from qwen3tts_wire.formats import FORMATS, AudioFormat, AudioFrame
from qwen3tts_wire.messages import MODES, ContextDone, Sampling
from tests.engine.fake_engine import FakeEngine
from tests.server.driver import Driver, tone


def live_line(**settings: Any) -> Driver:
    return Driver(FakeEngine(live=True), **settings)


class OptionsEngine(FakeEngine):
    """Takes everything."""

    options = frozenset(
        {
            "instructions",
            "sampling",
            "seed",
            "initial_codec_chunk_frames",
            "lead",
            "speed",
            "layout",
        }
    )


# --- modes ---


def test_the_greeting_names_the_modes_of_any_voice() -> None:
    session = live_line().client.session
    assert session is not None
    assert session.modes == ("auto", "clause", "live")
    session = Driver(OptionsEngine()).client.session
    assert session is not None
    assert session.modes == ("clause", "whole", "whole_streaming")
    session = Driver(OptionsEngine(live=True)).client.session
    assert session is not None
    assert session.modes == MODES


@pytest.mark.parametrize("mode", MODES)
def test_the_mode_asked_for_is_used_where_the_engine_has_it(mode: str) -> None:
    line = Driver(OptionsEngine(live=True))
    line.open(mode=mode)
    line.read()
    assert line.started().mode == mode


@pytest.mark.parametrize("mode", MODES)
def test_a_voice_without_live_text_speaks_by_clauses_and_says_so(mode: str) -> None:
    line = live_line()
    no = line.open(voice="tone-de", mode=mode)
    line.say(no, "Guten Morgen, dies ist die Leitung. ")
    line.read()
    assert line.started().mode == "clause"
    assert line.speaking[no].more is None


@pytest.mark.parametrize(("mode", "layout"), [("whole", "full"), ("whole_streaming", "streaming")])
def test_a_whole_text_is_one_request_once_it_has_ended(mode: str, layout: str) -> None:
    line = Driver(OptionsEngine())
    no = line.open(mode=mode)
    text = "Good morning. This is the line.\n\nThere is more of it, " + "and more. " * 200
    line.say(no, text)
    line.pass_time(60.0)
    assert no not in line.speaking
    line.say(no, "That is all.", end=True)
    request = line.speaking[no]
    assert request.layout == layout
    assert request.final
    assert request.text.split() == f"{text}That is all.".split()
    assert request.more is not None
    assert request.more.ended


def test_the_first_clause_is_begun_with_its_first_word_and_the_next_ones_when_they_are_whole() -> (
    None
):
    line = live_line()
    no = line.open(mode="auto")
    line.say(no, "Good ")
    assert no not in line.speaking
    line.say(no, "morn")
    assert line.speaking[no].text == "Good morn"
    line.say(no, "ing to you. And")
    assert line.take(no) == "ing to you."
    more = line.speaking[no].more
    assert more is not None
    assert more.ended
    line.finish(no)
    assert no not in line.speaking
    line.say(no, " that is all of it. ", end=True)
    assert line.speaking[no].text == "And that is all of it."
    assert line.speaking[no].more is None


def test_live_text_is_one_clause_of_the_context() -> None:
    line = live_line()
    no = line.open(mode="live")
    for word in ["This is said. ", "So is this. ", "And this."]:
        line.say(no, word)
    line.say(no, "", end=True)
    text = line.speaking[no].text + line.take(no)
    assert text == "This is said. So is this. And this."
    line.produce(no, tone(2400))
    line.produce(no, tone(2400))
    line.finish(no)
    line.read()
    assert line.done().clauses == 1
    assert [e.flags for e in line.events if isinstance(e, AudioFrame)] == [1, 0]


def test_offsets_of_live_text_point_into_the_original() -> None:
    line = live_line()
    no = line.open(mode="live")
    text = "We **really** do, [see](http://x.y) it."
    for char in text:
        line.say(no, char)
    line.client.send_end(no)
    line.write()
    request = line.speaking[no]
    assert request.offsets is not None
    assert request.more is not None
    said, offsets = request.text, list(request.offsets)
    for part, places in request.more.take():
        said += part
        offsets[-1:] = places
    assert said == "We really do, see it."
    assert [text[place] for place in offsets[:-1]] == list(said)


def test_after_a_dry_reader_the_text_goes_on_in_another_generation() -> None:
    line = live_line()
    no = line.open(mode="live")
    line.say(no, "The first words are")
    more = line.speaking[no].more
    assert more is not None
    more.close()
    line.say(no, ", at last, these")
    line.produce(no, tone(2400), end="dry")
    line.finish(no)
    assert line.speaking[no].text == "at last, these"
    line.say(no, ".", end=True)
    assert line.take(no) == "."
    line.produce(no, tone(2400), end="text_end")
    line.finish(no)
    line.read()
    assert (line.done().reason, line.done().clauses) == ("dry", 2)


def test_text_that_a_generation_left_is_said_by_the_next() -> None:
    line = live_line()
    no = line.open(mode="live")
    line.say(no, "The first words are ")
    line.say(no, "followed by some. ", end=True)
    line.produce(no, tone(2400), end="frame_cap")
    line.finish(no)
    assert line.speaking[no].text == "followed by some."


def test_a_cancel_in_live_text_frees_the_engine_and_cuts_the_text() -> None:
    line = live_line()
    no = line.open(mode="live")
    line.say(no, "Hello there. And m")
    line.produce(no, tone(2400))
    line.read()
    answer = line.cancel(no, 0)
    assert line.speaking == {}
    assert answer.text_heard + answer.text_remaining == "Hello there. And m"


# --- pauses ---


def test_a_pause_in_live_text_ends_its_generation() -> None:
    line = live_line(pause_flush_ms=250)
    no = line.open(mode="live")
    line.say(no, "And so it goe")
    line.pass_time(0.2)
    line.say(no, "s")
    more = line.speaking[no].more
    assert more is not None
    line.pass_time(0.249)
    early = (line.take(no), more.ended)
    line.pass_time(0.002)
    assert (early, more.ended) == (("s", False), True)
    assert line.session.next_deadline(line.now) is None
    line.finish(no)
    line.say(no, " on here")
    assert line.speaking[no].text == "on here"


def test_a_pause_does_not_end_it_while_the_listener_has_enough_to_hear() -> None:
    line = live_line(pause_flush_ms=250, pause_flush_lead_ms=500)
    no = line.open(mode="live")
    line.say(no, "And so it goe")
    line.produce(no, tone(48_000))
    line.read()
    more = line.speaking[no].more
    assert more is not None
    line.pass_time(1.4)
    line.take(no)
    early = more.ended
    line.pass_time(0.2)
    assert (early, more.ended) == (False, True)


def test_a_pause_does_nothing_while_the_text_waits_its_turn() -> None:
    line = live_line(pause_flush_ms=250)
    no = line.open(mode="auto")
    line.say(no, "One is said here. Two is said after it. And th")
    line.take(no)
    line.pass_time(10)
    line.finish(no)
    assert line.speaking[no].text == "Two is said after it."
    line.finish(no)
    line.pass_time(0.02)
    assert line.speaking[no].text == "And th"


# --- options ---


def test_options_reach_an_engine_that_has_them_and_none_is_named_as_ignored() -> None:
    line = Driver(OptionsEngine())
    sampling = Sampling(temperature=0.5, top_k=20)
    no = line.open(
        seed=7,
        sampling=sampling,
        instructions="softly",
        initial_codec_chunk_frames=2,
        lead_ms=300.0,
        speed=1.5,
    )
    line.say(no, "One is said here. Two is said after it.", end=True)
    requests = []
    while no in line.speaking:
        requests.append(line.speaking[no])
        line.finish(no)
    line.read()
    assert line.started().ignored == ()
    assert len(requests) == 2
    for request in requests:
        assert (request.seed, request.sampling, request.instructions) == (7, sampling, "softly")
        assert (request.initial_codec_chunk_frames, request.speed) == (2, 1.5)
        assert request.lead is not None
        assert request.lead.target_ms == 300.0
    assert requests[0].lead is requests[1].lead, "the next clause inherits what is ahead"


def test_options_that_were_not_given_are_not_named() -> None:
    line = Driver()
    line.open(speed=1.0)
    line.read()
    assert line.started().ignored == ()


@pytest.mark.parametrize("form", FORMATS, ids=lambda f: f"{f.encoding}-{f.sample_rate}")
def test_the_lead_follows_what_is_sent_and_reported(form: AudioFormat) -> None:
    line = Driver(OptionsEngine(), frame_ms=33)
    no = line.open(format=form)
    line.say(no, "Hello there.", end=True)
    lead = line.speaking[no].lead
    assert lead is not None
    lead.made(24_000)
    line.produce(no, tone(24_000))
    assert lead.seconds(line.now) == 1.0
    line.read()
    line.pass_time(0.25)
    assert lead.seconds(line.now) == pytest.approx(0.75, abs=0.01)
    line.client.send_report(no, form.samples(100), "held")
    line.write()
    line.pass_time(5.0)
    assert lead.seconds(line.now) == pytest.approx(0.9, abs=0.001)
    line.client.send_report(no, form.samples(500), "starved")
    line.write()
    line.pass_time(0.3)
    assert lead.seconds(line.now) == pytest.approx(0.2, abs=0.001)


# --- what the engine tells ---


@pytest.mark.parametrize(
    ("ends", "reason"),
    [
        ((), "text_end"),
        (("text_end", "text_end"), "text_end"),
        (("silence", "text_end"), "silence"),
        (("silence", "dry"), "silence"),
        (("regenerated", "dry"), "regenerated"),
        (("silence", "regenerated"), "regenerated"),
        (("dry", "frame_cap"), "frame_cap"),
        (("frame_cap", "silence"), "frame_cap"),
        ((None, "dry"), "dry"),
    ],
)
def test_the_reason_is_the_gravest_of_all_clauses(
    ends: tuple[EndReason | None, ...], reason: str
) -> None:
    line = Driver()
    no = line.open()
    line.say(no, "One is said here. Two is said after it.", end=True)
    for end in ends or (None, None):
        line.produce(no, tone(2400), end=end)
        line.finish(no)
    line.read()
    assert line.done().reason == reason


def test_an_engine_may_tell_when_it_gave_a_place_and_made_its_first_codes() -> None:
    line = Driver()
    no = line.open()
    line.say(no, "One is said here. Two is said after it.", end=True)
    line.now = 100.5
    line.produce(no, b"", marks={"slot": 100.2, "prefill": 100.3, "first_codes": 100.35, "x": 1.0})
    line.produce(no, tone(2400))
    line.finish(no)
    line.produce(no, tone(2400), marks={"slot": 100.4, "prefill": 100.45})
    line.finish(no)
    line.read()
    marks = line.done().marks
    assert (marks["slot"], marks["prefill"], marks["first_codes"]) == (
        100_200.0,
        100_300.0,
        100_350.0,
    )
    assert "x" not in marks


def test_text_that_crosses_an_error_is_not_spoken() -> None:
    line = live_line()
    no = line.open(mode="live")
    line.say(no, "")
    line.say(no, "This breaks he")
    line.fail(no, ServerBusy("No place is free."))
    line.say(no, "re. And more. ")
    line.client.send_flush(no)
    line.write()
    line.say(no, "And more.", end=True)
    assert len(line.requests) == 1
    line.read()
    assert line.error().ends == "context"


def test_a_full_engine_ends_the_context_with_an_error_that_may_be_tried_again() -> None:
    line = live_line()
    full, other = line.open(mode="live"), line.open()
    line.say(full, "This is refused")
    line.say(other, "This is not. ", end=True)
    line.fail(full, ServerBusy("No place is free.", remedy="Try again later."))
    line.say(full, " whatever follows")
    line.read()
    assert (line.error().code, line.error().retryable, line.error().ends) == (
        "server_busy",
        True,
        "context",
    )
    while other in line.speaking:
        line.take(other)
        line.speak(other)
    line.read()
    assert isinstance(line.done(), ContextDone)
