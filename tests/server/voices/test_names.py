"""What a voice may be called."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_engine.base import Voice
from qwen3tts_server.voices.names import OPENAI_NAMES, QWEN_NAMES, checked_name, key_of, spread
from qwen3tts_wire.errors import BadRequest
from tests.server.voices.world import told

voices = st.lists(
    st.builds(
        Voice,
        id=st.text("abcdef", min_size=1, max_size=3),
        name=st.just("x"),
        language=st.sampled_from(["en-GB", "en", "de-DE", "mul", "zh"]),
        gender=st.sampled_from([None, "male", "female"]),
    ),
    max_size=12,
    unique_by=lambda each: each.id,
)


@pytest.mark.parametrize(
    "name",
    ["", " a", "a ", "../a", "a/b", "a\\b", ".a", "-a", "a\nb", "a\0", "a" * 65, "clone:a", "%2e",
     "Alloy", "default", "DEFAULT", "0" * 64, "a\ud800", "a\u202eb"],
)  # fmt: skip
def test_names_that_could_be_taken_for_something_else_are_refused(name: str) -> None:
    with pytest.raises(BadRequest):
        checked_name(name)


@pytest.mark.parametrize("name", ["a", "Anna-Maria 2", "Jürgen", "日本の声", "a.b_c", "7"])
def test_names_of_people_are_taken(name: str) -> None:
    assert checked_name(name) == name


def test_two_ways_to_write_one_letter_are_one_name() -> None:
    assert checked_name("Ju\u0308rgen") == "J\u00fcrgen"
    assert key_of("Ju\u0308RGEN") == key_of("j\u00fcrgen")


@given(st.text(max_size=80))
def test_what_is_taken_is_plain_and_stays_as_it_is(name: str) -> None:
    try:
        taken = checked_name(name)
    except BadRequest as error:
        told(error)
        return
    assert checked_name(taken) == taken
    assert "/" not in taken
    assert taken.isprintable()
    assert key_of(key_of(taken)) == key_of(taken)


@given(st.sampled_from(sorted(OPENAI_NAMES)), voices, st.booleans())
def test_an_openai_name_is_always_the_same_of_the_voices_there_are(
    name: str, there: list[Voice], polyglot: bool
) -> None:
    found = spread(name, there, polyglot=polyglot)
    assert found == spread(name, list(there), polyglot=polyglot)
    assert (found is None) == (not there)
    if there:
        assert found in [each.id for each in there]


def test_the_speakers_of_qwen3_tts_are_spread_by_gender_and_language() -> None:
    there = [
        Voice("bern", "Bern", "de-CH", "male"),
        Voice("amy", "Amy", "en-GB", "female"),
        Voice("joe", "Joe", "en-US", "male"),
        Voice("sue", "Sue", "en-US", "female"),
    ]
    found = {name: spread(name, there, polyglot=False) for name in QWEN_NAMES}
    assert len(found) == 9
    assert {found[name] for name in ("vivian", "serena", "ono_anna", "sohee")} == {"amy", "sue"}
    assert {found[name] for name in ("uncle_fu", "dylan", "eric", "ryan", "aiden")} == {"joe"}
    assert spread("ryan", there, polyglot=False, language="de") == "bern"
    assert spread("vivian", [], polyglot=False) is None


def test_openai_names_are_spread_over_voices_of_their_gender_and_language() -> None:
    there = [
        Voice("bern", "Bern", "de-CH", "male"),
        Voice("amy", "Amy", "en-GB", "female"),
        Voice("joe", "Joe", "en-US", "male"),
        Voice("sue", "Sue", "en-US", "female"),
    ]
    found = {name: spread(name, there, polyglot=False) for name in OPENAI_NAMES}
    assert {found["alloy"], found["coral"]} == {"amy", "sue"}
    assert found["onyx"] == "joe"
    assert spread("onyx", there, polyglot=False, language="de-DE") == "bern"
    assert spread("onyx", there[:1], polyglot=False) == "bern"
    assert set(found.values()) == {"amy", "joe", "sue"}
    assert "bern" in {spread(name, there, polyglot=True) for name in OPENAI_NAMES}
