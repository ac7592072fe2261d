"""A scripted caller: what it says when, against what it hears."""

from __future__ import annotations

import numpy as np
import pytest

from qwen3tts_phone.audio.frames import KeyPressed, SentFrame
from qwen3tts_rehearsal.caller import EndCall, FindWords, NextTurn, Press, ScriptedCaller
from qwen3tts_rehearsal.observation import own_gaps
from qwen3tts_rehearsal.scenario import Wait
from qwen3tts_rehearsal.script import Await, HangUp, Pause, PressKeys, Say, SayOver
from tests.rehearsal.callers import ANSWERED_AT, RATE_HZ, LoudDetector, Talk, utterance

QUIET = Await(Wait(quiet_s=1.0), 0)


def test_a_caller_speaks_when_the_agent_has_been_silent_long_enough() -> None:
    talk = Talk(QUIET, Say(utterance(0.5), True, 1), QUIET, HangUp(3))
    talk.run(8.0, (0.4, 1.4), (3.4, 4.4))
    ((begin, end),) = talk.spoken
    assert begin == pytest.approx(2.4, abs=0.05)
    assert end - begin == pytest.approx(0.5, abs=0.021)
    assert list(talk.caller.commands) == [EndCall()]
    assert talk.caller.problems == []


def test_a_pause_within_the_agents_words_is_not_waited_for() -> None:
    talk = Talk(QUIET, Say(utterance(0.5), False, 1))
    talk.run(5.0, (0.4, 1.0), (1.6, 2.0))
    assert talk.spoken[0][0] == pytest.approx(3.0, abs=0.05)


def test_two_waits_are_two_things_that_the_agent_says() -> None:
    talk = Talk(QUIET, Await(Wait(until="speech"), 1), Say(utterance(0.2), False, 2))
    talk.run(6.0, (0.2, 0.8), (4.0, 5.0))
    assert talk.spoken[0][0] == pytest.approx(4.04, abs=0.05)


def test_a_wait_ends_at_its_limit_and_is_a_problem_of_the_script() -> None:
    talk = Talk(Await(Wait(limit_s=3.0), 0), Say(utterance(0.2), False, 1))
    talk.run(5.0)
    assert talk.spoken[0][0] == pytest.approx(3.0, abs=0.03)
    assert talk.caller.problems == ["steps[0]: waited 3 s for quiet, in vain"]


def test_an_interruption_begins_its_time_after_the_agents_first_sound() -> None:
    over = SayOver(utterance(0.5), "barge_in", 1.0, 10.0, True, 0)
    talk = Talk(over, QUIET, HangUp(2))
    talk.run(4.9, (0.5, 2.0), (2.6, 4.0))
    assert not talk.caller.commands  # the end of what was interrupted is no answer
    talk.run(0.3)
    assert [*talk.spoken[0]] == pytest.approx([1.5, 2.0], abs=0.05)
    assert [mark.kind for mark in talk.caller.marks] == ["barge_in"]
    assert list(talk.caller.commands) == [EndCall()]


def test_what_the_agent_said_into_a_turn_and_broke_off_is_no_answer() -> None:
    talk = Talk(Say(utterance(3.0), True, 0), QUIET, HangUp(2))
    talk.run(5.6, (1.0, 1.4), (3.6, 4.8))
    assert not talk.caller.commands
    talk.run(0.3)
    assert list(talk.caller.commands) == [EndCall()]


def test_the_call_is_not_ended_before_the_last_word_has_left() -> None:
    talk = Talk(Say(utterance(0.5), False, 0), HangUp(1))
    caller = talk.caller
    for number in range(40):
        caller.frame(ANSWERED_AT + number * 0.02)  # the line holds all of it
    assert not caller.commands
    caller.sent(SentFrame(utterance(0.5).samples, RATE_HZ, ANSWERED_AT + 0.6))
    caller.frame(ANSWERED_AT + 0.82)
    assert list(caller.commands) == [EndCall()]


def test_an_agent_that_ends_before_the_interruption_is_interrupted_the_next_time() -> None:
    talk = Talk(SayOver(utterance(0.3), "barge_in", 1.0, 10.0, False, 0))
    talk.run(6.0, (0.5, 1.0), (3.0, 5.0))
    assert talk.spoken[0][0] == pytest.approx(4.0, abs=0.03)


def test_an_agent_that_says_nothing_to_interrupt_is_a_problem() -> None:
    talk = Talk(SayOver(utterance(0.3), "barge_in", 1.0, 2.0, False, 4), Pause(1.0, 5))
    talk.run(4.0)
    assert talk.spoken == []
    assert talk.caller.problems == ["steps[4]: barge_in: the agent said nothing to talk over"]
    assert list(talk.caller.commands) == [EndCall()]


def test_a_backchannel_is_no_turn_that_is_answered() -> None:
    over = SayOver(utterance(0.3), "backchannel", 0.5, 10.0, False, 0)
    talk = Talk(Say(utterance(0.2), True, 0), over, QUIET, HangUp(2))
    talk.run(6.0, (1.0, 4.0))
    assert talk.spoken[1][0] == pytest.approx(1.5, abs=0.03)
    assert list(talk.caller.commands) == [EndCall()]  # the end of the same answer was waited for


