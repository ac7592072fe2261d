"""The pause of a call's turns: words, melody and a detector, as they come."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from qwen3tts_phone.detection import core, pause_control
from qwen3tts_phone.detection.endpointing import TurnSoFar
from qwen3tts_phone.detection.events import ListenEvent, Turn, TurnEnded
from qwen3tts_phone.detection.prosody import LastSound
from qwen3tts_phone.detection.recogniser import Transcript
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.detection.speech_detection import SpeechDetection
from tests.fakes import settle
from tests.phone.detection.fake_call import FakeCall, FakeRecogniser, LoudDetector

FALLING, LEVEL = LastSound(-8, -8), LastSound(1, 1)


class Caller:
    """A caller with a melody, a recogniser and what listens."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        recogniser: FakeRecogniser | None = None,
        *,
        detector: Any = None,
        **settings: Any,
    ) -> None:
        self.sound: LastSound | None = FALLING
        monkeypatch.setattr(core, "make_detector", lambda name: LoudDetector())
        monkeypatch.setattr(pause_control, "last_sound", lambda samples, rate_hz: self.sound)
        self.call = FakeCall()
        self.recogniser = recogniser
        self.turns: list[Turn] = []
        self.events: list[ListenEvent] = []
        wanted = {"grace_ms": 0, "min_speech_ms": 50, "adaptive_pause": True}
        self.detection = SpeechDetection(
            self.call,
            ListenSettings(**(wanted | settings)),
            recogniser,
            turn_detector=detector,
            on_event=self.events.append,
        )

    async def __aenter__(self) -> Caller:
        self._reading = asyncio.create_task(self._read())
        await settle()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.call.hang_up()
        await self._reading

    async def _read(self) -> None:
        async for turn in self.detection:
            self.turns.append(turn)

    async def words(self, text: str, language: str = "en") -> None:
        """The recogniser has the text so far."""
        assert self.recogniser is not None
        assert self.recogniser.on_partial is not None
        self.recogniser.on_partial(Transcript(text, language))
        await settle()

    @property
    def pauses(self) -> list[tuple[Any, str, str]]:
        """Pause in s, reason and rule of each turn that has ended."""
        return [
            (round(each.at - each.ended_at, 2), each.why, each.rule)
            for each in self.events
            if isinstance(each, TurnEnded)
        ]


@pytest.fixture
def recogniser() -> FakeRecogniser:
    return FakeRecogniser("The text.")


async def test_a_complete_sentence_ends_early_when_its_words_are_there(
    monkeypatch: pytest.MonkeyPatch, recogniser: FakeRecogniser
) -> None:
    async with Caller(monkeypatch, recogniser) as caller:
        await caller.call.say(0.5)
        await caller.call.rest(0.22)
        await caller.words("The heating is broken.")
        assert caller.pauses == []
        await caller.call.rest(0.5)
    assert caller.pauses == [(0.26, "pause", "sentence:falling")]
    assert [turn.rule for turn in caller.turns] == ["sentence:falling"]


async def test_words_that_come_after_the_chosen_pause_end_the_turn_at_their_time(
    monkeypatch: pytest.MonkeyPatch, recogniser: FakeRecogniser
) -> None:
    async with Caller(monkeypatch, recogniser) as caller:
        await caller.call.say(0.5)
        await caller.call.rest(0.4)
        await caller.words("No, thank you.")
        assert caller.pauses == [(0.4, "pause", "answer")]


async def test_digits_are_waited_for_and_the_rest_belongs_to_the_turn(
    monkeypatch: pytest.MonkeyPatch, recogniser: FakeRecogniser
) -> None:
    async with Caller(monkeypatch, recogniser) as caller:
        caller.detection.expect("What is your six-digit number?")
        await caller.call.say(0.5)
        await caller.call.rest(0.22)
        await caller.words("555")
        await caller.call.rest(0.9)
        assert caller.pauses == []
        await caller.call.say(0.5)
        await caller.call.rest(0.22)
        await caller.words("555 012")
        await caller.call.rest(0.5)
    assert caller.pauses == [(0.26, "pause", "digits_complete")]


async def test_until_the_words_come_and_where_none_come_the_settings_pause_holds(
    monkeypatch: pytest.MonkeyPatch, recogniser: FakeRecogniser
) -> None:
    async with Caller(monkeypatch, recogniser) as caller:
        await caller.call.say(0.5)
        await caller.call.rest(1.0)
    assert caller.pauses == [(0.6, "pause", "")]


