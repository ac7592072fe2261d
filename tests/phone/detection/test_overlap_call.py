"""Overlaps on a call: ducked, judged by a recogniser's words, told and delivered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_phone.detection import core
from qwen3tts_phone.detection.events import (
    CallerCutIn,
    ListenEvent,
    OverlapBegan,
    OverlapEnded,
    Turn,
    TurnEnded,
    WordsGuessed,
)
from qwen3tts_phone.detection.recogniser import RecognitionFailed, Transcript
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.detection.speech_detection import SpeechDetection
from qwen3tts_speech.line import Saying
from tests.fakes import settle
from tests.phone.detection.fake_call import FakeCall, FakeRecogniser, LoudDetector


@pytest.fixture(autouse=True)
def _loud_is_speech(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "make_detector", lambda name: LoudDetector())


class Scene:
    """A caller who speaks over an agent."""

    def __init__(self, recogniser: FakeRecogniser | None, **changes: Any) -> None:
        usual: dict[str, Any] = {
            "grace_ms": 0,
            "overlap": "duck",
            "adaptive_pause": False,
        }
        self.call = FakeCall()
        self.recogniser = recogniser
        self.events: list[ListenEvent] = []
        self.turns: list[Turn] = []
        self.listening = SpeechDetection(
            self.call, ListenSettings(**usual | changes), recogniser, on_event=self.events.append
        )

    async def understands(self, text: str, language: str = "en") -> None:
        """The recogniser's text of the turn so far comes."""
        assert self.recogniser is not None
        assert self.recogniser.on_partial is not None
        self.recogniser.on_partial(Transcript(text, language))
        await settle()

    @property
    def verdicts(self) -> list[tuple[str, str]]:
        return [(each.verdict, each.rule) for each in self.events if type(each) is OverlapEnded]

    @property
    def ducks(self) -> list[float]:
        return [db for _, db in self.call.ducks]

    def told(self, kind: type) -> list[Any]:
        return [each for each in self.events if isinstance(each, kind)]

    async def read(self) -> None:
        async for turn in self.listening:
            self.turns.append(turn)


@asynccontextmanager
async def scene(recogniser: FakeRecogniser | None, **changes: Any) -> AsyncIterator[Scene]:
    """The agent speaks, and somebody listens; at the end the call is over."""
    made = Scene(recogniser, **changes)
    reading = asyncio.create_task(made.read())
    await settle()
    made.call.speaking = True
    try:
        yield made
    finally:
        if recogniser is not None:
            recogniser.gate.set()
        await made.call.hang_up()
        await reading
        assert not made.call.ducks or made.call.ducks[-1][1] == 0


async def test_a_backchannel_leaves_the_agent_speaking_and_is_no_turn() -> None:
    async with scene(FakeRecogniser("Mm-hmm.")) as it:
        await it.call.say(0.3)
        assert it.ducks == [12.0]
        assert it.call.ducks[0][0] == pytest.approx(100.06)
        await it.call.rest(0.12)
        assert it.recogniser is not None
        assert it.recogniser.told == ["begin", "pause"]  # before notice_ms
        await it.understands("Mm-hmm.")
        assert it.verdicts == []
        await it.call.rest(0.1)
        assert it.verdicts == [("backchannel", "words")]
        assert it.ducks == [12.0, 0.0]
        await it.call.rest(0.6)
        assert it.call.interruptions == []
        assert it.call.speaking
    assert it.turns == []
    (ended,) = it.told(TurnEnded)
    assert (ended.why, ended.cut_in, ended.rule) == ("noise", False, "backchannel")
    assert it.told(CallerCutIn) == []
    (began,) = it.told(OverlapBegan)
    assert began.began_at == pytest.approx(100.0)
    assert it.call.facts.turns == it.call.facts.barge_ins == 0


