"""From voiced and unvoiced pieces to turns."""

from __future__ import annotations

from dataclasses import astuple
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.detection.endpointing import (
    MAX_WAITING_KEYS,
    TURN_GAP_S,
    Endpointer,
    KeyGroup,
    KeyTurns,
)
from qwen3tts_phone.detection.events import (
    CallerCutIn,
    CallerQuiet,
    ListenEvent,
    OnsetHeard,
    SpeechPaused,
    SpeechResumed,
    TurnEnded,
)
from qwen3tts_phone.detection.settings import ListenSettings

PIECE = 0.01


class Talk:
    """Pieces of 10 ms one after the other from time 100 on."""

    def __init__(self, **settings: Any) -> None:
        wanted = {"onset_ms": 30, "barge_in_ms": 60, "grace_ms": 0, "pause_ms": 300}
        self.turns = Endpointer(
            ListenSettings(**(wanted | {"notice_ms": 100, "min_speech_ms": 50} | settings)), 100.0
        )
        self.now = 100.0
        self.events: list[ListenEvent] = []

    def take(self, voiced: bool, milliseconds: int) -> list[ListenEvent]:
        """Feed voiced or unvoiced pieces of this length; return the events."""
        told: list[ListenEvent] = []
        for _ in range(milliseconds // 10):
            begins, self.now = self.now, round(self.now + PIECE, 6)
            told += self.turns.piece(voiced, begins, self.now, self.now)
        self.events += told
        return told

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]


def near(events: list[ListenEvent], kind: type, *times: float) -> bool:
    """Whether there is one event, of that kind, with those times."""
    (event,) = events
    return type(event) is kind and list(astuple(event)) == pytest.approx(list(times))


def test_speech_for_onset_ms_begins_a_turn_at_its_first_voiced_sample() -> None:
    talk = Talk()
    talk.take(False, 200)
    assert talk.take(True, 20) == []
    assert near(talk.take(True, 10), OnsetHeard, 100.23, 100.2)
    assert talk.turns.speaking


def test_a_click_is_no_onset_and_several_far_apart_are_none_either() -> None:
    talk = Talk()
    for _ in range(20):
        talk.take(True, 20)
        talk.take(False, 100)
    assert talk.events == []


def test_a_gap_within_a_syllable_does_not_begin_the_onset_anew() -> None:
    talk = Talk(onset_ms=50)
    talk.take(True, 30)
    talk.take(False, 10)
    told = talk.take(True, 30)
    assert near(told, OnsetHeard, 100.07, 100.0)


def test_a_pause_ends_the_turn_and_its_end_is_the_last_voiced_sample() -> None:
    talk = Talk()
    talk.take(True, 500)
    talk.take(False, 400)
    onset, paused, ended = talk.events
    assert isinstance(onset, OnsetHeard)
    assert near([paused], SpeechPaused, 100.6, 100.5)
    assert isinstance(ended, TurnEnded)
    assert [ended.at, ended.ended_at] == pytest.approx([100.8, 100.5])
    assert (ended.why, ended.cut_in) == ("pause", False)
    assert ended.speech_s == pytest.approx(0.5)
    assert not talk.turns.speaking


def test_speech_in_the_pause_goes_on_with_the_same_turn() -> None:
    talk = Talk()
    talk.take(True, 200)
    talk.take(False, 250)
    talk.take(True, 200)
    assert talk.kinds() == ["OnsetHeard", "SpeechPaused", "SpeechResumed"]
    assert isinstance(talk.events[2], SpeechResumed)
    talk.take(False, 290)
    assert talk.turns.speaking
    talk.take(False, 10)
    assert isinstance(talk.events[-1], TurnEnded)


def test_a_click_in_the_pause_does_not_make_it_longer() -> None:
    talk = Talk()
    talk.take(True, 200)
    talk.take(False, 200)
    talk.take(True, 10)
    talk.take(False, 90)
    assert isinstance(talk.events[-1], TurnEnded)
    assert talk.events[-1].ended_at == pytest.approx(100.2)


def test_what_is_shorter_than_min_speech_ms_is_noise() -> None:
    talk = Talk(min_speech_ms=100)
    talk.take(True, 60)
    talk.take(False, 300)
    ended = talk.events[-1]
    assert isinstance(ended, TurnEnded)
    assert ended.why == "noise"


