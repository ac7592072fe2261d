"""A call, the core, a recogniser and the interruption, joined."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from qwen3tts_phone.detection import core
from qwen3tts_phone.detection.endpointing import TURN_GAP_S, TurnSoFar
from qwen3tts_phone.detection.events import ListenEvent, OnsetHeard, Turn, WordsGuessed
from qwen3tts_phone.detection.recogniser import RecogniserUnavailable, RecognitionFailed, Transcript
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.detection.speech_detection import MAX_UNREAD_TURNS, SpeechDetection
from tests.fakes import settle
from tests.phone.detection.fake_call import FakeCall, FakeRecogniser, LoudDetector


@pytest.fixture(autouse=True)
def _loud_is_speech(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "make_detector", lambda name: LoudDetector())


def settings(**changes: Any) -> ListenSettings:
    usual: dict[str, Any] = {"grace_ms": 0, "pause_ms": 300, "notice_ms": 100, "min_speech_ms": 50}
    usual["adaptive_pause"] = False
    return ListenSettings(**(usual | changes))


@asynccontextmanager
async def listening(
    call: FakeCall, recogniser: FakeRecogniser | None = None, **options: Any
) -> AsyncIterator[tuple[SpeechDetection, list[Turn]]]:
    """Listens to the call; the turns as they come."""
    turns: list[Turn] = []
    wanted = options.pop("settings", settings())
    heard = SpeechDetection(call, wanted, recogniser, **options)

    async def read() -> None:
        async for turn in heard:
            turns.append(turn)

    reading = asyncio.create_task(read())
    await settle()
    try:
        yield heard, turns
    finally:
        await call.hang_up()
        await reading


async def test_a_turn_has_its_text_its_times_and_its_sound() -> None:
    call, recogniser = FakeCall(), FakeRecogniser("Hello there.")
    async with listening(call, recogniser) as (_, turns):
        await call.rest(0.5)
        await call.say(0.5)
        await call.rest(0.5)
    (turn,) = turns
    assert (turn.text, turn.language, turn.confidence) == ("Hello there.", "en", 0.9)
    assert (turn.why, turn.barge_in, turn.error) == ("pause", False, None)
    assert turn.began_at == pytest.approx(100.5)
    assert turn.ended_at == pytest.approx(101.0)
    assert turn.decided_at == pytest.approx(101.3, abs=0.021)
    assert turn.transcribed_at >= turn.decided_at
    assert len(turn.samples) / turn.rate_hz == pytest.approx(1.1, abs=0.03)  # 0.3 s before it
    assert recogniser.told == ["begin", "pause", "end", "close"]
    assert recogniser.pushed == pytest.approx(1.5 * 16000, rel=0.01)
    assert call.facts.turns == 1


async def test_words_are_in_no_repr() -> None:
    call = FakeCall()
    async with listening(call, FakeRecogniser("my secret")) as (_, turns):
        await call.say(0.3)
        await call.press("42")
        await call.rest(0.5)
    assert turns[0].text == "my secret"
    assert "secret" not in repr(turns[0])
    assert "42" not in repr(turns)


async def test_without_a_recogniser_a_turn_has_no_text() -> None:
    call = FakeCall()
    async with listening(call) as (_, turns):
        await call.say(0.3)
        await call.rest(0.5)
    assert [(turn.text, turn.why) for turn in turns] == [("", "pause")]


async def test_the_agent_is_silenced_before_anybody_is_told() -> None:
    call = FakeCall()
    told: list[tuple[str, int]] = []

    def on_event(event: ListenEvent) -> None:
        told.append((type(event).__name__, len(call.interruptions)))

    async with listening(call, on_event=on_event) as (heard, turns):
        call.speaking = True
        await call.say(0.3)
        await call.rest(0.5)
        assert heard.interrupted == {call.utterance}
    assert told[:2] == [("OnsetHeard", 0), ("CallerCutIn", 1)]
    assert call.interruptions == [pytest.approx(100.06)]
    assert turns[0].barge_in
    assert turns[0].interrupted == (call.utterance,)
    assert call.facts.barge_ins == 1


async def test_the_interruption_needs_no_turn_of_the_event_loop() -> None:
    call = FakeCall()
    heard = SpeechDetection(call, settings())
    heard._sent = call.sent_audio()
    call.speaking = True
    from qwen3tts_phone.audio.frames import HeardFrame
    from tests.phone.detection.fake_call import LOUD

    for number in range(4):
        heard._frame(HeardFrame(LOUD, 100.0 + number * 0.02, False, 8000, number * 160))
    assert len(call.interruptions) == 1


async def test_where_barge_in_is_off_the_agent_goes_on() -> None:
    call = FakeCall()
    async with listening(call, settings=settings(barge_in=False)) as (_, turns):
        call.speaking = True
        await call.say(0.5)
        await call.rest(0.5)
    assert call.interruptions == []
    assert not turns[0].barge_in


async def test_a_short_noise_is_no_turn_unless_it_has_silenced_the_agent() -> None:
    call, recogniser = FakeCall(), FakeRecogniser("never asked for")
    short = settings(min_speech_ms=200)
    async with listening(call, recogniser, settings=short) as (_, turns):
        await call.say(0.1)
        await call.rest(0.5)
        assert turns == []
        call.speaking = True
        await call.say(0.1)
        await call.rest(0.5)
    assert [(turn.why, turn.text, turn.barge_in) for turn in turns] == [("noise", "", True)]
    assert turns[0].interrupted == (call.utterance,)
    assert "end" not in recogniser.told
    assert call.facts.turns == 0


async def test_who_wants_to_know_is_told_when_the_caller_speaks_and_stops() -> None:
    call = FakeCall()
    async with listening(call) as (heard, _):
        voice: list[bool] = []
        heard.on_voice = lambda speaks, at: voice.append(speaks)
        await call.say(0.2)
        assert (heard.caller_speaking, heard.quiet.is_set()) == (True, False)
        await call.rest(0.2)
        await call.say(0.2)
        await call.rest(0.5)
        assert (heard.caller_speaking, heard.quiet.is_set()) == (False, True)
        assert voice == [True, True, False]


async def test_the_recogniser_is_told_of_pauses_and_partial_text_is_there() -> None:
    call, recogniser = FakeCall(), FakeRecogniser("One two.")
    async with listening(call, recogniser) as (heard, _):
        await call.say(0.3)
        assert recogniser.on_partial is not None
        recogniser.on_partial(Transcript("One"))
        assert heard.partial == "One"
        await call.rest(0.2)
        await call.say(0.3)
        await call.rest(0.5)
    assert recogniser.told == ["begin", "pause", "resume", "pause", "end", "close"]


async def test_the_words_of_a_paused_turn_are_guessed_and_of_no_other() -> None:
    call, recogniser = FakeCall(), FakeRecogniser("One two three.")
    async with listening(call, recogniser) as (heard, turns):
        told: list[ListenEvent] = []
        heard.on_event = told.append

        def understood(text: str) -> None:
            assert recogniser.on_partial is not None
            recogniser.on_partial(Transcript(text))

        understood("Long before.")
        await call.say(0.3)
        understood("One")  # the caller speaks
        await call.rest(0.16)
        understood("One")
        understood("One ")  # the same
        understood("  ")
        await call.say(0.3)
        understood("One two")
        await call.rest(0.16)
        understood("One")  # of another pause
        understood("One two three")
        await call.rest(0.5)
        understood("Too late.")
    guesses = [each for each in told if isinstance(each, WordsGuessed)]
    assert [each.text for each in guesses] == ["One", "One", "One two three"]
    assert [each.speech_s for each in guesses] == pytest.approx([0.3, 0.6, 0.6], abs=0.03)
    assert [turn.guess for turn in turns] == ["One two three"]
    assert "One" not in repr(guesses[0])


async def test_turns_come_in_their_order_though_the_first_text_takes_longer() -> None:
    call, recogniser = FakeCall(), FakeRecogniser("first", "second")
    recogniser.gate.clear()
    async with listening(call, recogniser) as (_, turns):
        for _ in range(2):
            await call.say(0.2)
            await call.rest(0.5)
        await call.press("5#")
        assert turns == []
        recogniser.gate.set()
        await settle()
        assert [turn.text or turn.keys for turn in turns] == ["first", "second", "5#"]


@pytest.mark.parametrize(
    "failure", [RecognitionFailed("It broke."), RuntimeError("a defect")], ids=["typed", "defect"]
)
async def test_a_recogniser_that_fails_costs_one_turn_its_text(failure: Exception) -> None:
    call, recogniser = FakeCall(), FakeRecogniser(failure, "again")
    async with listening(call, recogniser) as (_, turns):
        for _ in range(2):
            await call.say(0.2)
            await call.rest(0.5)
    assert isinstance(turns[0].error, RecognitionFailed)
    assert (turns[0].text, turns[1].text, turns[1].error) == ("", "again", None)


async def test_a_recogniser_that_cannot_be_opened_leaves_turns_with_the_error() -> None:
    call, recogniser = FakeCall(), FakeRecogniser()
    recogniser.refuses = RecogniserUnavailable("No model.")
    async with listening(call, recogniser) as (_, turns):
        await call.say(0.2)
        await call.rest(0.5)
    assert turns[0].error is recogniser.refuses


class Smart:
    def __init__(self, answer: bool | float | Exception | None) -> None:
        self.answer = answer
        self.asked: list[TurnSoFar] = []

    async def finished(self, turn: TurnSoFar) -> bool | float | None:
        self.asked.append(turn)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_a_turn_detector_ends_the_turn_before_the_pause_has_passed() -> None:
    call, smart = FakeCall(), Smart(0.8)
    async with listening(call, turn_detector=smart) as (_, turns):
        await call.say(0.4)
        await call.rest(0.4)
    (turn,) = turns
    assert turn.why == "detector"
    assert turn.decided_at - turn.ended_at == pytest.approx(0.1, abs=0.021)
    assert len(smart.asked[0].samples) / 8000 == pytest.approx(0.5, abs=0.03)


async def test_a_turn_detector_lets_a_pause_last_longer_but_not_for_ever() -> None:
    call, smart = FakeCall(), Smart(False)
    longer = settings(longest_pause_ms=1000)
    async with listening(call, turn_detector=smart, settings=longer) as (_, turns):
        await call.say(0.4)
        await call.rest(0.9)
        assert turns == []
        await call.rest(0.2)
        assert [turn.why for turn in turns] == ["pause"]
        assert turns[0].decided_at - turns[0].ended_at == pytest.approx(1.0, abs=0.021)


@pytest.mark.parametrize("answer", [None, RuntimeError("a defect")], ids=["none", "defect"])
async def test_a_turn_detector_without_an_answer_leaves_it_to_the_pause(
    answer: Exception | None,
) -> None:
    call = FakeCall()
    async with listening(call, turn_detector=Smart(answer)) as (_, turns):
        await call.say(0.4)
        await call.rest(0.5)
    assert [turn.why for turn in turns] == ["pause"]


class Plain:
    """A detector of somebody who forgot ``async``, or the type."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def finished(self, turn: TurnSoFar) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


