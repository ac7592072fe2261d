"""The overlap's core: its rules, one by one, and sequences of events drawn at random."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.detection.overlap import (
    GUESS_S,
    Actions,
    Overlap,
    OverlapAction,
    OverlapLimits,
    OverlapState,
)

DUCK, GUESS, DISCARD = OverlapAction.DUCK, OverlapAction.GUESS, OverlapAction.DISCARD
UNDUCK, INTERRUPT = OverlapAction.UNDUCK, OverlapAction.INTERRUPT
BACKCHANNEL = OverlapAction.BACKCHANNEL


class Caller:
    """A caller over one overlap; frames of 20 ms from the onset on."""

    def __init__(self, *, answers: bool = False, before_s: float = 0.0) -> None:
        self.overlap = Overlap()
        self.now = 10.06
        self.speech_s = 0.06 + before_s
        self.ended_at = 10.06
        self.actions: list[OverlapAction] = list(
            self.overlap.begin(10.0, before_s, answers=answers)
        )

    def speaks(self, seconds: float, *, voice: bool = True, agent: bool = True) -> Actions:
        """Feed voice, or silence; return what was done."""
        done: list[OverlapAction] = []
        for _ in range(round(seconds * 50)):
            self.now += 0.02
            if voice:
                self.speech_s += 0.02
                self.ended_at = self.now
            done += self.overlap.progress(self.now, self.speech_s, self.ended_at, agent=agent)
        self.actions += done
        return tuple(done)

    def rests(self, seconds: float) -> Actions:
        """Feed silence."""
        return self.speaks(seconds, voice=False)

    def words(self, text: str, language: str = "en", *, final: bool = False) -> Actions:
        """The recogniser's text comes."""
        done = self.overlap.words(text, [language], final=final)
        self.actions += done
        return done


def test_an_onset_ducks_the_agent() -> None:
    caller = Caller()
    assert caller.actions == [DUCK]
    assert caller.overlap.begin(10.0) == ()
    assert caller.overlap.state is OverlapState.OVERLAP


def test_600_ms_of_voice_interrupt() -> None:
    caller = Caller()
    assert caller.speaks(0.52) == ()
    assert caller.speaks(0.04) == (INTERRUPT,)
    assert (caller.overlap.verdict, caller.overlap.rule) == ("interruption", "voiced_600")


def test_a_backchannel_goes_by_once_it_is_quiet() -> None:
    caller = Caller()
    caller.speaks(0.3)
    assert caller.rests(0.1) == (GUESS,)
    assert caller.words("Mm-hmm.") == ()
    assert caller.rests(0.08) == ()
    assert caller.rests(0.02) == (UNDUCK, BACKCHANNEL)
    assert (caller.overlap.verdict, caller.overlap.rule) == ("backchannel", "words")
    assert caller.overlap.dropped


def test_words_that_come_late_are_judged_when_they_come() -> None:
    caller = Caller()
    caller.speaks(0.3)
    caller.rests(0.4)
    assert caller.words("Yeah.") == (UNDUCK, BACKCHANNEL)


@pytest.mark.parametrize(
    ("text", "rule"), [("Stop.", "stop_word"), ("The other one.", "words"), ("Hmm?", "words")]
)
def test_any_other_word_interrupts_when_it_is_known(text: str, rule: str) -> None:
    caller = Caller()
    caller.speaks(0.3)
    caller.rests(0.1)
    assert caller.words(text) == (INTERRUPT,)
    assert caller.overlap.rule == rule


def test_voice_without_words_is_in_doubt() -> None:
    caller = Caller()
    caller.speaks(0.2)
    caller.rests(0.1)
    assert caller.words("") == (INTERRUPT,)
    assert caller.overlap.rule == "no_words"


def test_a_backchannel_that_the_recogniser_is_not_sure_of_is_in_doubt() -> None:
    caller = Caller()
    caller.speaks(0.3)
    caller.rests(0.1)
    assert caller.overlap.words("Yes.", ["en"], unsure=True) == (INTERRUPT,)
    assert caller.overlap.rule == "unsure"


@pytest.mark.parametrize(
    ("voice_s", "text", "rule"), [(0.04, "", "no_words"), (0.4, "(coughs)", "sound")]
)
def test_a_little_voice_without_words_or_a_sound_is_noise(
    voice_s: float, text: str, rule: str
) -> None:
    caller = Caller()
    caller.speaks(voice_s)
    caller.rests(0.1)
    assert caller.words(text) == ()
    assert caller.rests(0.1) == (UNDUCK,)
    assert (caller.overlap.verdict, caller.overlap.rule) == ("noise", rule)


