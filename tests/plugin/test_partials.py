from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mr_qwen3tts.partials import Growth, words_of

RECORDED = json.loads(Path(__file__).with_name("partials_of_the_host.json").read_text())
"""What the real host shows; `capture_partials.py` writes it."""
CASES = {f"{case['mode']}: {case['shows']}": case for case in RECORDED["cases"]}


def replay(case: dict[str, Any]) -> tuple[list[Growth], list[list[str]], list[bool]]:
    """Per ``speak``: its end, what was given after each event, and whether the command ran."""
    growths: dict[int, Growth] = {}
    steps: dict[int, list[str]] = {}
    ran: set[int] = set()
    before = ""
    for kind, number, command, params in case["events"]:
        if command != "speak":
            continue
        growth = growths.setdefault(number, Growth(before=before))
        words = words_of(params)
        if kind == "partial":
            growth.update(words)
        else:
            growth.finish(words)
            before = words
            ran.add(number)
        steps.setdefault(number, []).append(growth.given)
    numbers = sorted(growths)
    return (
        [growths[each] for each in numbers],
        [steps[each] for each in numbers],
        [each in ran for each in numbers],
    )


# --- with what the real host shows


@pytest.mark.parametrize("name", CASES)
def test_what_is_given_is_what_the_model_means_and_all_of_it_when_the_command_runs(
    name: str,
) -> None:
    growths, _, ran = replay(CASES[name])
    for growth, means, complete in zip(growths, CASES[name]["means"], ran, strict=True):
        assert growth.given == means if complete else means.startswith(growth.given)


@pytest.mark.parametrize("name", CASES)
def test_nothing_that_the_model_does_not_mean_is_ever_given(name: str) -> None:
    _, steps, _ = replay(CASES[name])
    for shown, means in zip(steps, CASES[name]["means"], strict=True):
        assert all(means.startswith(text) for text in shown)


def test_words_are_given_while_the_model_writes() -> None:
    _, steps, _ = replay(CASES["json: one sentence, letter by letter"])
    assert list(dict.fromkeys(steps[0])) == [
        "",
        "Hello, ",
        "Hello, how ",
        "Hello, how are ",
        "Hello, how are you?",
    ]


def test_a_script_without_spaces_is_given_character_by_character() -> None:
    _, steps, _ = replay(CASES["json: Chinese without spaces"])
    assert len(dict.fromkeys(steps[0])) == 1 + len(
        CASES["json: Chinese without spaces"]["means"][0]
    )


def test_a_command_that_shows_the_text_of_the_one_before_is_not_believed() -> None:
    growths, _, ran = replay(CASES["json: raw line ends, and a hangup"])
    assert [growth.given for growth in growths] == ["One\ntwo three", ""]
    assert ran == [True, False]
    assert growths[1].shown == ""


@pytest.mark.parametrize(
    "shows",
    [
        "raw line ends",
        "a quotation mark at the very end",
        "a quotation mark at the very end, with spaces",
        "nothing but an empty text",
    ],
)
def test_the_text_of_a_command_that_never_runs_is_what_was_shown_last(shows: str) -> None:
    case = CASES[f"json: {shows}"]
    growths, _, ran = replay(case)
    assert not ran[-1]
    growths[-1].finish(growths[-1].shown)
    assert growths[-1].given == case["means"][-1]


def test_a_bracket_that_closes_nothing_is_not_part_of_what_was_shown() -> None:
    growth = Growth()
    growth.update("See [1]\nand]")
    assert growth.shown == "See [1]\nand"
    growth.update("See [1]\nand [2]")
    assert growth.shown == "See [1]\nand [2]"


# --- what a growing text gives


def test_a_word_is_given_when_something_follows_it() -> None:
    growth = Growth()
    assert [growth.update(text) for text in ("Good", "Good ", "Good m", "Good morning, a")] == [
        "",
        "",
        "Good ",
        "morning, ",
    ]
    assert growth.finish("Good morning, all.") == "all."
    assert growth.given == "Good morning, all."