async def test_another_word_interrupts_with_these_words() -> None:
    async with scene(FakeRecogniser("The other one.")) as it:
        await it.call.say(0.3)
        await it.call.rest(0.12)
        await it.understands("The other one.")
        assert it.verdicts == [("interruption", "words")]
        assert it.call.interruptions == [pytest.approx(100.42)]
        await it.call.rest(0.6)
    (turn,) = it.turns
    assert (turn.text, turn.barge_in, turn.why) == ("The other one.", True, "pause")
    assert turn.interrupted == (it.call.utterance,)
    assert it.listening.interrupted == {it.call.utterance}
    assert len(it.told(CallerCutIn)) == 1
    assert it.told(TurnEnded)[0].cut_in


async def test_a_guess_of_an_overlap_counts_once_its_turn_pauses() -> None:
    async with scene(FakeRecogniser("The other one.")) as it:
        await it.call.say(0.3)
        await it.call.rest(0.12)
        await it.understands("The other one.")
        assert it.told(WordsGuessed) == []
        await it.call.rest(0.1)
        assert [each.text for each in it.told(WordsGuessed)] == ["The other one."]
        await it.call.rest(0.6)
    assert it.turns[0].guess == "The other one."


async def test_600_ms_of_voice_interrupt() -> None:
    async with scene(FakeRecogniser("Yes, I want another one.")) as it:
        await it.call.say(0.58)
        assert it.call.interruptions == []
        await it.call.say(0.04)
        assert it.call.interruptions == [pytest.approx(100.6, abs=0.021)]
        await it.call.say(1.0)
        await it.call.rest(0.7)
        assert it.verdicts == [("interruption", "voiced_600")]
    assert [turn.text for turn in it.turns] == ["Yes, I want another one."]
    assert it.turns[0].interrupted == (it.call.utterance,)


async def test_no_words_by_1_2_s_interrupt() -> None:
    recogniser = FakeRecogniser("Mm-hmm.")
    recogniser.gate.clear()
    async with scene(recogniser) as it:
        await it.call.say(0.3)
        await it.call.rest(0.88)  # the turn has ended at 0.9 s
        assert it.call.interruptions == []
        assert len(it.told(TurnEnded)) == 1
        await it.call.rest(0.04)
        assert it.call.interruptions == [pytest.approx(101.2, abs=0.021)]
        assert it.verdicts == [("interruption", "undecided")]
        recogniser.gate.set()
        await it.call.rest(0.1)
    (turn,) = it.turns
    assert (turn.text, turn.barge_in) == ("Mm-hmm.", True)
    assert turn.interrupted == (it.call.utterance,)


async def test_words_after_the_turns_end_are_judged_by_1_2_s() -> None:
    recogniser = FakeRecogniser("Mm-hmm.")
    recogniser.gate.clear()
    async with scene(recogniser) as it:
        await it.call.say(0.3)
        await it.call.rest(0.7)
        recogniser.gate.set()
        await it.call.rest(0.5)
        assert it.verdicts == [("backchannel", "words")]
        assert it.call.interruptions == []
    (turn,) = it.turns  # as after a cough: the end of the turn was told
    assert (turn.text, turn.why, turn.barge_in) == ("", "noise", False)


async def test_a_second_onset_before_the_verdict_interrupts() -> None:
    recogniser = FakeRecogniser("Mm-hmm.", "Another one.")
    recogniser.gate.clear()
    async with scene(recogniser) as it:
        await it.call.say(0.2)
        await it.call.rest(0.7)
        await it.call.say(0.2)
        assert it.verdicts == [("interruption", "goes_on")]
        assert len(it.call.interruptions) == 1
        recogniser.gate.set()
        await it.call.rest(0.7)
    assert [(turn.text, turn.barge_in) for turn in it.turns] == [
        ("Mm-hmm.", True),
        ("Another one.", True),
    ]


async def test_a_recogniser_that_fails_makes_it_an_interruption() -> None:
    async with scene(FakeRecogniser(RecognitionFailed("It is broken."))) as it:
        await it.call.say(0.3)
        await it.call.rest(0.7)
        assert it.verdicts == [("interruption", "recogniser")]
        assert len(it.call.interruptions) == 1
    assert it.turns[0].error is not None