@pytest.mark.parametrize(("text", "verdict"), [("", "noise"), ("Yes.", "backchannel")])
def test_a_click_leaves_the_agent_speaking(text: str, verdict: str) -> None:
    caller = Caller()
    caller.speaks(0.02)
    assert caller.rests(0.1) == (GUESS,)
    assert caller.words(text) == ()
    assert caller.rests(0.1)[:1] == (UNDUCK,)
    assert caller.overlap.verdict == verdict


def test_a_word_that_stops_may_be_as_short_as_a_click() -> None:
    caller = Caller()
    caller.speaks(0.02)
    caller.rests(0.1)
    assert caller.words("Stop.") == (INTERRUPT,)
    assert caller.overlap.rule == "stop_word"
    other = Caller()
    other.speaks(0.02)
    other.rests(0.1)
    assert other.words("Another one.") == (INTERRUPT,)
    assert other.overlap.rule == "too_short"  # and no turn: as any click that silences the agent


def test_with_an_echo_a_click_may_be_a_word() -> None:
    overlap = Overlap()
    overlap.begin(10.0, echo=True)
    overlap.progress(10.16, 0.06, 10.06, agent=True)
    assert overlap.words("", ["en"]) == (INTERRUPT,)
    assert overlap.rule == "no_words"


def test_without_words_it_interrupts_1_2_s_after_the_onset() -> None:
    caller = Caller()
    caller.speaks(0.3)
    assert caller.rests(0.82) == (GUESS,)
    assert caller.rests(0.02) == (INTERRUPT,)
    assert caller.now == pytest.approx(11.2)
    assert caller.overlap.rule == "undecided"


def test_who_goes_on_is_not_judged_by_the_first_words() -> None:
    caller = Caller()
    caller.speaks(0.3)
    assert caller.rests(0.12) == (GUESS,)
    assert caller.words("Yes.") == ()
    assert caller.speaks(0.02) == (DISCARD,)
    assert caller.words("Yes.") == ()  # of a guess that was discarded
    assert caller.speaks(0.2) == ()
    assert caller.speaks(0.02) == (INTERRUPT,)  # the voice has counted on


def test_gaps_within_words_count_as_voice() -> None:
    caller = Caller()
    caller.speaks(0.2)
    caller.rests(0.08)
    assert caller.speaks(0.24) == ()
    assert caller.speaks(0.04) == (INTERRUPT,)
    assert caller.overlap.rule == "voiced_600"


def test_a_word_that_stops_is_not_held_back_while_the_caller_speaks() -> None:
    caller = Caller()
    caller.speaks(0.3)
    assert caller.words("Mm-hmm, the") == ()
    assert caller.words("Mm-hmm, the other, wait") == (INTERRUPT,)


def test_an_answer_is_no_backchannel() -> None:
    caller = Caller(answers=True)
    caller.speaks(0.3)
    caller.rests(0.2)
    assert caller.words("Yes.") == (INTERRUPT,)
    assert caller.overlap.rule == "answer"
    cough = Caller(answers=True)
    cough.speaks(0.04)
    cough.rests(0.2)
    assert cough.words("") == (UNDUCK,)


def test_a_question_that_began_meanwhile_counts_too() -> None:
    caller = Caller()
    caller.speaks(0.3)
    caller.rests(0.2)
    assert caller.overlap.words("Yes.", ["en"], answers=True) == (INTERRUPT,)


def test_the_end_of_the_agents_speech_makes_it_a_turn() -> None:
    caller = Caller()
    caller.speaks(0.2)
    assert caller.speaks(0.02, agent=False) == (INTERRUPT,)
    assert caller.overlap.rule == "agent_ended"


@pytest.mark.parametrize("rule", ["key", "typed", "recogniser"])
def test_a_key_or_a_failure_interrupts(rule: str) -> None:
    caller = Caller()
    assert caller.overlap.interrupt(rule) == (INTERRUPT,)
    assert caller.overlap.interrupt(rule) == ()
    assert caller.overlap.rule == rule


@pytest.mark.parametrize("languages", [[], ["cy"], [""]])
def test_a_language_without_a_list_interrupts(languages: list[str]) -> None:
    caller = Caller()
    caller.speaks(0.3)
    caller.rests(0.1)
    assert caller.overlap.words("Mm-hmm.", languages) == (INTERRUPT,)
    assert caller.overlap.rule == "no_list"