def test_a_text_that_is_shown_again_gives_nothing() -> None:
    growth = Growth()
    growth.update("One two three")
    assert growth.update("One two three") == growth.update("One t") == ""


def test_the_whole_text_without_any_partial_is_given_at_once() -> None:
    assert Growth().finish("One two") == "One two"


def test_a_false_bracket_is_not_given() -> None:
    growth = Growth()
    assert growth.update("One\ntw]") + growth.update("One\ntwo]") == "One\n"
    assert growth.finish("One\ntwo") == "two"


def test_brackets_that_are_meant_are_given() -> None:
    growth = Growth()
    assert growth.update("See [1] and") == "See [1] "


@pytest.mark.parametrize("text", ["}}, {", "]", ' }}, {"hang'])
def test_the_json_behind_an_empty_text_is_not_given(text: str) -> None:
    growth = Growth()
    assert growth.update(text + " x") == ""
    assert growth.finish("") == ""


def test_the_json_behind_a_closing_quotation_mark_is_not_given() -> None:
    growth = Growth()
    assert growth.update('I say "yes, no"}}, { "') == 'I say "yes, '
    assert growth.finish('I say "yes, no"') == 'no"'


def test_half_an_emoji_waits_for_its_other_half() -> None:
    growth = Growth()
    assert growth.update("Hi \ud83d") == "Hi "
    assert growth.update("Hi \U0001f600 th") == "\U0001f600 "


def test_halves_that_stand_beside_each_other_become_one() -> None:
    assert Growth().finish("Hi \ud83d\ude00") == "Hi \U0001f600"


def test_the_marks_of_a_raw_block_are_not_given() -> None:
    growth = Growth()
    assert growth.update("START_RAW\nOne two\nEND_RA\n") == "One two\n"
    assert growth.update("START_RAW\nOne two\nEND_RAW\n") == ""
    assert growth.finish("One two\n") == ""


def test_a_word_that_only_resembles_a_mark_is_given() -> None:
    assert Growth().finish("MY_START_RAWS and END_RAW_2") == "MY_START_RAWS and END_RAW_2"


# --- texts that are no continuation


def test_another_white_space_is_the_same_text() -> None:
    growth = Growth()
    growth.update("One  two \n three fo")
    assert growth.finish("One two\nthree four") == "four"


def test_a_text_that_loses_its_way_gives_nothing_until_it_is_back() -> None:
    growth = Growth()
    growth.update("One two three")
    assert growth.update("[1]") == ""
    assert growth.update("One two three four") == "three "


def test_a_final_text_that_is_shorter_gives_nothing_more() -> None:
    growth = Growth()
    growth.update("One two three four")
    assert growth.finish("One two") == ""


def test_another_final_text_goes_on_behind_the_words_that_both_have() -> None:
    growth = Growth()
    growth.update("I have a cat at home")
    assert growth.finish("I have a car outside") == "car outside"


def test_a_word_that_was_mended_does_not_have_all_after_it_said_again() -> None:
    growth = Growth()
    growth.update("He said ok and then he went home quick")
    assert growth.finish("He said okay and then he went home quickly.") == "quickly."


def test_a_wholly_different_final_text_is_said() -> None:
    growth = Growth()
    growth.update("One two three")
    assert growth.finish("Other words.") == "Other words."


# --- what was said before


def test_a_repeated_sentence_is_said_though_it_equals_the_one_before() -> None:
    growth = Growth(before="Are you there?")
    assert growth.update("Are you th") == "Are you "
    assert growth.update("Are you there?") == ""
    assert growth.finish("Are you there?") == "there?"


def test_a_text_that_is_written_anew_goes_on_after_what_was_said_of_it() -> None:
    growth = Growth(said="One\ntwo ")
    assert [growth.update(text) for text in ("", "On", "One", "One two", "One two three f")] == [
        "",
        "",
        "",
        "",
        "three ",
    ]
    assert growth.finish("One two three four") == "four"
    assert growth.given == "three four"