async def test_final_words_that_are_others_interrupt_late() -> None:
    async with scene(FakeRecogniser("Yes, but not that.")) as it:
        await it.call.say(0.3)
        await it.call.rest(0.12)
        await it.understands("Yes.")
        await it.call.rest(0.6)
        assert it.verdicts == [("backchannel", "words"), ("interruption", "final_words")]
        assert len(it.call.interruptions) == 1
    (turn,) = it.turns
    assert (turn.text, turn.barge_in) == ("Yes, but not that.", True)


async def test_who_goes_on_after_a_backchannel_in_the_same_turn_is_heard_whole() -> None:
    async with scene(FakeRecogniser("Yes. But I want another one.")) as it:
        await it.call.say(0.3)
        await it.call.rest(0.12)
        await it.understands("Yes.")
        await it.call.rest(0.2)
        assert it.verdicts == [("backchannel", "words")]
        await it.call.say(0.7)
        assert it.verdicts[1:] == [("interruption", "voiced_600")]
        await it.call.rest(0.7)
        assert it.ducks == [12.0, 0.0, 12.0, 0.0]
    assert [turn.text for turn in it.turns] == ["Yes. But I want another one."]


async def test_who_goes_on_when_the_agent_has_ended_has_a_turn() -> None:
    async with scene(FakeRecogniser("Yes. But I want another one.")) as it:
        await it.call.say(0.3)
        await it.call.rest(0.12)
        await it.understands("Yes.")
        await it.call.rest(0.2)
        it.call.speaking = False
        await it.call.say(0.7)
        await it.call.rest(0.7)
    assert [turn.text for turn in it.turns] == ["Yes. But I want another one."]
    assert not it.turns[0].barge_in
    assert it.told(TurnEnded)[0].why == "pause"


async def test_the_agents_end_makes_it_a_turn_as_any() -> None:
    async with scene(FakeRecogniser("Mm-hmm.")) as it:
        await it.call.say(0.2)
        it.call.speaking = False
        await it.call.say(0.1)
        assert it.verdicts == [("interruption", "agent_ended")]
        await it.call.rest(0.7)
        assert it.told(CallerCutIn) == []
    assert [(turn.text, turn.barge_in) for turn in it.turns] == [("Mm-hmm.", False)]


@pytest.mark.parametrize(
    ("said", "stops"),
    [
        (Saying("Shall I ", "book it? Or wait. Or call.", True), True),
        (Saying("It will ", "arrive tomorrow.", True), True),
        (None, True),
        (Saying("It will ", "arrive tomorrow. It is blue.", True), False),
    ],
)
async def test_yes_to_a_question_or_to_the_last_clause_is_an_answer(
    said: Saying | None, stops: bool
) -> None:
    async with scene(FakeRecogniser("Yes.")) as it:
        it.call.said = said
        await it.call.say(0.3)
        await it.call.rest(0.12)
        await it.understands("Yes.")
        await it.call.rest(0.7)
        assert bool(it.call.interruptions) == stops
    assert [turn.text for turn in it.turns] == ["Yes."] * stops


async def test_a_key_interrupts_an_overlap() -> None:
    async with scene(FakeRecogniser("Mm-hmm."), keys_pause_ms=200) as it:
        await it.call.say(0.2)
        await it.call.press("1")
        assert it.verdicts == [("interruption", "key")]
        assert len(it.call.interruptions) == 2
        await it.call.rest(0.7)
    assert [turn.keys for turn in it.turns] == ["1"]
    assert it.turns[0].barge_in


async def test_keys_that_do_not_interrupt_stay_in_a_turn_of_their_own() -> None:
    async with scene(FakeRecogniser("Mm-hmm."), keys_interrupt=False) as it:
        await it.call.say(0.3)
        await it.call.rest(0.12)
        await it.understands("Mm-hmm.")
        await it.call.press("1")
        await it.call.rest(0.7)
        assert it.call.interruptions == []
    assert [turn.keys for turn in it.turns] == ["1"]


async def test_a_click_without_words_unducks() -> None:
    async with scene(FakeRecogniser()) as it:
        await it.call.say(0.08)
        await it.call.rest(0.22)
        await it.understands("")
        assert it.verdicts == [("noise", "no_words")]
        await it.call.rest(0.6)
        assert it.call.interruptions == []
    assert it.turns == []


