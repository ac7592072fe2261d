"""The reply prepared in the caller's pause: used where the words are the same, else dropped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from qwen3tts_agent.chat.messages import (
    ChatEvent,
    ChatMessage,
    ModelRefused,
    ModelUnavailable,
    ToolCall,
    ToolSpec,
)
from qwen3tts_agent.settings import AgentSettings
from qwen3tts_agent.tools import tool
from qwen3tts_phone.audio.frames import KeyPressed
from qwen3tts_wire.errors import ConnectionLost, EngineFailed
from tests.agent.parts import ScriptedCall, Session, begin
from tests.fakes import FakeClock, settle

Steps = Sequence[str | ToolCall | Exception | asyncio.Event]


class Model:
    """Answers each request with the next steps, each as it is permitted."""

    guessable = True

    def __init__(self, *answers: Steps, permitted: bool = True) -> None:
        self.answers = list(answers)
        self.asked: list[list[ChatMessage]] = []
        self.open = 0
        """Requests under way."""
        self.most_open = 0
        self.permits = asyncio.Event()
        if permitted:
            self.permits.set()

    async def stream(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSpec] = (),
        *,
        must_speak: bool = False,
    ) -> AsyncGenerator[ChatEvent, None]:
        number = len(self.asked)
        self.asked.append(list(messages))
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            for step in self.answers[min(number, len(self.answers) - 1)]:
                await self.permits.wait()
                if isinstance(step, asyncio.Event):
                    await step.wait()
                    continue
                if isinstance(step, Exception):
                    raise step
                yield step
        finally:
            await asyncio.sleep(0)  # a connection that takes a moment to close
            self.open -= 1

    async def close(self) -> None:
        """Nothing is open."""

    @property
    def last_words(self) -> list[str]:
        return [messages[-1].content for messages in self.asked]


async def started(model: Any, **more: Any) -> Session:
    settings = more.pop("settings", AgentSettings(quiet_s=0))
    return await begin(model, settings=settings, **more)


async def paused(session: Session, guess: str, **more: Any) -> None:
    session.call.onset()
    session.call.pauses(guess, **more)
    await settle(60)


async def ended(session: Session, text: str, **more: Any) -> None:
    session.call.decided()
    session.call.words(text, **more)
    await settle(60)


async def interrupted_after_a_word(model: Any) -> Session:
    session = await started(model)
    session.call.sink.at_once = False
    await session.call.says("Count.")
    await session.call.sink.play_words(1)
    session.call.onset()
    await settle(60)
    return session


async def test_the_reply_is_ready_in_the_pause_and_plays_when_the_turn_ends() -> None:
    model = Model(["We open ", "at nine."])
    session = await started(model)
    await paused(session, "when do you open")
    call = session.call
    assert model.last_words == ["when do you open"]
    assert call.client.contexts[0].text == "We open at nine."
    assert call.sink.log == []
    assert not call.speaking
    assert session.said == []
    assert session.conversation.turns == []
    await ended(session, "When do you open?")
    record = await session.turns.of(1)
    assert len(model.asked) == 1
    assert (record.requests, record.guesses, record.guess_used) == (1, 1, True)
    assert (record.kind, record.number, record.text) == ("caller", 1, "When do you open?")
    assert record.heard == "We open at nine."
    assert session.said == [("user", "When do you open?"), ("assistant", "We open at nine.")]
    assert call.sink.log.count("begin 1") == 1
    await session.end()


async def test_the_sound_leaves_in_the_step_that_knows_the_words() -> None:
    session = await started(Model(["We open at nine."]))
    await paused(session, "When do you open?")
    session.call.decided()
    session.call.words("When do you open?")
    for _ in range(10):  # turns of the event loop
        if session.call.sink.frames:
            break
        await asyncio.sleep(0)
    assert session.call.sink.frames
    await session.end()


async def test_a_model_that_has_not_answered_yet_goes_on_as_if_it_was_asked_now() -> None:
    model = Model(["Nine."], permitted=False)
    session = await started(model, settings=AgentSettings(quiet_s=0, filler=("One moment.",)))
    await paused(session, "When?")
    await session.clock.advance(5)
    assert session.call.sink.log == [], "a prepared reply has no filler"
    await ended(session, "When?")
    await session.clock.advance(1.4)
    assert session.call.client.contexts == []
    await session.clock.advance(0.2)
    await settle(60)
    assert session.call.client.contexts[0].text == "One moment."
    model.permits.set()
    await settle(60)
    record = await session.turns.of(1)
    assert (record.fillers, record.heard) == (1, "One moment. Nine.")
    assert len(model.asked) == 1
    await session.end()


async def test_other_words_drop_it_without_a_trace_and_the_model_is_asked_again() -> None:
    model = Model(["No."], ["Yes."])
    session = await started(model)
    await paused(session, "Are you there?")
    await ended(session, "Are you there today?")
    record = await session.turns.of(1)
    assert model.last_words == ["Are you there?", "Are you there today?"]
    assert model.most_open == 1
    assert (record.requests, record.guesses, record.guess_used) == (2, 1, False)
    assert (record.heard, record.unsaid, record.interrupted) == ("Yes.", "", False)
    assert session.said == [("user", "Are you there today?"), ("assistant", "Yes.")]
    assert session.call.client.contexts[0].cancelled_at
    assert len(session.conversation.turns) == 1
    await session.end()


async def test_a_caller_who_goes_on_drops_it_and_the_next_pause_prepares_another() -> None:
    model = Model(["One."], ["Two."])
    session = await started(model)
    await paused(session, "I have a question")
    session.call.goes_on()
    await settle(60)
    assert model.open == 0
    assert session.call.client.contexts[0].cancelled_at == [0]
    session.call.pauses("I have a question when do you open")
    await settle(60)
    await ended(session, "I have a question: when do you open?")
    record = await session.turns.of(1)
    assert (record.requests, record.guesses, record.guess_used) == (2, 2, True)
    assert record.heard == "Two."
    assert session.call.client.contexts[1].cancelled_at == []
    await session.end()


async def test_one_pause_prepares_one_reply_and_a_turn_as_many_as_allowed() -> None:
    model = Model(["Yes."])
    session = await started(model, settings=AgentSettings(quiet_s=0, max_guesses=2))
    await paused(session, "one")
    session.call.guesses("one two")
    session.call.guesses("one two three")
    await settle(60)
    assert model.last_words == ["one"]
    assert model.open == 0, "what is out of date is closed"
    for text in ("one four", "one four five", "one four five six"):
        session.call.goes_on()
        session.call.pauses(text)
        await settle(60)
    assert model.last_words == ["one", "one four"]
    await ended(session, "one four five six")
    record = await session.turns.of(1)
    assert (record.requests, record.guesses, record.guess_used) == (3, 2, False)
    await session.end()


async def test_the_same_guess_again_is_no_second_request() -> None:
    model = Model(["Yes."])
    session = await started(model)
    await paused(session, "Is it open?")
    session.call.guesses("is it open")
    await settle(60)
    await ended(session, "Is it open?")
    assert len(model.asked) == 1
    assert (await session.turns.of(1)).guess_used
    await session.end()


@pytest.mark.parametrize(
    ("settings", "speech_s", "guessable"),
    [
        (AgentSettings(quiet_s=0), 0.49, True),
        (AgentSettings(quiet_s=0), 1.0, False),
        (AgentSettings(quiet_s=0, preemptive="off"), 1.0, True),
        (AgentSettings(quiet_s=0, requests_minute=1), 1.0, True),
    ],
    ids=["little speech", "side effects", "off", "no budget"],
)
async def test_where_it_may_not_be_prepared_the_turn_is_answered_as_ever(
    settings: AgentSettings, speech_s: float, guessable: bool
) -> None:
    model = Model(["Yes."])
    model.guessable = guessable
    session = await started(model, settings=settings)
    if settings.requests_minute == 1:
        await session.call.says("First.")
    before = len(model.asked)
    await paused(session, "Is it open?", speech_s=speech_s)
    assert len(model.asked) == before
    await ended(session, "Is it open?")
    if settings.requests_minute == 1:
        assert session.call.client.contexts[-1].text == settings.too_many
        await session.clock.advance(61)
        await settle(60)
    assert any("Is it open?" in message.content for message in model.asked[-1])
    assert len(model.asked) == before + 1
    await session.end()


async def test_a_function_is_asked_ahead_only_where_it_is_allowed() -> None:
    asked: list[str] = []

    async def answer(messages: list[ChatMessage]) -> str:
        asked.append(messages[-1].content)
        return "Yes."

    for preemptive, count in (("auto", 0), ("always", 1)):
        asked.clear()
        session = await started(answer, settings=AgentSettings(quiet_s=0, preemptive=preemptive))
        await paused(session, "Is it open?")
        assert len(asked) == count
        await ended(session, "Is it open?")
        assert asked == ["Is it open?"]
        await session.end()


async def test_a_tool_is_used_after_the_end_of_the_turn_and_never_for_a_dropped_guess() -> None:
    used: list[str] = []

    async def note(what: str) -> str:
        """Write it down."""
        used.append(what)
        return "done"

    call = [ToolCall("a", "note", '{"what": "it"}')]
    model = Model(call, ["I note it. ", *call], ["Fine."], ["Well."])
    session = await started(model, tools=[tool(note)])
    await paused(session, "Note it.")
    assert used == []
    session.call.goes_on()
    await settle(60)
    session.call.pauses("Note it, please.")
    await settle(60)
    assert used == []
    assert session.said == []
    await ended(session, "Note it, please.")
    record = await session.turns.of(1)
    assert used == ["it"]
    assert [each.name for each in record.tools] == ["note"]
    assert record.heard == "I note it. Fine."
    assert [message.role for message in session.conversation.messages()] == [
        *("user", "assistant", "tool", "assistant")
    ]
    await session.end()


async def test_a_tool_call_without_words_is_prepared_too() -> None:
    used: list[str] = []

    async def note() -> str:
        """Write it down."""
        used.append("it")
        return "done"

    model = Model([ToolCall("a", "note", "{}")], ["Noted."])
    session = await started(model, tools=[tool(note)])
    await paused(session, "Note it.")
    assert (used, session.said) == ([], [])
    await ended(session, "Note it.")
    record = await session.turns.of(1)
    assert (used, record.heard, record.requests) == (["it"], "Noted.", 2)
    await session.end()


@pytest.mark.parametrize(
    "failure",
    [ModelUnavailable("down"), ModelRefused("no"), ValueError("a defect")],
    ids=["retryable", "refused", "defect"],
)
@pytest.mark.parametrize("words", [[], ["Well, "]], ids=["at once", "after words"])
async def test_a_model_that_fails_on_the_guess_is_asked_again_and_nothing_is_said_of_it(
    failure: Exception, words: list[str]
) -> None:
    model = Model([*words, failure], ["Yes."])
    session = await started(model)
    await paused(session, "Is it open?")
    assert len(model.asked) == 1
    await ended(session, "Is it open?")
    record = await session.turns.of(1)
    assert (record.heard, record.error, record.retries) == ("Yes.", None, 0)
    assert (record.requests, record.guesses, record.guess_used) == (2, 1, False)
    assert session.said == [("user", "Is it open?"), ("assistant", "Yes.")]
    await session.end()


async def test_a_model_that_fails_after_the_adoption_is_retried_as_ever() -> None:
    model = Model([ModelUnavailable("down")], ["Yes."], permitted=False)
    session = await started(model)
    await paused(session, "Is it open?")
    await ended(session, "Is it open?")
    model.permits.set()
    await settle(60)
    await session.clock.advance(0.5)
    await settle(60)
    record = await session.turns.of(1)
    assert (record.heard, record.retries, record.requests) == ("Yes.", 1, 2)
    assert record.guess_used
    await session.end()


async def test_a_voice_that_fails_meanwhile_speaks_the_text_after_the_turns_end() -> None:
    model = Model(["Yes, it is."])
    session = await started(model)
    session.call.client.failures.append(ConnectionLost("gone"))
    await paused(session, "Is it open?")
    await ended(session, "Is it open?")
    record = await session.turns.of(1)
    assert record.heard == "Yes, it is."
    assert len(model.asked) == 1
    await session.end()


async def test_a_model_that_answers_after_the_turn_moved_on_is_not_heard() -> None:
    model = Model(["Late."], ["Right."], permitted=False)
    session = await started(model)
    await paused(session, "Is it open?")
    session.call.goes_on()
    await ended(session, "Is it open on Sunday?")
    model.permits.set()
    await settle(60)
    record = await session.turns.of(1)
    assert record.heard == "Right."
    assert model.most_open == 1
    await session.end()


async def test_a_recogniser_that_dies_after_the_guess_leaves_nothing_of_it() -> None:
    model = Model(["Yes."])
    session = await started(model)
    await paused(session, "Is it open?")
    session.call.decided()
    session.call.words("", error=EngineFailed("the recogniser is gone"))
    await settle(60)
    record = await session.turns.of(1)
    assert record.kind == "not_understood"
    assert record.heard == AgentSettings().not_understood
    assert record.guesses == 1
    assert session.call.client.contexts[0].cancelled_at == [0]
    assert model.open == 0
    await session.end()


@pytest.mark.parametrize("event", ["hold", "key", "typed", "call over", "noise"])
async def test_what_happens_meanwhile_drops_it(event: str) -> None:
    model = Model(["Yes."])
    session = await started(model)
    await paused(session, "Is it open?")
    call = session.call
    context = call.client.contexts[0]
    assert context.cancelled_at == []
    match event:
        case "hold":
            call.hold()
        case "key":
            call._core.pressed(KeyPressed(call.time.now(), "1", 100))
        case "typed":
            call.words("Something else.", why="typed")
        case "noise":
            call.decided("noise")
        case _:
            await session.end()
    await settle(60)
    assert context.cancelled_at == [0]
    assert "Yes." not in [text for _, text in session.said][:1]
    assert call.sink.log[:1] != ["begin 1"] or event == "typed"
    if event != "call over":
        await session.end()


async def test_on_hold_no_reply_is_prepared() -> None:
    model = Model(["Yes."])
    session = await started(model)
    session.call.hold()
    await settle(20)
    await paused(session, "Is it open?")
    assert model.asked == []
    await session.end()


async def test_after_an_interruption_the_prompt_holds_what_was_heard_by_then() -> None:
    model = Model(["one two three"], ["Stopped."])
    session = await interrupted_after_a_word(model)
    call = session.call
    call.pauses("That is enough.")
    await settle(60)
    assert [(each.role, each.content) for each in model.asked[1]] == [
        ("user", "Count."),
        ("assistant", "one"),
        ("user", "That is enough."),
    ]
    call.sink.at_once = True
    await ended(session, "That is enough.")
    record = await session.turns.of(2)
    assert (record.guess_used, record.requests, record.heard) == (True, 1, "Stopped.")
    assert session.said[1:] == [
        ("assistant", "one"),
        ("user", "That is enough."),
        ("assistant", "Stopped."),
    ]
    await session.end()


async def interrupted_while_asking(goes_on: asyncio.Event) -> tuple[Session, Model]:
    """A reply interrupted after its first word, whose request is still open; then a guess."""
    model = Model(["one two ", goes_on, "three"], ["Stopped."])
    session = await started(model)
    call = session.call
    call.sink.at_once = False
    await call.says("Count.")
    await call.sink.play_words(1)
    assert (len(model.asked), model.open) == (1, 1)
    call.onset()
    await settle(60)
    call.pauses("That is enough.")
    await settle(60)
    return session, model


async def test_after_an_interruption_the_guess_waits_for_the_end_of_the_old_request() -> None:
    session, model = await interrupted_while_asking(goes_on := asyncio.Event())
    assert len(model.asked) == 1
    goes_on.set()
    await settle(60)
    assert (model.last_words[1:], model.most_open) == (["That is enough."], 1)
    session.call.sink.at_once = True
    await ended(session, "That is enough.")
    record = await session.turns.of(2)
    assert (record.guess_used, record.requests, record.heard) == (True, 1, "Stopped.")
    await session.end()


async def test_a_turn_that_ends_meanwhile_closes_the_old_request_before_the_next() -> None:
    session, model = await interrupted_while_asking(asyncio.Event())
    session.call.sink.at_once = True
    await ended(session, "That is enough.")
    assert (len(model.asked), model.most_open) == (2, 1)
    record = await session.turns.of(2)
    assert (record.guess_used, record.requests, record.heard) == (False, 1, "Stopped.")
    assert [text for _, text in session.said] == [*("Count.", "one", "That is enough.", "Stopped.")]
    await session.end()


async def test_a_guess_that_comes_while_the_call_ends_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Model(["Yes."])
    session = await started(model)
    session.call.onset()

    async def closes() -> None:
        session.call.pauses("Is it open?")
        await settle(20)

    monkeypatch.setattr(session.call.listening, "aclose", closes)
    await session.end()
    assert model.asked == []


async def test_a_noise_that_is_over_before_the_words_are_there_drops_nothing() -> None:
    model = Model(["Yes."])
    session = await started(model)
    call = session.call
    await paused(session, "Is it open?")
    call.decided()
    call.onset()
    call.decided("noise")
    call.words("Is it open?")
    await settle(60)
    record = await session.turns.of(1)
    assert (record.heard, record.guess_used, record.requests) == ("Yes.", True, 1)
    await session.end()


async def test_an_interrupted_reply_that_goes_on_drops_it() -> None:
    model = Model(["one two three"], ["Stopped."])
    session = await interrupted_after_a_word(model)
    call = session.call
    call.pauses("Hm.")
    await settle(60)
    call.sink.at_once = True
    await ended(session, "")
    record = await session.turns.of(1)
    assert record.heard == "one two three"
    assert record.resumed == 1
    assert session.said == [("user", "Count."), ("assistant", "one two three")]
    await session.end()


async def test_a_caller_who_speaks_again_before_the_words_are_there_holds_it_back() -> None:
    model = Model(["Yes."], ["Both."])
    session = await started(model)
    call = session.call
    await paused(session, "Is it open?")
    call.decided()
    call.onset()
    call.words("Is it open?")
    await settle(60)
    assert call.sink.log == []
    call.decided()
    call.words("And where?")
    await settle(60)
    assert (await session.turns.of(1)).heard == ""
    assert (await session.turns.of(2)).heard == "Both."
    assert session.said == [("user", "Is it open? And where?"), ("assistant", "Both.")]
    await session.end()


async def test_a_noise_after_the_turn_holds_the_adopted_reply_back_for_its_time_alone() -> None:
    model = Model(["Yes."])
    session = await started(model)
    call = session.call
    await paused(session, "Is it open?")
    call.decided()
    call.onset()
    call.words("Is it open?")
    await settle(60)
    assert call.sink.log == []
    call.decided("noise")
    await settle(60)
    record = await session.turns.of(1)
    assert (record.heard, record.guess_used) == ("Yes.", True)
    assert session.said == [("user", "Is it open?"), ("assistant", "Yes.")]
    await session.end()


async def test_the_log_has_the_guesses_and_the_time_of_the_release() -> None:
    session = await started(Model(["Yes."]), call=ScriptedCall(FakeClock()))
    await paused(session, "Is it open?")
    await session.clock.advance(0.4)
    at = session.clock.now()
    await ended(session, "Is it open?")
    record = await session.turns.of(1)
    assert record.times["released"] == at
    assert record.times["asked"] < record.times["turn_end"] == at
    line = record.to_json("call")
    assert '"guesses":1,"guess_used":true' in line
    await session.end()