def test_a_pause_is_counted_from_the_end_of_what_was_said() -> None:
    talk = Talk(Say(utterance(1.0), False, 0), Pause(2.0, 1), Say(utterance(0.2), False, 2))
    talk.run(5.0)
    assert talk.spoken[1][0] == pytest.approx(3.0, abs=0.05)
    (pause,) = talk.caller.pauses
    assert pause == pytest.approx((101.0, 103.0), abs=0.05)


def test_keys_are_a_command_and_the_script_waits_for_them() -> None:
    talk = Talk(PressKeys("12#", True, 0), QUIET, HangUp(2))
    talk.run(1.0, (0.2, 0.6))
    assert talk.caller.commands.popleft() == Press("12#")
    talk.caller.pressed("12#", ANSWERED_AT + 0.1, ANSWERED_AT + 1.0)
    talk.run(4.0, (1.5, 2.5))
    assert talk.caller.pressed_spans == [(100.1, 101.0, "12#", True)]
    assert list(talk.caller.commands) == [EndCall()]


def test_words_that_are_waited_for_are_looked_for_at_each_pause() -> None:
    wait = Wait(words="good ?bye", quiet_s=0.5)
    talk = Talk(Await(wait, 0), HangUp(1))
    talk.run(2.0, (0.2, 1.0))
    command = talk.caller.commands.popleft()
    assert command == FindWords(ANSWERED_AT, "good ?bye")
    talk.caller.found("Hello.", "good ?bye", talk.now)
    talk.run(0.5)
    assert not talk.caller.commands  # there is nothing new to look at
    talk.run(2.0, (2.6, 3.0))
    assert isinstance(talk.caller.commands.popleft(), FindWords)
    talk.caller.found("Well then: good-bye!", "good ?bye", talk.now)
    talk.run(0.1)
    assert list(talk.caller.commands) == [EndCall()]


def test_a_persona_is_asked_for_its_next_turn() -> None:
    caller = ScriptedCaller(
        [QUIET], RATE_HZ, ANSWERED_AT, LoudDetector(), np.zeros(0, np.int16), persona=True
    )
    talk = Talk()
    talk.caller = caller
    talk.run(3.0, (0.2, 1.0))
    assert caller.commands.popleft() == NextTurn(ANSWERED_AT)
    assert not caller.commands
    caller.go_on([Say(utterance(0.3), True, -1), QUIET], talk.now)
    talk.run(3.0, (3.8, 4.4))
    assert talk.spoken[0][0] == pytest.approx(3.0, abs=0.03)
    (command,) = caller.commands
    assert isinstance(command, NextTurn)
    assert command.since == pytest.approx(103.0, abs=0.05)


def test_noise_sounds_all_the_time_and_what_is_said_is_added() -> None:
    noise = np.full(RATE_HZ, 300, np.int16)
    talk = Talk(Pause(0.5, 0), Say(utterance(0.5), False, 1), background=noise)
    talk.run(1.0)
    frames = talk.caller.sent_frames.frames
    assert all(frame.samples.max() >= 300 for frame in frames)
    assert max(int(frame.samples.max()) for frame in frames) > 8200


def test_stopped_it_says_nothing_more_and_names_the_reason() -> None:
    talk = Talk(Say(utterance(5.0), False, 0), HangUp(1))
    talk.run(1.0)
    talk.caller.stop("the call lasted 1 s (max_seconds)")
    talk.run(1.0)
    assert talk.spoken == [(0.0, 1.0)]
    assert talk.caller.problems == ["the call lasted 1 s (max_seconds)"]
    assert not talk.caller.commands


def test_a_sample_is_spoken_one_frame_before_it_leaves() -> None:
    talk = Talk(Pause(0.1, 0), Say(utterance(0.5), False, 1))
    talk.run(1.0)
    (mark,) = talk.caller.marks
    first = talk.caller.sent_frames.time_of(mark.first)
    assert first == pytest.approx(ANSWERED_AT + 0.1 - 0.02, abs=0.021)
    assert talk.caller.sent_frames.time_of(mark.last - 1) == pytest.approx(
        (first or 0) + 0.5, abs=0.001
    )
    assert talk.caller.sent_frames.time_of(10**9) is None


def test_gaps_in_what_was_said_are_those_of_this_machine() -> None:
    talk = Talk(Say(utterance(1.0), False, 0))
    talk.run(0.4)
    talk.now += 1.5  # nothing leaves for that time
    talk.run(1.0)
    (mark,) = talk.caller.marks
    assert talk.caller.sent_frames.gaps_s(mark.first, mark.last) == pytest.approx(1.5, abs=0.01)
    assert talk.caller.sent_frames.gaps_s(0, 8 * 160) == 0.0
    (problem,) = own_gaps(talk.caller)
    assert "too busy" in problem


def test_keys_of_the_agent_are_kept() -> None:
    talk = Talk(Pause(1.0, 0))
    talk.caller.key(KeyPressed(101.0, "5", 100))
    assert [key.digit for key in talk.caller.keys] == ["5"]