async def test_a_click_that_a_recogniser_finds_words_in_silences_the_agent_and_is_noise() -> None:
    async with scene(FakeRecogniser("you")) as it:
        await it.call.say(0.08)
        await it.call.rest(0.22)
        await it.understands("you")
        assert it.verdicts == [("interruption", "too_short")]
        await it.call.rest(0.6)
    assert [(turn.text, turn.why, turn.barge_in) for turn in it.turns] == [("", "noise", True)]


async def test_a_stop_as_short_as_a_click_is_a_turn() -> None:
    async with scene(FakeRecogniser("Stop.")) as it:
        await it.call.say(0.08)
        await it.call.rest(0.12)
        await it.understands("Stop.")
        assert it.verdicts == [("interruption", "stop_word")]
        await it.call.rest(0.7)
    assert [(turn.text, turn.why, turn.barge_in) for turn in it.turns] == [("Stop.", "pause", True)]


async def test_a_click_that_is_not_understood_is_noise_when_its_turn_ends() -> None:
    async with scene(FakeRecogniser()) as it:
        await it.call.say(0.08)
        await it.call.rest(0.7)
        assert it.verdicts == [("noise", "too_short")]
        assert it.call.interruptions == []
    assert it.turns == []


async def test_a_cough_without_words_unducks() -> None:
    async with scene(FakeRecogniser("")) as it:
        await it.call.say(0.3)
        await it.call.rest(0.12)
        await it.understands("(coughs)")
        await it.call.rest(0.7)
        assert it.verdicts == [("noise", "sound")]
        assert it.call.interruptions == []
        assert it.told(TurnEnded)[0].rule == "noise"
    assert it.turns == []


@pytest.mark.parametrize(
    ("recogniser", "changes"),
    [
        (None, {}),
        (FakeRecogniser(), {"overlap": "stop"}),
        (FakeRecogniser(), {"language": "cy"}),
    ],
    ids=["no recogniser", "stop", "no list"],
)
async def test_todays_rule(recogniser: FakeRecogniser | None, changes: dict[str, Any]) -> None:
    async with scene(recogniser, **changes) as it:
        await it.call.say(0.2)
        assert it.call.interruptions == [pytest.approx(100.06)]
        await it.call.rest(0.7)
        assert it.told(OverlapBegan) == it.told(OverlapEnded) == []
        assert len(it.told(CallerCutIn)) == 1
        assert it.ducks == []
    assert it.turns[0].barge_in


async def test_the_language_of_a_long_turn_counts_for_short_ones() -> None:
    async with scene(FakeRecogniser("Ich möchte etwas bestellen.", "Genau.")) as it:
        it.call.speaking = False
        recogniser = it.recogniser
        assert recogniser is not None
        await it.call.say(1.0)
        recogniser.language = "de"
        await it.call.rest(0.7)
        it.call.speaking = True
        await it.call.say(0.3)
        await it.call.rest(0.12)
        await it.understands("Genau.", "nl")  # a single word's language is a guess
        await it.call.rest(0.2)
        assert it.verdicts == [("backchannel", "words")]


async def test_the_end_of_listening_unducks() -> None:
    async with scene(FakeRecogniser("Mm-hmm.")) as it:
        await it.call.say(0.2)
        assert it.ducks == [12.0]
        await it.listening.aclose()
        assert it.ducks == [12.0, 0.0]
        assert it.verdicts == [("noise", "closed")]


async def test_a_far_end_that_sends_nothing_more_is_judged_by_the_clock() -> None:
    async with scene(FakeRecogniser()) as it:
        await it.call.say(0.3)
        for _ in range(30):
            await it.call.clock.advance(0.05)
            await settle()
        assert it.verdicts != []
        assert it.ducks == [12.0, 0.0]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.integers(1, 20)),
        st.tuples(st.just("rest"), st.integers(1, 25)),
        st.tuples(st.just("words"), st.sampled_from(["Yes.", "", "Stop.", "I want that."])),
        st.tuples(st.just("judged"), st.sampled_from(["Yes.", "", "Stop.", "I want that."])),
        st.tuples(st.just("agent"), st.booleans()),
        st.tuples(st.just("key"), st.none()),
        st.tuples(st.just("nothing comes"), st.integers(1, 10)),
    ),
    min_size=1,
    max_size=12,
)