async def answers(text: object) -> object:
    return text


@pytest.mark.parametrize("kind", ["no coroutine", "raises", "no number"])
async def test_a_turn_detector_that_is_none_costs_no_turn(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"no coroutine": True, "raises": KeyError("x"), "no number": answers("yes")}
    call = FakeCall()
    async with listening(call, turn_detector=Plain(given[kind])) as (_, turns):
        await call.say(0.4)
        await call.rest(0.5)
    assert [turn.why for turn in turns] == ["pause"]
    assert "the turn detector failed" in caplog.text
    for each in given.values():
        if isinstance(each, Coroutine):
            each.close()


async def test_keys_are_a_turn_of_their_own_and_silence_the_agent() -> None:
    call = FakeCall()
    async with listening(call) as (_, turns):
        call.speaking = True
        await call.press("12")
        await call.rest(1.6)
        assert [(turn.keys, turn.why, turn.text) for turn in turns] == [("12", "keys", "")]
        assert turns[0].barge_in
        assert len(call.interruptions) == 1
        await call.press("3#")
        assert turns[1].keys == "3#"


async def test_keys_that_are_pressed_while_the_caller_speaks_go_with_that_turn() -> None:
    call, recogniser = FakeCall(), FakeRecogniser("my number is")
    async with listening(call, recogniser) as (_, turns):
        await call.say(0.3)
        await call.press("7")
        await call.say(0.3)
        await call.rest(0.5)
        await call.rest(2.0)
    assert [(turn.text, turn.keys) for turn in turns] == [("my number is", "7")]