async def test_without_a_recogniser_the_melody_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Caller(monkeypatch) as caller:
        for sound in (FALLING, LEVEL, None):
            caller.sound = sound
            await caller.call.say(0.5)
            await caller.call.rest(1.2)
    assert caller.pauses == [
        (0.46, "pause", "sound:falling"),
        (0.9, "pause", "sound:level"),
        (0.6, "pause", "sound:unclear"),
    ]


@pytest.mark.parametrize("answered", [False, True])
async def test_turns_that_were_cut_off_tell_how_long_the_caller_pauses(
    monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    async with Caller(monkeypatch, barge_in=False) as caller:
        caller.sound = None
        for _ in range(3):
            await caller.call.say(0.5)
            await caller.call.rest(0.7)
            caller.call.speaking = answered  # then the next turn is another one
            await caller.call.rest(0.1)
            caller.call.speaking = False
        await caller.call.rest(1.0)
    usual = (0.6, "pause", "sound:unclear")
    longer = (pytest.approx(0.92, abs=0.02), "pause", "sound:unclear:own_pauses")
    assert caller.pauses == [usual, usual, usual if answered else longer]


async def test_a_pause_after_which_the_caller_went_on_counts_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Caller(monkeypatch) as caller:
        caller.sound = LEVEL
        for _ in range(3):
            await caller.call.say(0.5)
            await caller.call.rest(0.84)
        await caller.call.rest(1.0)
    assert caller.pauses == [
        (pytest.approx(0.98, abs=0.03), "pause", "sound:level:own_pauses"),
    ]


async def test_switched_off_the_pause_is_that_of_the_settings(
    monkeypatch: pytest.MonkeyPatch, recogniser: FakeRecogniser
) -> None:
    async with Caller(monkeypatch, recogniser, adaptive_pause=False) as caller:
        await caller.call.say(0.5)
        await caller.call.rest(0.22)
        await caller.words("No, thank you.")
        await caller.call.rest(0.6)
    assert caller.pauses == [(0.6, "pause", "")]


# --- turn detectors


class Network:
    """A detector with thresholds, whose answers a test gives."""

    thresholds = (0.1, 0.95)

    def __init__(self, *answers: float | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[TurnSoFar] = []
        self.cancelled = 0

    async def finished(self, turn: TurnSoFar) -> float:
        self.asked.append(turn)
        if not self.answers:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("probability", "pause_s", "why", "rule"),
    [
        (0.99, 0.26, "detector", "detector:end"),
        (0.05, 1.2, "pause", "detector:wait"),
        (0.5, 0.46, "pause", "sound:falling"),
    ],
)
async def test_a_networks_opinion_counts_at_its_thresholds(
    monkeypatch: pytest.MonkeyPatch, probability: float, pause_s: float, why: str, rule: str
) -> None:
    network = Network(probability)
    async with Caller(monkeypatch, detector=network) as caller:
        await caller.call.say(0.5)
        await caller.call.rest(1.5)
    assert caller.pauses == [(pytest.approx(pause_s, abs=0.021), why, rule)]
    (asked,) = network.asked
    assert asked.now - asked.ended_at == pytest.approx(0.15, abs=0.021)


@pytest.mark.parametrize(
    ("probability", "pause_s", "rule"),
    [(0.99, 0.26, "detector:end"), (0.05, 1.2, "detector:wait"), (0.5, 0.6, "")],
)
async def test_a_network_is_asked_also_where_the_rules_are_switched_off(
    monkeypatch: pytest.MonkeyPatch, probability: float, pause_s: float, rule: str
) -> None:
    network = Network(probability)
    async with Caller(monkeypatch, detector=network, adaptive_pause=False) as caller:
        await caller.call.say(0.5)
        await caller.call.rest(1.5)
    assert [(pause, name) for pause, _, name in caller.pauses] == [
        (pytest.approx(pause_s, abs=0.021), rule)
    ]


async def test_words_take_precedence_over_a_network(
    monkeypatch: pytest.MonkeyPatch, recogniser: FakeRecogniser
) -> None:
    async with Caller(monkeypatch, recogniser, detector=Network(0.99)) as caller:
        await caller.call.say(0.5)
        await caller.call.rest(0.3)
        assert caller.pauses == [], "the words are awaited"
        await caller.words("My number is 555")
        await caller.call.rest(0.9)
        assert caller.pauses == []
        await caller.call.rest(0.5)
    assert [rule for *_, rule in caller.pauses] == ["digits"]


@pytest.mark.parametrize("answer", [RuntimeError("broken"), float("nan")])
async def test_a_network_that_fails_leaves_the_rules(
    monkeypatch: pytest.MonkeyPatch, answer: float | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    async with Caller(monkeypatch, detector=Network(answer)) as caller:
        await caller.call.say(0.5)
        await caller.call.rest(1.0)
    assert [rule for *_, rule in caller.pauses] == ["sound:falling"]


async def test_a_network_that_hangs_leaves_the_rules_and_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = Network()
    async with Caller(monkeypatch, detector=network) as caller:
        await caller.call.say(0.5)
        await caller.call.rest(0.3)
        await caller.call.say(0.5)
        assert network.cancelled == 1, "the caller goes on"
        await caller.call.rest(1.0)
        assert network.cancelled == 2
    assert [rule for *_, rule in caller.pauses] == ["sound:falling"]


async def test_a_detector_without_thresholds_decides_alone(
    monkeypatch: pytest.MonkeyPatch, recogniser: FakeRecogniser
) -> None:
    class Alone(Network):
        thresholds = None  # type: ignore[assignment]

    for answer, rule in ((0.5, "detector"), (0.49, "detector:wait")):
        recogniser.texts.append("Text.")
        async with Caller(monkeypatch, recogniser, detector=Alone(answer)) as caller:
            await caller.call.say(0.5)
            await caller.call.rest(0.22)
            if answer < 0.5:
                await caller.words("No, thank you.")
            await caller.call.rest(2.5)
        assert [name for *_, name in caller.pauses] == [rule]


# --- callers of other kinds


async def test_a_caller_who_never_pauses_ends_at_the_longest_turn(
    monkeypatch: pytest.MonkeyPatch, recogniser: FakeRecogniser
) -> None:
    async with Caller(monkeypatch, recogniser, max_turn_s=1.0) as caller:
        await caller.call.say(2.5)
    assert [why for _, why, _ in caller.pauses][:2] == ["too_long", "too_long"]
    assert {rule for *_, rule in caller.pauses} == {""}


async def test_a_cough_is_noise_and_its_rule_is_none(
    monkeypatch: pytest.MonkeyPatch, recogniser: FakeRecogniser
) -> None:
    async with Caller(monkeypatch, recogniser, min_speech_ms=150) as caller:
        caller.sound = None
        for _ in range(3):
            await caller.call.say(0.08)
            await caller.call.rest(1.0)
    assert [(why, rule) for _, why, rule in caller.pauses] == [("noise", "")] * 3
    assert caller.turns == []


async def test_a_second_voice_in_the_pause_is_the_same_turn(
    monkeypatch: pytest.MonkeyPatch, recogniser: FakeRecogniser
) -> None:
    async with Caller(monkeypatch, recogniser) as caller:
        await caller.call.say(0.5)
        await caller.call.rest(0.22)
        await caller.words("I need a table for")
        await caller.call.rest(0.2)
        caller.sound = LEVEL
        await caller.call.say(0.3)  # somebody else
        await caller.call.rest(1.2)
    assert caller.pauses == [(0.9, "pause", "sound:level")]
    assert len(caller.turns) == 1


class Once:
    """A detector with thresholds that answers the first question alone."""

    thresholds = (0.1, 0.95)

    def __init__(self) -> None:
        self.asked = 0

    async def finished(self, turn: TurnSoFar) -> float | None:
        self.asked += 1
        if self.asked > 1:
            await asyncio.Event().wait()
        return 0.99


async def test_a_detectors_answer_counts_in_its_own_pause_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    detector = Once()
    async with Caller(monkeypatch, detector=detector) as caller:
        await caller.call.say(0.5)
        await caller.call.rest(0.18)  # shorter than notice_ms
        await caller.call.say(0.5)
        caller.sound = LEVEL
        await caller.call.rest(1.2)
        assert detector.asked == 2
    assert caller.pauses == [(0.9, "pause", "sound:level")]


class Goes:
    """A detector without thresholds that says once that the caller goes on, then hangs."""

    def __init__(self) -> None:
        self.asked = 0

    async def finished(self, turn: TurnSoFar) -> bool | None:
        self.asked += 1
        if self.asked > 1:
            await asyncio.Event().wait()
        return False


async def test_a_detector_that_hangs_later_leaves_the_pause_to_the_rules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Caller(monkeypatch, detector=Goes()) as caller:
        await caller.call.say(0.5)
        await caller.call.rest(0.18)
        await caller.call.say(0.5)
        caller.sound = LEVEL
        await caller.call.rest(1.2)
    assert caller.pauses == [(0.9, "pause", "sound:level")]
