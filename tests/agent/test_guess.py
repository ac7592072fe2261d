"""Whether two texts are the same words, two prompts the same, and how many guesses a turn has."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_agent.chat.messages import ChatMessage
from qwen3tts_agent.conversation import History
from qwen3tts_agent.guess import TurnGuesses, same_prompt, same_words
from qwen3tts_agent.settings import AgentSettings


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("When do you open?", "when do you open"),
        ("  When  do\nyou open ", "When do you open."),
        ("„Wann?“ \u2013 „Um neun!“", "wann um neun"),
        ("¿Cuándo abren?", "cuándo abren"),
        ("GROSSE STRASSE", "große Straße"),
        ("cafe\u0301", "café"),
        ("你好\uff0c", "你好"),
    ],
)
def test_case_blanks_and_marks_at_words_ends_are_no_difference(one: str, other: str) -> None:
    assert same_words(one) == same_words(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("three point five 3.5", "three point five 35"),
        ("3.5", "3 5"),
        ("john.smith", "john smith"),
        ("it's", "its"),
        ("5%", "5"),
        ("C++", "C"),
        ("I can", "I can't"),
        ("को", "का"),
        ("yes", ""),
        ("you open", "open you"),
    ],
)
def test_what_changes_a_word_or_number_is_a_difference(one: str, other: str) -> None:
    assert same_words(one) != same_words(other)


@given(st.text())
def test_the_form_is_its_own_form_and_has_no_mark_at_a_words_end(text: str) -> None:
    form = same_words(text)
    assert same_words(form) == form
    for word in form.split():
        for char in (word[0], word[-1]):
            assert char in "%‰&#@*/§" or not unicodedata.category(char).startswith("P")


@given(st.text(st.characters(categories=("Ll", "Nd")), min_size=1), st.sampled_from(".,!?;…"))
def test_a_mark_behind_a_text_makes_no_other_words(text: str, mark: str) -> None:
    assert same_words(f"{text}{mark}") == same_words(text)


def test_prompts_are_the_same_where_only_the_form_of_the_last_words_differs() -> None:
    user = ChatMessage("user", "Hello.")
    ours = ChatMessage("assistant", "Yes?")
    last = ChatMessage("user", "when do you open")
    form = ChatMessage("user", "When do you open?")
    assert same_prompt([user, ours, last], [user, ours, form])
    assert not same_prompt([user, ours, last], [ChatMessage("user", "hello"), ours, form])
    assert not same_prompt([ours, last], [user, ours, form])
    assert not same_prompt([ours, last], [ours, ChatMessage("assistant", "when do you open")])
    assert not same_prompt([], [])


def test_a_pause_has_one_guess_and_a_turn_a_few() -> None:
    settings, turn = AgentSettings(max_guesses=2), TurnGuesses()
    assert not turn.may_prepare(settings, 0.49)
    assert turn.may_prepare(settings, 0.5)
    assert turn.may_prepare(AgentSettings(guess_speech_s=0.2), 0.2)
    turn.prepared()
    assert not turn.may_prepare(settings, 2.0)
    turn.resumed()
    assert turn.may_prepare(settings, 2.0)
    turn.prepared()
    turn.resumed()
    assert not turn.may_prepare(settings, 2.0)


def test_a_tentative_prompt_is_that_of_the_turns_end_and_leaves_the_history_alone() -> None:
    history = History("Be brief.")
    history.caller("Count.")
    entry = history.ours("one two three")
    assert [history.settled] == [False]
    entry.stopped_at = 3
    assert [history.settled] == [True]
    tentative = history.messages(1000, tentative="Stop.")
    assert [each.content for each in tentative] == ["Be brief.", "Count.", "one", "Stop."]
    assert (entry.heard, len(history.entries)) == (None, 2)
    entry.heard = "one"
    history.caller("Stop.")
    assert history.messages(1000) == tentative