async def test_the_tone_of_a_key_that_is_heard_as_noise_does_not_swallow_the_key() -> None:
    call = FakeCall()
    async with listening(call, settings=settings(min_speech_ms=200)) as (_, turns):
        await call.press("7")
        await call.say(0.1)
        await call.rest(2.0)
    assert [(turn.why, turn.keys) for turn in turns] == [("keys", "7")]


async def test_keys_that_are_not_wanted_are_left_alone() -> None:
    call = FakeCall()
    async with listening(call, settings=settings(keys=False)) as (_, turns):
        call.speaking = True
        await call.press("12#")
        await call.rest(2.0)
    assert turns == []
    assert call.interruptions == []


async def test_a_far_end_that_stops_sending_in_mid_word_ends_its_turn() -> None:
    call = FakeCall()
    async with listening(call) as (_, turns):
        await call.say(0.3)
        await call.clock.advance(0.6)
        assert [turn.why for turn in turns] == ["pause"]


async def test_what_is_being_said_when_the_call_ends_is_a_turn() -> None:
    call = FakeCall()
    async with listening(call, FakeRecogniser("bye")) as (_, turns):
        await call.say(0.3)
    assert [(turn.why, turn.text) for turn in turns] == [("call_over", "bye")]


async def test_who_leaves_the_loop_listens_no_more() -> None:
    call, recogniser = FakeCall(), FakeRecogniser("one")
    heard = SpeechDetection(call, settings(), recogniser)

    async def first() -> Turn:
        async for turn in heard:
            return turn
        raise AssertionError

    reading = asyncio.create_task(first())
    await settle()
    await call.say(0.3)
    await call.rest(0.5)
    assert (await reading).text == "one"
    await settle()
    assert recogniser.told[-1] == "close"
    with pytest.raises(StopAsyncIteration):
        await anext(heard)