def test_voice_before_the_overlap_does_not_count() -> None:
    caller = Caller(before_s=5.0)
    assert caller.speaks(0.52) == ()
    assert caller.speaks(0.04) == (INTERRUPT,)


def test_an_end_without_words_unducks() -> None:
    caller = Caller()
    assert caller.overlap.close("closed") == (UNDUCK,)
    assert caller.overlap.close("closed") == ()
    assert (caller.overlap.verdict, caller.overlap.rule) == ("noise", "closed")


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.booleans()),
        st.tuples(st.just("voice"), st.integers(1, 40)),
        st.tuples(st.just("rest"), st.integers(1, 40)),
        st.tuples(
            st.just("words"),
            st.sampled_from(["", "Mm-hmm.", "Yes.", "Stop.", "I want that", "(cough)", "嗯", "no"]),
        ),
        st.tuples(st.just("final"), st.sampled_from(["", "Okay.", "Wait.", "Another one."])),
        st.tuples(st.just("agent_ends"), st.none()),
        st.tuples(st.just("interrupt"), st.none()),
        st.tuples(st.just("close"), st.none()),
    ),
    max_size=40,
)


@given(EVENTS, st.booleans())
def test_every_duck_ends_and_no_interruption_is_lost(
    events: list[tuple[str, object]], chinese: bool
) -> None:
    overlap, languages = Overlap(OverlapLimits()), ["zh" if chinese else "en"]
    now = began = ended_at = 5.0
    speech_s = 0.0
    voice_s = 0.0
    """Voice of this overlap."""
    ducked = False

    def take(actions: Actions, *, backchannel: bool = False) -> None:
        nonlocal ducked
        for action in actions:
            if action is DUCK:
                assert not ducked
                ducked = True
            elif action in (UNDUCK, INTERRUPT):
                assert ducked
                ducked = False
                assert (action is INTERRUPT) == (overlap.verdict == "interruption")
            elif action is BACKCHANNEL:
                assert overlap.verdict == "backchannel"
        assert ducked == overlap.open

    for name, value in events:
        if name == "begin" and not overlap.open:
            began, voice_s = now, 0.0
            take(overlap.begin(now, speech_s, answers=bool(value)))
        elif name in ("voice", "rest"):
            for _ in range(int(str(value))):
                now += 0.02
                if name == "voice":
                    speech_s, voice_s, ended_at = speech_s + 0.02, voice_s + 0.02, now
                was_open = overlap.open
                take(overlap.progress(now, speech_s, ended_at, agent=True))
                if was_open and (voice_s >= 0.6 + 1e-3 or now >= began + 1.2 + 1e-3):
                    assert not overlap.open
                if was_open and not overlap.open and overlap.dropped:
                    assert now - ended_at >= 0.2 - 1e-6
        elif name in ("words", "final"):
            was = overlap.open, overlap.state, overlap.answers
            take(overlap.words(str(value), languages, final=name == "final"))
            stops = value in ("Stop.", "Wait.", "no") and languages == ["en"]
            if was[0] and stops:
                assert overlap.verdict == "interruption"
            other = value in ("I want that", "Another one.")
            if was[0] and other and (name == "final" or was[1] is OverlapState.JUDGING):
                assert overlap.verdict == "interruption"
            if was[0] and was[2]:
                assert overlap.verdict != "backchannel"
        elif name == "agent_ends":
            was_open = overlap.open
            take(overlap.progress(now, speech_s, ended_at, agent=False))
            assert not was_open or overlap.verdict == "interruption"
        elif name == "interrupt":
            take(overlap.interrupt("key"))
        elif name == "close":
            take(overlap.close("closed"))
    take(overlap.close("closed"))
    assert not ducked


def test_the_guess_begins_before_the_silence_is_long_enough() -> None:
    assert OverlapLimits().quiet_s > GUESS_S


def test_a_guess_is_discarded_when_the_caller_was_heard_late_to_go_on() -> None:
    it = Overlap()
    it.begin(10.0)
    it.progress(10.3, 0.3, 10.3, agent=True)
    assert it.progress(10.42, 0.3, 10.3, agent=True) == (GUESS,)
    assert it.progress(10.5, 0.38, 10.38, agent=True) == (DISCARD,)
    assert it.progress(10.52, 0.38, 10.38, agent=True) == (GUESS,)
