"""The units that vLLM-Omni's clients count."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_server.dialects.vllm_omni.messages import config_of
from qwen3tts_server.dialects.vllm_omni.utterances import Granularity, Splitter
from qwen3tts_wire.errors import BadRequest, EngineFailed
from tests.engine.fake_engine import FakeEngine, tone
from tests.server.vllm_omni.line import (
    CANCEL,
    CLOSE,
    COMMIT,
    COMMITS,
    DONE,
    JSON,
    STREAM,
    TOKENS,
    Line,
    config,
    text,
)
from tests.server.vllm_omni.peer import peer, serving

PIECES = (
    *("Dr", "e.g", "J", "3", "14", "\u096b", "no", "U.S", "hello", "\u4f60\u597d", "etc"),
    *(".", ",", "!", "?", ";", "\u3002", "\uff0c", "\u2026", "\u0964", "\u061f", "\u061b"),
    *('"', ")", "\u300d", " ", "  ", "\n"),
)
texts = st.lists(st.sampled_from(PIECES), max_size=16).map("".join)
granularities = st.sampled_from(["none", "sentence", "clause"])


def units(granularity: Granularity, *pieces: str, end: bool = True) -> list[str]:
    splitter = Splitter(granularity)
    found = []
    for piece in pieces:
        splitter.feed(piece)
        while (unit := splitter.take()) is not None:
            found.append(unit)
    if end:
        splitter.end()
        while (unit := splitter.take()) is not None:
            found.append(unit)
        assert len(splitter) == 0
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello world. More", ["Hello world."]),
        ("Hello world.", []),
        ("It costs 3.14 dollars. ", ["It costs 3.14 dollars."]),
        ("Wait... Really?! Yes", ["Wait...", "Really?!"]),
        ('He said "Hello." Bye', ['He said "Hello."']),
        ("Dr. Smith, e.g. J. R. Tolkien. Next", ["Dr. Smith, e.g. J. R. Tolkien."]),
        ("At 5 p.m. we met. So", ["At 5 p.m. we met."]),
        ("\u4f60\u597d\u3002\u4e16\u754c\u3002", ["\u4f60\u597d\u3002"]),
        ("\u4f60\u597d\uff01\u300d\u4e16", ["\u4f60\u597d\uff01\u300d"]),
        (
            "\u0928\u092e\u0938\u094d\u0924\u0947\u0964 \u0915\u0948\u0938\u0947",
            ["\u0928\u092e\u0938\u094d\u0924\u0947\u0964"],
        ),
        ("\u0645\u0631\u062d\u0628\u0627\u061f \u0646", ["\u0645\u0631\u062d\u0628\u0627\u061f"]),
        ("a.b!c? d", ["a.b!c?"]),
        ("no mark at all and no end", []),
    ],
)
def test_sentences_end_where_no_later_character_can_change_it(
    text: str, expected: list[str]
) -> None:
    assert units("sentence", text, end=False) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, world; it is 1,000 rupees, sir. ", 4),
        ("\u4f60\u597d\uff0c\u4e16\u754c\uff1b\u597d\u3002", 3),
        ("\u0646\u0639\u0645\u060c \u0644\u0627\u061b \u0644", 3),
    ],
)
def test_clauses_end_at_commas_and_semicolons_as_well(text: str, expected: int) -> None:
    assert len(units("clause", text)) == expected
    assert len(units("sentence", text)) == 1


def test_without_splitting_all_text_is_one_unit_at_its_end() -> None:
    assert units("none", " One. Two. ", " Three ", end=False) == []
    assert units("none", " One. Two. ", " Three ") == ["One. Two.  Three"]


def test_what_was_held_comes_at_the_end_and_white_space_alone_never() -> None:
    assert units("sentence", "Hello wor", "ld. How are you?") == ["Hello world.", "How are you?"]
    for granularity in ("none", "sentence", "clause"):
        assert units(granularity, " \n ") == []
        assert units(granularity) == []


def test_text_without_marks_is_one_unit_however_long() -> None:
    thai = "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35" * 2000
    assert units("clause", thai) == [thai]


def test_letter_by_letter_costs_no_more_than_the_text() -> None:
    # A run of marks that grows is not read again from its start.
    many = "." * 40_000
    assert units("sentence", *many) == [many]
    assert len(units("sentence", "a. " * 10_000)) == 1  # initials
    assert len(units("sentence", "ab. " * 10_000)) == 10_000


@given(text=texts, granularity=granularities, cuts=st.lists(st.integers(0, 40), max_size=8))
def test_the_units_do_not_depend_on_how_the_text_was_cut(
    text: str, granularity: Granularity, cuts: list[int]
) -> None:
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    whole = units(granularity, text)
    assert units(granularity, *pieces) == whole
    assert units(granularity, *text) == whole


@given(text=texts, granularity=granularities)
def test_nothing_but_white_space_is_lost(text: str, granularity: Granularity) -> None:
    found = units(granularity, text)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(unit == unit.strip() != "" for unit in found)


@given(text=texts, more=texts, granularity=granularities)
def test_a_unit_given_out_stays_whatever_follows(
    text: str, more: str, granularity: Granularity
) -> None:
    early = units(granularity, text, end=False)
    assert units(granularity, text + more)[: len(early)] == early


def heard(line: Line) -> list[JSON]:
    return [json.loads(each) for each in line.read if isinstance(each, str)]


def kinds(line: Line) -> list[str]:
    return [each["type"] for each in heard(line)]


def handed(line: Line) -> list[tuple[str, bool, bool]]:
    return [(each.text, each.flush, each.final) for each in line.more]


def test_text_is_handed_over_word_by_word_while_it_is_said() -> None:
    line = Line()
    line.say(TOKENS, text(" "), text("Good "))
    assert line.unit().text == " Good "
    line.say(text("mor"), text("ning."))
    line.audio(bytes(480))
    line.say(text(" "), DONE)
    assert handed(line) == [
        ("mor", False, False),
        ("ning.", False, False),
        (" ", False, False),
        ("", False, True),
    ]
    assert "session.done" not in kinds(line)
    line.finish()
    assert kinds(line) == ["audio.start", "audio.done", "session.done"]
    assert heard(line)[0]["sentence_text"] == "Good"
    assert heard(line)[0]["format"] == "pcm"
    assert heard(line)[-1]["total_sentences"] == 1


def test_what_is_committed_is_said_and_answered() -> None:
    line = Line()
    line.say(COMMITS, text("One "), text("two."))
    assert line.saying is None
    line.say({**COMMIT, "commit_id": "a"})
    assert line.unit().text == "One two."
    line.say(text("Three"), text(" four"), COMMIT, text("Rest"))
    line.say(DONE)
    assert handed(line) == [("", True, False), ("Three four", True, False), ("Rest", False, True)]
    line.finish()
    commits = [each for each in heard(line) if each["type"] == "input.committed"]
    told = [
        (each["commit_id"], each["sentence_index"], each["chars_committed"]) for each in commits
    ]
    assert told == [("a", 0, 8), (None, 1, 10), (None, 2, 4)]
    assert heard(line)[-1]["total_sentences"] == 3


@pytest.mark.parametrize("mode", [TOKENS, COMMITS])
def test_an_utterance_without_words_has_no_unit(mode: JSON) -> None:
    line = Line()
    line.say(mode, DONE, text("  "), DONE)
    assert kinds(line) == ["session.done"] * 2
    assert {each["total_sentences"] for each in heard(line)} == {0}


def test_a_commit_without_text_or_without_the_mode_is_refused() -> None:
    line = Line()
    line.say(STREAM, COMMIT, COMMITS, COMMIT, text(" "), COMMIT)
    line.say({**COMMIT, "commit_id": 5}, {**COMMIT, "commit_id": "x" * 257})
    assert kinds(line) == ["error"] * 5
    said = [each["message"] for each in heard(line)]
    assert "streaming_mode sentence_commit" in said[0]
    assert all("buffered text" in each for each in said[1:3])
    assert all("commit_id" in each for each in said[3:])
    assert line.closed is None


def test_a_wrong_message_while_a_unit_grows_is_answered_and_holds_nothing_up() -> None:
    line = Line()
    line.say(TOKENS, text("One "), "{", text("two."), DONE)
    assert kinds(line) == ["audio.start", "error"]
    assert handed(line) == [("two.", False, False), ("", False, True)]


def test_a_unit_that_ends_before_its_text_takes_no_more_of_it() -> None:
    line = Line()
    line.say(COMMITS, text("One."), COMMIT)
    line.fail(EngineFailed("broke"))
    line.say(text("Two."), COMMIT, text("Three."), DONE)
    assert line.saying is None
    assert kinds(line)[-4:] == ["error", "audio.done", "error", "session.done"]
    line.say(text("Next."), COMMIT)
    assert line.unit().text == "Next."
    assert line.unit().utterance_index == 1


def test_the_next_utterance_waits_for_the_one_before() -> None:
    line = Line()
    line.say(TOKENS, text("One."), DONE, text("Two."), DONE)
    assert line.unit().text == "One."
    assert handed(line) == [("", False, True)]
    line.finish()
    assert line.unit().text == "Two."
    assert handed(line)[1:] == [("", False, True)]


def test_a_cancel_ends_a_unit_that_grows() -> None:
    line = Line()
    line.say(TOKENS, text("One "), CANCEL)
    assert line.saying is None
    assert kinds(line)[-3:] == ["audio.done", "session.done", "input.cancelled"]
    line.say(text("Two "))
    assert line.unit().utterance_index == 1


@pytest.mark.parametrize(("mode", "rest"), [(TOKENS, "two."), (COMMITS, "")])
def test_good_bye_says_what_was_handed_over_and_no_uncommitted_text(mode: JSON, rest: str) -> None:
    line = Line()
    line.say(mode, text("One "), COMMIT, text("two."), CLOSE)
    assert "".join(each.text for each in line.more) == rest
    assert line.more[-1].final
    line.finish()
    assert line.closed is not None
    assert line.closed.code == 1000


def test_an_utterance_is_bounded_and_the_message_beyond_is_not_taken() -> None:
    line = Line(max_waiting_chars=300, max_message_chars=256)
    line.say(TOKENS, text("a" * 200), text("b" * 200))
    assert kinds(line) == ["audio.start", "error"]
    assert heard(line)[-1]["code"] == "limit_exceeded"
    line.say(text("c" * 100))
    assert line.more[-1].text == "c" * 100


def test_a_client_that_sends_no_more_of_its_text_is_not_waited_for() -> None:
    line = Line(idle_timeout_s=30)
    line.say(TOKENS, text("One "))
    line.now += 29
    line.act(line.session.tick(line.now))
    assert line.code() is None
    line.audio(bytes(2))
    line.now += 31
    line.act(line.session.tick(line.now))
    assert line.code() == 4408


@pytest.mark.parametrize(
    "fields",
    [
        {"streaming_mode": "word_level"},
        {"streaming_mode": 1},
        {"streaming_mode": "token_level", "split_granularity": "sentence"},
        {"streaming_mode": "sentence_commit", "non_streaming_mode": True},
    ],
)
def test_what_does_not_go_together_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        config_of(fields)


def test_samples_are_what_these_clients_get_unless_they_say_otherwise() -> None:
    mode = {"streaming_mode": "token_level"}
    assert config_of(mode).stream_audio
    assert not config_of({**mode, "response_format": "wav"}).stream_audio
    assert not config_of({**mode, "speed": 1.5}).stream_audio
    assert not config_of({**mode, "stream_audio": False}).stream_audio


# --- against a server that listens ---


@pytest.mark.network
@pytest.mark.parametrize("live", [True, False])
async def test_words_are_heard_before_the_text_has_ended(live: bool) -> None:
    engine = FakeEngine(live=live)
    first = "One two three four, " if live else "This is a first sentence. And "
    async with serving(engine) as server, peer(server, TOKENS) as client:
        await client.say(text(first))
        await client.until("audio.start")
        assert isinstance(await client.hear(), bytes)
        await client.say(text("five."), DONE)
        done, end = await client.until("session.done")
        assert done["total_bytes"] > 0
        assert end["total_sentences"] == 1
    assert (engine.requests[0].more is not None) == live


@pytest.mark.network
async def test_what_was_committed_is_heard_to_its_last_character() -> None:
    async with serving(FakeEngine(live=True)) as server, peer(server, COMMITS) as client:
        await client.say(text("One two"), COMMIT)
        sound = b""
        while len(sound) < len(tone("a")) * 7:
            message = await client.hear()
            sound += message if isinstance(message, bytes) else b""
        await client.say(text(" three"), DONE)
        await client.until("session.done")
        sound += client.sound
    assert sound.startswith(b"".join(map(tone, "One two")))
    assert sound.endswith(b"".join(map(tone, "three")))


@pytest.mark.network
async def test_another_form_is_one_file_at_the_end() -> None:
    mode = config(streaming_mode="token_level", response_format="wav")
    async with serving(FakeEngine(live=True)) as server, peer(server, mode) as client:
        await client.say(text("One "), text("two."), DONE)
        start, _, _ = await client.until("session.done")
        assert start["format"] == "wav"
        assert len(client.frames) == 1
        assert client.frames[0].startswith(b"RIFF")
