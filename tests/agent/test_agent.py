"""An agent on a scripted call, with a model that does what a test says."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from qwen3tts_agent.agent import Agent
from qwen3tts_agent.chat.messages import ChatMessage
from qwen3tts_agent.session import AgentSession
from qwen3tts_agent.settings import AgentSettings
from qwen3tts_agent.turn_record import TurnRecord
from qwen3tts_agent.turn_taking import TurnTaking
from qwen3tts_phone.detection.endpointing import TurnSoFar
from qwen3tts_phone.detection.events import MissingDetector
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_speech.latency import Mark, UtteranceRecord
from qwen3tts_wire.errors import BadRequest, ConnectionLost, EngineFailed, SpeechError
from tests.agent.parts import ScriptedCall, Session, agent_of, begin
from tests.fakes import FakeClock, settle


class Model:
    """Model that writes a delta whenever the test gives one, in each reply."""

    def __init__(self, *replies: str) -> None:
        self.asked: list[list[tuple[str, str]]] = []
        self.closed = 0
        self.errors: list[Exception] = []
        self.hold = asyncio.Event()
        self.hold.set()
        self.pace: asyncio.Semaphore | None = None
        """Where there is one, each delta takes a permit."""
        self._replies = list(replies)

    async def __call__(self, messages: Sequence[ChatMessage]) -> AsyncIterator[str]:
        self.asked.append([(each.role, each.content) for each in messages])
        try:
            if self.errors:
                raise self.errors.pop(0)
            reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
            for delta in reply.split("|"):
                await self.hold.wait()
                if self.pace is not None:
                    await self.pace.acquire()
                yield delta
        finally:
            self.closed += 1


async def started(model: Model, **more: object) -> Session:
    return await begin(model.__call__, None, **more)


class Kept:
    """Keeps the records of utterances."""

    def __init__(self, records: list[UtteranceRecord]) -> None:
        self.append = records.append


QUIET = AgentSettings(quiet_s=0)


async def test_it_greets_listens_and_answers_and_the_model_is_told_what_was_heard() -> None:
    model = Model("Fine, |thank you.")
    session = await started(model, greeting="Hello.", system="Be brief.")
    await session.call.says("How are you?")
    assert model.asked[0] == [
        ("system", "Be brief."),
        ("user", "[The call is answered.]"),
        ("assistant", "Hello."),
        ("user", "How are you?"),
    ]
    assert session.said[-1] == ("assistant", "Fine, thank you.")
    conversation = await session.end()
    assert [record.kind for record in conversation.turns] == ["greeting", "caller"]
    assert conversation.heard == "Hello. Fine, thank you."
    assert conversation.ended == "the caller hung up"


async def test_the_agents_last_words_and_the_rule_of_a_pause_go_between_listening_and_record() -> (
    None
):
    model = Model("What is your nine-digit number?", "Thank you.")
    session = await started(model, greeting="Hello.")
    await session.call.says("Hi.")
    await session.call.says("123 456 789", rule="digits_complete")
    assert session.call.listening.expected == ["Hello.", "What is your nine-digit number?"]
    conversation = await session.end()
    assert [record.rule for record in conversation.turns] == ["", "", "digits_complete"]
    assert '"rule":"digits_complete"' in conversation.turns[-1].to_json("c1")


async def test_the_first_clause_is_spoken_while_the_model_writes_on() -> None:
    model = Model("Sure, |let me see.")
    session = await started(model)
    model.pace = asyncio.Semaphore(1)
    await session.call.says("Hi.")
    context = session.call.client.contexts[0]
    assert [context.text, context.ended] == ["Sure, ", False]
    model.pace.release()
    await settle(60)
    assert [context.text, context.ended] == ["Sure, let me see.", True]
    await session.end()


async def test_an_interruption_leaves_just_what_was_heard_and_keeps_the_rest() -> None:
    model = Model("one two |three four five", "yes")
    session = await started(model)
    session.call.sink.at_once = False
    await session.call.says("Count.")
    await session.call.sink.play_words(3)
    await session.call.says("Stop!")
    assert model.asked[-1] == [
        ("user", "Count."),
        ("assistant", "one two three"),
        ("user", "Stop!"),
    ]
    assert session.conversation.unsaid == "four five"
    record = await session.turns.of(1)
    assert (record.heard, record.unsaid, record.interrupted) == ("one two three", "four five", True)
    session.call.sink.at_once = True
    await session.end()


async def test_the_first_words_of_a_turn_are_timed_from_where_the_caller_fell_silent() -> None:
    session = await started(Model("Fine, |thank you."), greeting="Hello.")
    kept: list[UtteranceRecord] = []
    speaker = session.call.speaker
    assert speaker is not None
    speaker._log = replace(speaker._log, sink=Kept(kept))
    await session.call.says("How are you?", transcribed_at=session.call.time.now() + 0.2)
    await session.call.says("And now?", decided_at=session.call.time.now() + 0.5)
    conversation = await session.end()
    assert len(kept) == 2
    for record, turn in zip(kept, conversation.turns[1:], strict=True):
        assert record.marks[Mark.SPEECH_END] == turn.times["caller_end"]
        assert record.marks[Mark.TRANSCRIBED] == turn.times["transcript"]
        assert record.marks[Mark.TURN_END] == max(turn.times["transcript"], turn.times["turn_end"])


async def test_the_rest_can_be_said_after_all() -> None:
    model = Model("one two three", "yes")
    session = await started(model)
    session.call.sink.at_once = False
    await session.call.says("Count.")
    await session.call.sink.play_words(1)
    await session.call.says("Wait.")
    session.call.sink.at_once = True
    await session.call.sink.play_all()
    await settle(60)
    assert await session.conversation.continue_()
    assert session.conversation.unsaid == ""
    assert session.said == [
        ("user", "Count."),
        ("assistant", "one"),
        ("user", "Wait."),
        ("assistant", "yes two three"),
    ]
    assert not await session.conversation.continue_(), "nothing is left"
    await session.end()


async def test_a_cough_stops_the_voice_and_then_it_goes_on_where_it_was() -> None:
    model = Model("one two three four")
    session = await started(model)
    session.call.sink.at_once = False
    await session.call.says("Count.")
    await session.call.sink.play_words(2)
    await session.call.says("", why="noise")
    assert [context.text for context in session.call.client.contexts] == [
        "one two three four",
        " three four",
    ]
    session.call.sink.at_once = True
    await session.call.sink.play_all()
    record = await session.turns.of(1)
    assert (record.heard, record.resumed, record.interrupted) == ("one two three four", 1, False)
    assert len(model.asked) == 1
    await session.end()


async def test_the_model_that_still_writes_is_read_on_after_a_cough() -> None:
    model = Model("one two |three four")
    session = await started(model)
    session.call.sink.at_once = False
    model.pace = asyncio.Semaphore(1)
    await session.call.says("Count.")
    await session.call.sink.play_words(1)
    session.call.onset()
    await settle(40)
    assert model.closed == 0
    model.pace.release()
    session.call.decided("noise")
    session.call.words("", why="noise")
    await settle(60)
    session.call.sink.at_once = True
    await session.call.sink.play_all()
    record = await session.turns.of(1)
    assert record.heard == "one two three four"
    assert model.closed == 1
    await session.end()


async def test_a_caller_who_goes_on_while_the_model_thinks_is_answered_once() -> None:
    model = Model("Fine.")
    session = await started(model)
    model.hold.clear()
    await session.call.says("I want")
    await session.call.says("two pizzas.")
    model.hold.set()
    await settle(60)
    assert model.closed == 2, "the first request was given up"
    assert session.said == [("user", "I want two pizzas."), ("assistant", "Fine.")]
    await session.end()


async def test_nothing_is_begun_to_be_said_while_the_caller_speaks() -> None:
    model = Model("Fine.")
    session = await started(model)
    model.hold.clear()
    await session.call.says("I want")
    session.call.onset()
    model.hold.set()
    await settle(60)
    assert not session.call.client.contexts
    session.call.decided()
    await settle(60)
    assert not session.call.client.contexts, "what they said is not known yet"
    session.call.words("")
    await settle(60)
    assert session.said[-1] == ("assistant", "Fine."), "it was nothing"
    await session.end()


async def test_what_the_model_had_written_by_then_is_kept() -> None:
    model = Model("Fine.")
    session = await started(model)
    model.hold.clear()
    await session.call.says("I want")
    session.call.onset()
    model.hold.set()
    await settle(60)
    session.call.decided()
    session.call.words("more.")
    await settle(60)
    record = await session.turns.of(1)
    assert (record.heard, record.unsaid) == ("", "Fine.")
    await session.end()


async def test_who_cannot_interrupt_is_answered_after_the_reply() -> None:
    model = Model("one two three", "yes")
    session = await started(model, listen=ListenSettings(barge_in=False))
    session.call.sink.at_once = False
    await session.call.says("Count.")
    await session.call.sink.play_words(1)
    await session.call.says("And then?")
    assert len(model.asked) == 1
    session.call.sink.at_once = True
    await session.call.sink.play_all()
    await settle(80)
    assert model.asked[1][1:] == [("assistant", "one two three"), ("user", "And then?")]
    await session.end()


async def test_keys_are_told_to_the_model() -> None:
    model = Model("Fine.")
    session = await started(model)
    session.call.words("", keys="12#", why="keys")
    await settle(60)
    session.call.words("", keys="*", why="keys")
    await settle(60)
    assert [asked[-1] for asked in model.asked] == [("user", "[keys: 12#]"), ("user", "[keys: *]")]
    await session.end()


async def test_a_model_that_fails_is_told_to_the_caller_and_the_call_goes_on() -> None:
    model = Model("Fine.")
    model.errors = [RuntimeError("broken")]
    session = await started(model)
    await session.call.says("Hello?")
    record = await session.turns.of(1)
    assert record.heard == AgentSettings().apology
    assert record.error is not None
    assert record.error.code == "model_unavailable"
    await session.call.says("Hello again?")
    assert session.said[-1] == ("assistant", "Fine.")
    await session.end()


async def test_a_recogniser_that_fails_is_told_to_the_caller() -> None:
    model = Model("Fine.")
    session = await started(model)
    await session.call.says("", error=EngineFailed("no recogniser"))
    record = await session.turns.of(1)
    assert (record.kind, record.heard) == ("not_understood", AgentSettings().not_understood)
    assert isinstance(record.error, EngineFailed)
    assert not model.asked
    await session.end()


async def test_a_turn_that_was_not_understood_while_we_speak_is_noted() -> None:
    model = Model("one two three")
    session = await started(model, listen=ListenSettings(barge_in=False))
    session.call.sink.at_once = False
    await session.call.says("Count.")
    await session.call.says("", error=EngineFailed("no recogniser"))
    assert isinstance((await session.turns.of(2)).error, EngineFailed)
    session.call.sink.at_once = True
    await session.call.sink.play_all()
    await session.end()


async def test_a_voice_that_breaks_is_tried_once_more_from_where_the_caller_was() -> None:
    model = Model("one two three four")
    session = await started(model)
    session.call.sink.at_once = False
    await session.call.says("Count.")
    await session.call.sink.play_words(4)
    session.call.client.contexts[0].fail(ConnectionLost("gone"))
    session.call.client.failures = []
    session.call.sink.at_once = True
    await session.call.sink.play_all()
    assert (await session.turns.of(1)).heard == "one two three four"
    await session.end()


async def test_a_voice_that_is_gone_is_noted_and_the_call_goes_on() -> None:
    model = Model("one two", "three")
    session = await started(model)
    session.call.client.failures = [ConnectionLost("gone"), ConnectionLost("gone")]
    await session.call.says("Count.")
    record = await session.turns.of(1)
    assert (record.heard, record.unsaid) == ("", "one two")
    assert isinstance(record.error, ConnectionLost)
    await session.call.says("Go on.")
    assert session.said[-1] == ("assistant", "three")
    await session.end()


async def test_a_filler_bridges_a_wait_and_the_reply_follows_it() -> None:
    settings = AgentSettings(filler=("One moment.", "Still here."), filler_after_s=2, quiet_s=0)
    model = Model("Fine.")
    session = await started(model, settings=settings)
    model.hold.clear()
    await session.call.says("Hello?")
    await session.clock.advance(1.9)
    assert not session.call.client.contexts
    await session.clock.advance(0.2)
    assert session.call.client.contexts[0].text == "One moment."
    await session.clock.advance(8.2)
    assert session.call.client.contexts[1].text == "Still here."
    await session.clock.advance(60)
    assert len(session.call.client.contexts) == 2
    model.hold.set()
    await settle(80)
    assert session.said[-1] == ("assistant", "One moment. Still here. Fine.")
    record = await session.turns.of(1)
    assert (record.fillers, record.unsaid) == (2, "")
    await session.end()


async def test_no_filler_is_said_where_the_reply_is_in_time_or_the_caller_speaks() -> None:
    settings = AgentSettings(filler=("One moment.",), filler_after_s=2, quiet_s=0)
    model = Model("Fine.")
    session = await started(model, settings=settings)
    await session.call.says("Hello?")
    await session.clock.advance(30)
    model.hold.clear()
    await session.call.says("Again?")
    session.call.onset()
    await session.clock.advance(30)
    assert [context.text for context in session.call.client.contexts] == ["Fine."]
    session.call.decided()
    session.call.words("What?")
    model.hold.set()
    await settle(60)
    await session.end()


async def test_a_caller_who_says_nothing_is_asked_again_and_then_left() -> None:
    settings = AgentSettings(
        quiet_s=10, reprompts=2, reprompt="Hello?", hang_up_when_quiet=True, goodbye="Bye."
    )
    session = await started(Model("Fine."), settings=settings, greeting="Hi.")
    for _ in range(40):
        await session.clock.advance(1)
    conversation = await session.task
    assert [record.heard for record in conversation.turns] == ["Hi.", "Hello?", "Hello?", "Bye."]
    assert conversation.ended == "the caller says nothing"
    assert session.call.hung_up == 1


async def test_the_time_that_is_over_ends_the_call() -> None:
    settings = AgentSettings(max_minutes=1, quiet_s=0, goodbye="Time is up.")
    session = await started(Model("Fine."), settings=settings)
    await session.clock.advance(61)
    conversation = await session.task
    assert conversation.turns[-1].heard == "Time is up."
    assert "1 minutes" in conversation.ended


async def test_nobody_is_asked_while_the_far_end_holds_us() -> None:
    session = await started(Model("Fine."), settings=AgentSettings(quiet_s=10))
    session.call.hold(True)
    await settle()
    await session.clock.advance(300)
    assert not session.call.client.contexts
    session.call.hold(False)
    await settle()
    await session.clock.advance(11)
    assert session.call.client.contexts[0].text == "Are you still there?"
    await session.end()


async def test_the_model_greets_where_it_is_asked_to() -> None:
    model = Model("Good morning.")
    session = await started(
        model, settings=AgentSettings(greeting_prompt="Greet the caller.", quiet_s=0)
    )
    assert session.said == [("user", "Greet the caller."), ("assistant", "Good morning.")]
    await session.end()


async def test_a_call_that_ends_in_mid_reply_leaves_what_was_heard() -> None:
    model = Model("one two three")
    session = await started(model)
    session.call.sink.at_once = False
    await session.call.says("Count.")
    await session.call.sink.play_words(2)
    conversation = await session.end()
    assert (conversation.turns[0].heard, conversation.unsaid) == ("one two", "three")
    with pytest.raises(SpeechError, match="over"):
        await conversation.continue_()


async def test_what_the_caller_said_last_is_kept_though_nobody_answers() -> None:
    session = await started(Model("Fine."))
    await session.call.says("Good", why="call_over")
    conversation = await session.end()
    assert conversation.turns[0].text == "Good"
    assert conversation.messages() == [ChatMessage("user", "Good")]


async def test_ears_that_cannot_work_end_the_call_with_their_error() -> None:
    session = await started(Model("Fine."))
    session.call.listening.error = EngineFailed("no detector", remedy="Install it.")
    session.call.listening.end()
    with pytest.raises(EngineFailed, match="Install it"):
        await session.task
    assert session.call.hung_up


async def test_a_program_that_interrupts_gets_the_same_and_the_reply_is_given_up_in_time() -> None:
    model = Model("one two three")
    session = await started(model, settings=AgentSettings(quiet_s=0, stopped_s=5))
    session.call.sink.at_once = False
    await session.call.says("Count.")
    await session.call.sink.play_words(1)
    session.call.interrupt()
    await settle(40)
    await session.clock.advance(5.1)
    assert (await session.turns.of(1)).heard == "one"
    assert session.conversation.unsaid == "two three"
    await session.end()


async def test_what_a_program_has_interrupted_it_can_continue() -> None:
    model = Model("one two three")
    session = await started(model)
    session.call.sink.at_once = False
    await session.call.says("Count.")
    await session.call.sink.play_words(1)
    session.call.interrupt()
    await settle(40)
    assert session.conversation.unsaid == "two three"
    session.call.sink.at_once = True
    assert await session.conversation.continue_()
    record = await session.turns.of(1)
    assert [record.heard, session.conversation.unsaid] == ["one two three", ""]
    await session.end()


async def test_each_turn_is_a_line_of_the_log_without_words_unless_asked_for(
    tmp_path: Path,
) -> None:
    for words in (False, True):
        path = tmp_path / f"{words}.jsonl"
        model = Model("Fine.")
        settings = AgentSettings(log_words=words, quiet_s=0)
        session = await started(model, log=path, settings=settings, greeting="Hello.")
        await session.call.says("My secret.")
        await session.end()
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [line["kind"] for line in lines] == ["greeting", "caller"]
        assert lines[1]["ms"]["transcript"] == pytest.approx(600)
        assert lines[1]["ms"]["first_token"] == pytest.approx(600)
        assert lines[1]["heard_chars"] == 5
        assert ("secret" in path.read_text()) is words
        assert (
            lines[1].get("words") == {"caller": "My secret.", "heard": "Fine.", "unsaid": ""}
        ) is (words)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_words_are_in_no_log_and_no_repr(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    model = Model("My answer.")
    session = await started(model)
    await session.call.says("My secret.")
    model.errors = [RuntimeError("x")]
    await session.call.says("My secret.")
    conversation = await session.end()
    assert "secret" not in caplog.text
    assert "secret" not in repr(conversation.turns)
    assert "secret" not in repr(conversation.history.entries)


async def test_a_call_of_ours_is_talked_on_when_it_is_answered() -> None:
    call = ScriptedCall(FakeClock(), "out")
    agent = Agent(Model("Fine.").__call__, stt=None, greeting="Hello.")
    task = asyncio.create_task(agent.talk(call))
    await settle()
    assert not agent.conversations
    await call.answer()
    await settle(60)
    assert call.client.contexts[0].text == "Hello."
    await call.over_now()
    await task


async def test_all_calls_of_a_line_are_answered_at_once_and_one_that_breaks_breaks_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = [ScriptedCall(FakeClock()) for _ in range(3)]
    broken = calls[1]

    async def fails(headers: object = None) -> None:
        raise ConnectionLost("gone before the answer")

    broken.answer = fails  # type: ignore[method-assign]

    async def lines() -> AsyncIterator[ScriptedCall]:
        for number, call in enumerate(calls):
            call.facts.call_id = f"call-{number}"
            yield call

    agent = Agent(Model("Fine.").__call__, stt=None, greeting="Hello.")
    serving = asyncio.create_task(agent.serve(lines()))
    await settle(80)
    assert sorted(agent.conversations) == ["call-0", "call-2"]
    assert agent.calls == 2
    for call in (calls[0], calls[2]):
        await call.over_now()
    await serving
    assert "gone before the answer" in caplog.text


class Recognises:
    """A recogniser that is warm once, or never."""

    rate_hz = 16_000

    def __init__(self, error: SpeechError | None = None) -> None:
        self.warmed = self.closed = 0
        self._error = error

    async def warm(self) -> None:
        self.warmed += 1
        if self._error is not None:
            raise self._error

    async def open(self, on_partial: object = None) -> NoReturn:
        raise AssertionError("the scripted call needs none")

    async def close(self) -> None:
        self.closed += 1


async def test_the_recogniser_is_ready_before_the_first_call_is_answered() -> None:
    recogniser = Recognises()
    agent, _ = agent_of(Model("Fine.").__call__, stt=recogniser)
    session = await begin(Model("Fine.").__call__, None, stt=recogniser)
    assert recogniser.warmed == 1
    await session.end()
    assert not recogniser.closed, "it is the program's"
    await agent.warm()
    await agent.warm()
    assert recogniser.warmed == 2


async def test_a_recogniser_that_is_not_ready_keeps_no_call_from_being_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recogniser = Recognises(EngineFailed("no model here"))
    session = await begin(Model("Fine.").__call__, None, stt=recogniser, greeting="Hello.")
    assert session.call.client.contexts[0].text == "Hello."
    assert "no model here" in caplog.text
    await session.end()
    agent, _ = agent_of(Model("Fine.").__call__, stt=recogniser)

    async def lines() -> AsyncIterator[ScriptedCall]:
        yield ScriptedCall(FakeClock())

    with pytest.raises(EngineFailed):
        await agent.serve(lines())


async def test_a_voice_detector_that_is_missing_is_told_before_the_first_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "webrtcvad", None)
    listen = ListenSettings(detector="webrtc")
    agent, _ = agent_of(Model("Fine.").__call__, stt=None, listen=listen)
    taken: list[ScriptedCall] = []

    async def lines() -> AsyncIterator[ScriptedCall]:
        taken.append(ScriptedCall(FakeClock()))
        yield taken[-1]

    with pytest.raises(MissingDetector):
        await agent.serve(lines())
    assert not taken


async def test_a_turn_detectors_file_that_is_missing_is_told_before_the_first_call(
    tmp_path: Path,
) -> None:
    listen = ListenSettings(smart_turn=str(tmp_path / "none.onnx"))
    agent, _ = agent_of(Model("Fine.").__call__, stt=None, listen=listen)
    with pytest.raises(MissingDetector, match="cannot be read: No such file"):
        await agent.warm()


async def test_a_turn_detector_of_the_program_is_loaded_before_the_first_call(
    tmp_path: Path,
) -> None:
    class Loaded:
        warmed = 0

        async def warm(self) -> None:
            self.warmed += 1

        async def finished(self, turn: TurnSoFar) -> float:
            return 0.5

    detector = Loaded()
    listen = ListenSettings(smart_turn=str(tmp_path / "none.onnx"))  # the program's prevails
    agent, _ = agent_of(Model("Fine.").__call__, stt=None, turn_detector=detector, listen=listen)
    await agent.warm()
    await agent.warm()
    assert detector.warmed == 1


async def test_what_breaks_in_the_programs_functions_is_logged_without_anybodys_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def writes(messages: Sequence[ChatMessage]) -> AsyncIterator[str]:
        if messages:
            raise KeyError(messages[-1].content)
        yield ""

    def told(conversation: object, record: TurnRecord) -> None:
        raise ValueError(record.text)

    session = await begin(writes, None, settings=QUIET, on_turn=told)
    await session.call.says("My number is 4711.")
    await session.end()
    assert "the source of the replies failed" in caplog.text
    assert "on_turn failed" in caplog.text
    assert "KeyError" in caplog.text
    assert __file__ in caplog.text
    assert "4711" not in caplog.text


async def test_what_fails_is_logged_where_no_program_is_told_of_turns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def writes(messages: Sequence[ChatMessage]) -> AsyncIterator[str]:
        if messages:
            raise ConnectionLost("the model is away", remedy="Start it.")
        yield ""

    settings = AgentSettings(quiet_s=0, retries=0)
    session = await begin(writes, None, settings=settings, on_turn=None)
    await session.call.says("Hello?")
    await session.end()
    assert "turn 1: the model is away Start it." in caplog.text


async def test_a_call_that_an_agent_breaks_on_is_hung_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def breaks(talk: AgentSession) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(AgentSession, "run", breaks)
    agent, _ = agent_of(Model("Fine.").__call__)
    call = ScriptedCall(FakeClock())
    with pytest.raises(RuntimeError):
        await agent.answer(call)
    assert call.over


async def test_a_call_on_which_the_keeping_of_time_breaks_is_hung_up_and_the_defect_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def breaks(*_: object) -> NoReturn:
        raise RuntimeError("a defect")

    session = await begin(Model("Fine.").__call__, greeting="Hello.")
    monkeypatch.setattr(TurnTaking, "tick", breaks)
    await session.clock.advance(4000)
    async with asyncio.timeout(5):
        with pytest.raises(RuntimeError, match="a defect"):
            await session.task
    assert session.call.hung_up


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(BadRequest, match="is not a language model"):
        Agent(42)  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="http"):
        Agent("model.test")
    nothing: Any = None
    with pytest.raises(BadRequest, match="greeting is a NoneType"):
        Agent("http://model.test/v1", stt=None, greeting=nothing)
    with pytest.raises(BadRequest, match="system is a NoneType"):
        Agent("http://model.test/v1", stt=None, system=nothing)
    with pytest.raises(ValueError, match="apology is a NoneType"):
        AgentSettings(apology=nothing)
    with pytest.raises(ValueError, match="filler is one string"):
        AgentSettings(filler="One moment.")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_minutes=0"):
        AgentSettings(max_minutes=0)


def test_the_bounds_of_the_settings_are_told_by_name() -> None:
    for name, value in {"quiet_s": -1, "retries": 11, "tool_timeout_s": float("nan")}.items():
        with pytest.raises(ValueError, match=f"{name}="):
            AgentSettings(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="transfers"):
        AgentSettings(transfers={"": "sip:x@y"})
