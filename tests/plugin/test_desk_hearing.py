"""What a caller of our own telephone says, from the turn to the agent's message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from mr_qwen3tts.calls.line import CallLine
from mr_qwen3tts.calls.recognition import NOT_UNDERSTOOD, CallRecogniser
from qwen3tts_phone.detection.events import (
    CallerCutIn,
    ListenEvent,
    OnsetHeard,
    SpeechResumed,
    Turn,
    TurnEnded,
    WhyEnded,
)
from qwen3tts_phone.detection.recogniser import RecogniserUnavailable, RecognitionFailed
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_wire.errors import SpeechError
from tests.fakes import FakeClock, settle
from tests.plugin.desk_parties import Session, Wishes, WritingHost
from tests.plugin.test_desk_line import ScriptedCall


class Turns:
    """A listening whose turns a test brings about."""

    def __init__(self) -> None:
        self.on_event: Callable[[ListenEvent], None] | None = None
        self.caller_speaking = False
        self.expected: list[str] = []
        self._turns: asyncio.Queue[Turn | None] = asyncio.Queue()

    def __aiter__(self) -> AsyncIterator[Turn]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Turn]:
        while (turn := await self._turns.get()) is not None:
            yield turn

    def expect(self, said: str) -> None:
        self.expected.append(said)

    def happens(self, event: ListenEvent) -> None:
        self.caller_speaking = not isinstance(event, TurnEnded)
        assert self.on_event is not None
        self.on_event(event)

    def speaks(self, *, cut_in: bool = False) -> None:
        self.happens(OnsetHeard(1.0, 1.0))
        if cut_in:
            self.happens(CallerCutIn(1.1, 1.0))

    def ends(self, *, why: WhyEnded = "pause", cut_in: bool = False) -> None:
        self.happens(TurnEnded(3.0, 1.0, 2.4, why, cut_in))

    def understood(
        self, text: str = "", *, why: WhyEnded = "pause", error: SpeechError | None = None
    ) -> None:
        times: dict[str, Any] = {
            "began_at": 1.0,
            "ended_at": 2.4,
            "decided_at": 3.0,
            "transcribed_at": 3.1,
        }
        self._turns.put_nowait(Turn(text=text, why=why, error=error, **times))

    def over(self) -> None:
        self._turns.put_nowait(None)


class Party:
    """A call that is listened to."""

    def __init__(self) -> None:
        self.call = ScriptedCall()
        self.turns = Turns()
        self.heard_with: list[tuple[ListenSettings, Any]] = []
        cast(Any, self.call).hear = self._hear
        self.host = WritingHost()
        self.over: list[CallLine] = []
        self.recogniser = CallRecogniser(lambda: Wishes(sip_stt="whisper"), self.host.problem)
        self.recogniser._recogniser = cast(Any, "a recogniser")
        self.recogniser._pause_ms = 700
        self.line = CallLine(
            *(cast(Any, self.call), "s1", Session("s1"), self.host, FakeClock(), self.over.append)
        )
        self.line.begin(audio_in=False, recogniser=self.recogniser)

    def _hear(self, settings: ListenSettings, recogniser: Any) -> Turns:
        self.heard_with.append((settings, recogniser))
        return self.turns

    async def messages(self) -> list[str]:
        await settle()
        await settle()
        return [self.host.messages.get_nowait()[1] for _ in range(self.host.messages.qsize())]

    def asked(self) -> list[str]:
        names = [name for name, _ in self.host.asked]
        self.host.asked.clear()
        return names


async def test_the_callers_voice_may_duck_the_agent() -> None:
    party = Party()
    party.recogniser._overlap = "duck"
    await settle()
    [(settings, _)] = party.heard_with
    assert settings.overlap == "duck"
    await party.line.close()


async def test_the_agents_last_words_tell_what_the_caller_is_expected_to_say() -> None:
    party = Party()
    party.host.said = "Your nine-digit number, please?"
    await settle()
    party.turns.speaks()
    assert party.turns.expected == ["Your nine-digit number, please?"]
    await party.line.close()


async def test_words_silence_the_agent_and_are_its_turn() -> None:
    party = Party()
    party.host.heard = 12
    await settle()
    [(settings, recogniser)] = party.heard_with
    assert recogniser == "a recogniser"
    assert (settings.pause_ms, settings.keys) == (700, False)
    party.turns.speaks(cut_in=True)
    assert party.asked() == ["hush", "cut_in"], "in the step in which it was decided"
    party.turns.ends(cut_in=True)
    party.turns.understood(" I want soup. ")
    assert await party.messages() == ["I want soup."]
    assert party.host.truncated == [12]
    assert party.host.shown == ["I want soup."]
    names = party.asked()
    assert names.index("interrupt") < names.index("cancel_and_wait")
    assert names.index("cancel_and_wait") < names.index("send_message_to_agent")
    await party.line.close()


@pytest.mark.parametrize("recognised", [True, False])
async def test_after_a_cough_the_agent_goes_on(recognised: bool) -> None:
    party = Party()
    await settle()
    party.turns.speaks(cut_in=recognised)
    party.turns.ends(why="pause" if recognised else "noise", cut_in=recognised)
    if recognised:
        assert "go_on" not in party.asked(), "it is not known yet that nothing was said"
        party.turns.understood("")
    assert await party.messages() == []
    assert party.asked()[-1] == "go_on"
    assert not party.host.truncated
    await party.line.close()


async def test_a_caller_who_speaks_again_is_waited_for() -> None:
    party = Party()
    await settle()
    party.turns.speaks()
    party.turns.ends()
    party.turns.speaks()
    party.turns.understood("")
    await settle()
    assert "go_on" not in party.asked()
    party.turns.happens(SpeechResumed(4.0))
    party.turns.ends()
    party.turns.understood("Hello?")
    assert await party.messages() == ["Hello?"]
    assert party.asked()[-1] == "send_message_to_agent"
    await party.line.close()


async def test_a_turn_that_is_not_understood_is_told_and_its_cause_once() -> None:
    party = Party()
    await settle()
    for _ in range(2):
        party.turns.speaks()
        party.turns.ends()
        party.turns.understood(error=RecognitionFailed("No answer.", remedy="Look at it."))
        assert await party.messages() == [NOT_UNDERSTOOD]
    assert party.host.problems == ["No answer. Look at it."]
    party.turns.understood("Hello.")
    await settle()
    assert not party.recogniser.trouble
    await party.line.close()


async def test_words_said_before_the_end_of_the_call_are_told_with_it() -> None:
    party = Party()
    await settle()
    party.turns.speaks()
    party.call.ends()
    await settle()
    party.turns.understood("Call me back.", why="call_over")
    party.turns.over()
    assert await party.messages() == ["Call me back.", "SYSTEM: -- CALL DISCONNECTED --"]
    await party.line.settled()


async def test_keys_are_told_as_before() -> None:
    party = Party()
    party.call.presses("4", "#")
    await settle()
    assert await party.messages() == ["SYSTEM: The caller pressed 4# on the telephone."]
    await party.line.close()


async def test_the_call_that_takes_its_place_is_listened_to() -> None:
    party = Party()
    await settle()
    new = party.call.hands_on()
    cast(Any, new).hear = party._hear
    await party.messages()
    assert len(party.heard_with) == 2
    await party.line.close()


async def test_words_are_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    party = Party()
    await settle()
    party.host.broken.add("send_message_to_agent")
    party.turns.understood("My card is 1234.")
    await party.messages()
    assert "1234" not in caplog.text + repr(party.host.problems)
    await party.line.close()


# --- the recogniser


class Model:
    """A recogniser that loads as a test wants it to."""

    rate_hz = 16_000

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.closed = False

    async def warm(self) -> None:
        if self.error is not None:
            raise self.error

    async def close(self) -> None:
        self.closed = True


def recogniser(
    monkeypatch: pytest.MonkeyPatch, model: Model, **wishes: Any
) -> tuple[CallRecogniser, list[str]]:
    told: list[str] = []
    made: list[tuple[str, dict[str, Any]]] = []

    def named(name: str, **options: Any) -> Model:
        made.append((name, options))
        return model

    monkeypatch.setattr("qwen3tts_agent.recognition.kinds.recogniser_named", named)
    settings = Wishes(**{"sip_stt": "whisper", **wishes})
    return CallRecogniser(lambda: settings, lambda _, error: told.append(str(error))), told


async def test_a_recogniser_that_cannot_be_is_told_at_the_start_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Model(RecogniserUnavailable("There is no model.", remedy="Install one."))
    it, told = recogniser(monkeypatch, model)
    it.start()
    await settle()
    assert told == [
        "Callers are not understood, and the telephone works without that: "
        "There is no model. Install one."
    ]
    assert (it.hears, model.closed, it.trouble) == (False, True, told[0])
    await it.close()


async def test_one_that_cannot_be_reached_now_is_asked_with_each_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it, told = recogniser(monkeypatch, Model(RecognitionFailed("Not now.")))
    it.start()
    await settle()
    assert it.hears
    assert len(told) == 1
    await it.close()


async def test_a_package_that_breaks_costs_the_understanding_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it, told = recogniser(monkeypatch, Model(OSError("libgomp.so.1 is missing")))
    it.start()
    await settle()
    assert not it.hears
    assert "libgomp" in told[0]
    await it.close()


@pytest.mark.parametrize("name", ["whispr", "openai:", "ws://[", "openai:http://h/v1?x=1"])
async def test_a_name_that_is_none_is_told_at_the_start(name: str) -> None:
    told: list[str] = []
    it = CallRecogniser(lambda: Wishes(sip_stt=name), lambda _, error: told.append(str(error)))
    it.start()
    assert not it.hears
    assert len(told) == 1
    await it.close()


async def test_a_turn_detectors_file_that_is_missing_is_told_at_the_start() -> None:
    told: list[str] = []
    wishes = Wishes(sip_stt="whisper", sip_smart_turn="/none/turn.onnx")
    it = CallRecogniser(lambda: wishes, lambda _, error: told.append(str(error)))
    it.start()
    assert not it.hears
    assert "/none/turn.onnx cannot be read: No such file" in told[0]
    await it.close()


async def test_without_the_setting_nothing_is_made() -> None:
    it = CallRecogniser(lambda: Wishes(), lambda *_: None)
    it.start()
    assert not it.hears
    assert it.listening(object()) is None
    await it.close()