def test_a_caller_who_never_stops_makes_one_turn_after_the_other() -> None:
    talk = Talk(max_turn_s=1.0)
    talk.take(True, 3500)
    ended = [event for event in talk.events if isinstance(event, TurnEnded)]
    onsets = [event for event in talk.events if isinstance(event, OnsetHeard)]
    assert [each.why for each in ended] == ["too_long"] * 3
    assert [each.ended_at - each.began_at for each in ended] == [pytest.approx(1.0, abs=0.02)] * 3
    assert len(onsets) == 4
    assert talk.turns.speaking


def test_the_caller_who_speaks_while_the_agent_does_cuts_in_once() -> None:
    talk = Talk()
    talk.turns.agent(True, talk.now)
    talk.take(True, 50)
    assert talk.kinds() == ["OnsetHeard"]
    assert near(talk.take(True, 10), CallerCutIn, 100.06, 100.0)
    for _ in range(20):  # it takes a moment to say that it is silent
        talk.turns.agent(True, talk.now)
        talk.take(True, 10)
    assert talk.kinds().count("CallerCutIn") == 1
    talk.turns.agent(False, talk.now)
    talk.take(False, 300)
    ended = talk.events[-1]
    assert isinstance(ended, TurnEnded)
    assert ended.cut_in


def test_another_reply_during_the_same_turn_is_cut_in_on_as_well() -> None:
    talk = Talk()
    talk.turns.agent(True, talk.now)
    talk.take(True, 100)
    talk.turns.agent(False, talk.now)
    talk.turns.agent(True, talk.now)
    talk.take(True, 100)
    assert talk.kinds().count("CallerCutIn") == 2


def test_nobody_cuts_in_where_barge_in_is_off_or_nobody_speaks() -> None:
    talk = Talk(barge_in=False)
    talk.turns.agent(True, talk.now)
    talk.take(True, 500)
    silent = Talk()
    silent.take(True, 500)
    assert "CallerCutIn" not in talk.kinds() + silent.kinds()


def test_barge_in_ms_lets_a_short_sound_pass() -> None:
    talk = Talk(barge_in_ms=300)
    talk.turns.agent(True, talk.now)
    talk.take(True, 250)
    talk.take(False, 400)
    assert "CallerCutIn" not in talk.kinds()
    talk.take(True, 300)
    assert talk.kinds()[-1] == "CallerCutIn"


def test_in_the_grace_the_agent_goes_on_and_who_speaks_on_after_it_cuts_in() -> None:
    talk = Talk(grace_ms=200)
    talk.turns.agent(True, talk.now)
    talk.turns.agent_audible(talk.now)
    talk.take(True, 190)
    assert talk.kinds() == ["OnsetHeard"]
    told = talk.take(True, 20)
    assert near(told, CallerCutIn, 100.2, 100.0)


def test_a_tail_of_the_callers_words_in_the_grace_does_not_cut_in() -> None:
    talk = Talk(grace_ms=200)
    talk.turns.agent(True, talk.now)
    talk.turns.agent_audible(talk.now)
    talk.take(True, 120)
    talk.take(False, 400)
    assert "CallerCutIn" not in talk.kinds()


def test_a_reply_of_which_nothing_is_heard_yet_has_no_grace() -> None:
    talk = Talk(grace_ms=1000)
    talk.turns.agent(True, talk.now)
    talk.take(True, 60)
    assert talk.kinds() == ["OnsetHeard", "CallerCutIn"]


def test_a_far_end_that_sends_nothing_is_silent() -> None:
    talk = Talk()
    talk.take(True, 200)
    assert talk.turns.tick(100.25) == []
    assert [type(event) for event in talk.turns.tick(100.31)] == [SpeechPaused]
    (ended,) = talk.turns.tick(100.55)
    assert isinstance(ended, TurnEnded)
    assert ended.ended_at == pytest.approx(100.2)


def test_somebody_else_may_end_the_turn_or_let_the_pause_last_longer() -> None:
    talk = Talk(longest_pause_ms=1000)
    assert talk.turns.finish("detector", talk.now) == []
    talk.take(True, 200)
    talk.take(False, 100)
    talk.turns.set_pause(1.0, "detector:wait")
    talk.take(False, 800)
    assert talk.turns.speaking
    talk.take(False, 100)
    assert isinstance(talk.events[-1], TurnEnded)
    talk.take(True, 200)
    (ended,) = talk.turns.finish("detector", talk.now)
    assert isinstance(ended, TurnEnded)
    assert ended.why == "detector"