async def test_turns_that_nobody_reads_are_bounded() -> None:
    call = FakeCall()
    heard = SpeechDetection(call, settings(max_keys=1))
    heard.start()
    await settle()
    for _ in range(MAX_UNREAD_TURNS + 5):
        await call.press("1")
        await call.clock.advance(TURN_GAP_S)
    assert heard.unread_turns == 5
    await heard.aclose()


async def test_a_machine_that_presses_keys_makes_a_few_turns_a_second() -> None:
    call = FakeCall()
    heard = SpeechDetection(call, settings())
    got: list[Turn] = []
    heard.followers.append(got.append)
    heard.start()
    await settle()
    began = call.clock.now()
    for _ in range(100):
        await call.press("1#")
    assert len(got) <= (call.clock.now() - began) / TURN_GAP_S + 1
    await call.clock.advance(2.0)
    assert "".join(turn.keys for turn in got) == "1#" * 100, "none of them is lost"
    await heard.aclose()


async def test_an_error_of_who_is_told_reaches_the_reader() -> None:
    call = FakeCall()

    def on_event(event: ListenEvent) -> None:
        if isinstance(event, OnsetHeard):
            raise LookupError("a defect of the program")

    heard = SpeechDetection(call, settings(), on_event=on_event)
    reading = asyncio.ensure_future(anext(heard))
    await settle()
    await call.say(0.2)
    with pytest.raises(LookupError):
        await reading