def test_another_text_than_the_one_that_was_said_is_given_from_its_beginning() -> None:
    growth = Growth(said="One two ")
    assert growth.update("One tree falls") == "One tree "
    assert growth.finish("One tree falls") == "falls"


def test_another_final_text_than_the_one_that_was_said_is_given_whole() -> None:
    assert Growth(said="One two ").finish("Hello.") == "Hello."


# --- for any text

WORDS = st.text(
    st.one_of(
        st.sampled_from(' \n\t"]}[{\\,.你好。ก😀_RAW'),
        st.characters(blacklist_categories=["Cs"]),
    ),
    max_size=60,
).filter(lambda text: "_RAW" not in text)
FALSE_ENDS = st.sampled_from(["", "]", "\ud83d", "\n", "END_RA\n", "\\\n"])


@given(WORDS, st.lists(st.integers(1, 9), min_size=1), FALSE_ENDS)
def test_all_of_a_text_is_given_once_however_it_grows(
    text: str, sizes: list[int], false_end: str
) -> None:
    growth, said, end = Growth(), "", 0
    for size in sizes * len(text):
        end = min(len(text), end + size)
        so_far = text[:end]
        if false_end != "]" or not text[end - 1 : end].isspace():
            so_far += false_end
        said += growth.update(so_far)
        assert text.startswith(said)
    said += growth.finish(text)
    assert said == growth.given == text


@given(st.lists(WORDS), st.text())
def test_whatever_the_partials_were_something_that_can_be_said_comes_out(
    partials: list[str], final: str
) -> None:
    growth = Growth()
    said = "".join(growth.update(text) for text in partials) + growth.finish(final)
    assert said == growth.given
    assert not re.search("[\ud800-\udfff]", said)


@given(st.text(), st.text(), st.text())
def test_no_text_and_no_story_before_it_breaks_it(before: str, said: str, text: str) -> None:
    growth = Growth(before=before, said=said)
    growth.update(text)
    assert isinstance(growth.finish(text + " more"), str)


def test_a_hundred_thousand_characters_in_many_partials_are_all_given() -> None:
    text = "And so it goes on and on. " * 4000
    growth = Growth()
    for end in range(0, len(text), 8):
        growth.update(text[:end])
    growth.finish(text)
    assert growth.given == text


# --- the arguments of a command


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, ""),
        (None, ""),
        ("Hi", "Hi"),
        (["Hi", "en"], "Hi"),
        (["", "Hi"], "Hi"),
        ([], ""),
        ([{"text": "Hi"}], "Hi"),
        ({"text": "Hi", "voice_id": "en"}, "Hi"),
        ({"markdown": "Hi"}, "Hi"),
        ({"text": "", "output": "Hi"}, "Hi"),
        ({"text": None}, ""),
        ({"text": ["One.", "Two."]}, "One. Two."),
        ({"text": 42}, "42"),
        ({"text": 4.5}, "4.5"),
        ({"text": True}, ""),
        ({"text": {"text": "Hi"}}, "Hi"),
        ({"message": "Hi"}, ""),
        (7, "7"),
        (object(), ""),
    ],
)
def test_the_words_are_found_in_whatever_the_host_shows(params: object, words: str) -> None:
    assert words_of(params) == words


@pytest.mark.parametrize(
    ("text", "more", "words"),
    [
        ("Hi", {}, "Hi"),
        (None, {"markdown": "Hi"}, "Hi"),
        (["One.", "Two."], {}, "One. Two."),
        (["One.", None, 2], {"output": "no"}, "One. 2"),
        (None, {}, ""),
        (None, {"volume": 3}, ""),
    ],
)
def test_the_words_are_found_in_what_the_command_is_called_with(
    text: object, more: dict[str, object], words: str
) -> None:
    assert words_of(text, more) == words


def test_a_number_that_nobody_could_listen_to_is_no_text() -> None:
    assert words_of({"text": 10**5000}) == ""


def test_lists_without_an_end_are_no_text() -> None:
    endless: list[object] = []
    endless.append(endless)
    assert words_of({"text": endless}) == ""