def test_that_nobody_says_anything_is_told_once_each_time_and_only_if_asked_for() -> None:
    talk = Talk(quiet_s=1.0)
    talk.take(False, 990)
    assert talk.events == []
    talk.take(False, 2000)
    assert near(talk.events, CallerQuiet, 101.0, 1.0)
    talk.turns.agent(True, talk.now)
    talk.take(False, 3000)
    talk.turns.agent(False, talk.now)
    assert len(talk.events) == 1
    talk.take(False, 1500)
    assert talk.kinds() == ["CallerQuiet"] * 2
    never = Talk()
    never.take(False, 60_000)
    assert never.events == []


def test_keys_are_complete_after_a_pause() -> None:
    keys = KeyTurns(ListenSettings(keys_pause_ms=1000))
    assert keys.press("1", 5.0) is None
    assert keys.press("2", 5.5) is None
    assert keys.due(6.4) is None
    assert keys.due(6.5) == KeyGroup("12", 5.0, 5.5)
    assert keys.due(9.0) is None


def test_the_key_that_ends_a_number_ends_it_at_once_and_belongs_to_it() -> None:
    keys = KeyTurns(ListenSettings())
    keys.press("7", 1.0)
    assert keys.press("#", 1.2) == KeyGroup("7#", 1.0, 1.2)
    assert not keys.waiting


def test_a_caller_who_presses_keys_all_the_time_makes_turns_of_bounded_length() -> None:
    keys = KeyTurns(ListenSettings(max_keys=5, keys_until=""))
    made = [keys.press("1", number / 10) for number in range(20)]
    assert [each.digits for each in made if each is not None] == ["11111"] * 4


def test_numbers_that_are_complete_too_early_are_joined() -> None:
    keys = KeyTurns(ListenSettings())
    made = [keys.press(key, 1.0) for key in "1#2#3#4"]
    assert [each.digits for each in made if each is not None] == ["1#"]
    before = keys.complete
    assert keys.due(1.0 + TURN_GAP_S / 2) is None
    assert keys.due(1.0 + TURN_GAP_S) == KeyGroup("2#3#", 1.0, 1.0)
    assert (before, keys.complete) == (True, False), "the number that has begun is not finished"
    assert keys.due(2.6) == KeyGroup("4", 1.0, 1.0)


def test_keys_that_belong_to_a_turn_after_all_stand_before_those_that_follow() -> None:
    keys = KeyTurns(ListenSettings())
    assert keys.press("1", 1.0) is None
    assert keys.press("#", 1.1) is not None
    keys.restore()
    assert keys.take(1.1) == KeyGroup("1#", 1.0, 1.1)


@given(
    st.lists(st.tuples(st.sampled_from("1#"), st.floats(0, 1)), max_size=200),
    st.integers(1, 100),
)
def test_turns_are_bounded_in_size_and_rate_and_no_key_is_lost_unless_counted(
    pressed: list[tuple[str, float]], max_keys: int
) -> None:
    keys, now = KeyTurns(ListenSettings(max_keys=max_keys)), 0.0
    made: list[tuple[float, KeyGroup]] = []
    for digit, after in pressed:
        now += after
        for each in (keys.due(now), keys.press(digit, now)):
            if each is not None:
                made.append((now, each))
    while keys.waiting:
        now += 0.05
        if (each := keys.due(now)) is not None:
            made.append((now, each))
    assert all(len(each.digits) <= max_keys for _, each in made)
    assert all(later - earlier >= TURN_GAP_S - 1e-9 for (earlier, _), (later, _) in pairwise(made))
    assert sum(len(each.digits) for _, each in made) + keys.dropped == len(pressed)
    if not keys.dropped:
        assert "".join(each.digits for _, each in made) == "".join(digit for digit, _ in pressed)


def test_keys_beyond_those_that_may_wait_are_counted() -> None:
    keys = KeyTurns(ListenSettings())
    for _ in range(MAX_WAITING_KEYS + 11):
        keys.press("#", 1.0)
    assert keys.dropped == 10