async def play(steps: list[tuple[str, Any]]) -> Scene:
    """A caller, and an agent that may stop, by these steps."""
    async with scene(FakeRecogniser(*["I want that."] * 20), keys_pause_ms=100) as it:
        for name, value in steps:
            if name == "say":
                await it.call.say(0.02 * value)
            elif name == "rest":
                await it.call.rest(0.02 * value)
            elif name == "words":
                await it.understands(value)
            elif name == "judged":
                await it.call.say(0.2)
                await it.call.rest(0.12)
                await it.understands(value)
                await it.call.rest(0.1)
            elif name == "agent":
                it.call.speaking = value
            elif name == "key":
                await it.call.press("1")
            else:
                await it.call.clock.advance(0.05 * value)
                await settle()
        await it.call.rest(1.6)
    return it


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_no_turn_is_lost_whatever_was_guessed_and_every_duck_ends(
    steps: list[tuple[str, Any]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core, "make_detector", lambda name: LoudDetector())
        it = asyncio.run(play(steps))
    assert it.recogniser is not None
    ended = it.told(TurnEnded)
    assert all(each.speech_s < 0.12 for each in ended if each.why == "noise" and not each.rule)
    texts = [turn.text for turn in it.turns if turn.text]
    assert len(texts) == it.recogniser.told.count("end")
    # Each turn is recognised or dropped, and dropped only if it is noise.
    ends, drops = (it.recogniser.told.count(each) for each in ("end", "drop"))
    assert ends + drops == len(ended)
    assert drops <= sum(each.why == "noise" for each in ended)
    late = [each for each in it.told(OverlapEnded) if each.rule == "final_words"]
    assert len(it.told(OverlapBegan)) == len(it.told(OverlapEnded)) - len(late)
    downs = [place for place, db in enumerate(it.ducks) if db]
    assert all(it.ducks[place + 1] == 0 for place in downs)


async def test_who_goes_on_after_the_verdict_is_recognised_to_the_end() -> None:
    async with scene(FakeRecogniser("Stop, I want the other one.")) as it:
        assert it.recogniser is not None
        await it.call.say(0.3)
        await it.call.rest(0.12)
        await it.understands("Stop,")
        assert it.verdicts == [("interruption", "stop_word")]
        assert it.recogniser.told == ["begin", "pause"]
        await it.call.say(0.4)  # before notice_ms: no SpeechResumed
        assert it.recogniser.told == ["begin", "pause", "resume"]
        await it.call.rest(0.7)
        assert it.recogniser.told == ["begin", "pause", "resume", "pause", "end"]


async def test_an_answer_after_a_backchannel_is_a_turn_when_the_agent_ends_meanwhile() -> None:
    async with scene(FakeRecogniser("Mhm. Yes.")) as it:
        await it.call.say(0.3)
        await it.call.rest(0.12)
        await it.understands("Mhm.")
        await it.call.rest(0.2)
        assert it.verdicts == [("backchannel", "words")]
        await it.call.say(0.04)
        it.call.speaking = False
        await it.call.say(0.3)
        await it.call.rest(0.7)
    (turn,) = it.turns
    assert (turn.text, turn.why, turn.barge_in) == ("Mhm. Yes.", "pause", False)


async def test_two_turns_that_wait_for_their_words_are_judged_each_by_its_own() -> None:
    async with scene(FakeRecogniser("Yes.", "Yes.", "Stop.")) as it:
        assert it.recogniser is not None
        it.recogniser.gate.clear()
        for _ in range(3):
            it.call.speaking = True
            await it.call.say(0.2)
            await it.call.rest(0.64)
        assert it.verdicts == [("interruption", "goes_on")]
        it.recogniser.gate.set()
        await settle()
        assert it.verdicts[1:] == [("interruption", "stop_word")]
    assert [turn.text for turn in it.turns] == ["Yes.", "Yes.", "Stop."]
