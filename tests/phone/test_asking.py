"""`Call.ask`: a question, its first key, its time limits; keys by a fake clock, speech for real."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone import Call, Gathered, Phone
from qwen3tts_phone.audio.frames import KeyPressed
from qwen3tts_phone.call.dialogue import Question, ask
from qwen3tts_phone.call.keys import Keypad
from qwen3tts_phone.detection.events import OnsetHeard, Turn, TurnEnded
from qwen3tts_server.run import running_server
from qwen3tts_speech.latency import Mark
from qwen3tts_speech.link import SpeechLink
from qwen3tts_wire.errors import EngineFailed
from tests.fakes import FakeClock, settle
from tests.phone.sounds import speech
from tests.phone.voices import tone


class FakeUtterance:
    """What is said until it is heard or stopped."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.stopped = False
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def spoken(self) -> None:
        await asyncio.shield(self.over)


class FakeListening:
    """Turns that a test plays."""

    def __init__(self) -> None:
        self.on_event: Any = None
        self.turns: asyncio.Queue[Turn | None] = asyncio.Queue()

    async def __aenter__(self) -> FakeListening:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def __anext__(self) -> Turn:
        turn = await self.turns.get()
        if turn is None:
            raise StopAsyncIteration
        return turn


class FakeCall:
    """A call that is up: keys, utterances and its end are the test's."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.dtmf = Keypad(self.clock)
        self.said: list[FakeUtterance] = []
        self.listening = FakeListening()
        self._over = asyncio.Event()

    @property
    def over(self) -> bool:
        return self._over.is_set()

    @property
    def speaking(self) -> bool:
        return any(not each.over.done() for each in self.said)

    def speak(self, text: str) -> FakeUtterance:
        self.said.append(FakeUtterance(text))
        return self.said[-1]

    def interrupt(self) -> None:
        for each in self.said:
            if not each.over.done():
                each.stopped = True
                each.over.set_result(None)

    def hear(self, settings: Any, recogniser: Any) -> FakeListening:
        assert not settings.keys
        return self.listening

    async def ended(self) -> str:
        await self._over.wait()
        return "the other side hung up"

    # --- what the test plays

    async def press(self, keys: str) -> None:
        for key in keys:
            self.dtmf.pressed(KeyPressed(self.clock.now(), key, 100))
            await settle()

    async def heard(self) -> None:
        """The question was heard to its end."""
        self.said[-1].over.set_result(None)
        await settle()

    async def hang_up(self) -> None:
        self._over.set()
        self.dtmf.close()
        await settle()


async def asking(call: FakeCall, *, hear: Any = None, **bounds: Any) -> asyncio.Task[Gathered]:
    question = Question("Your number, please.", **bounds)
    task = asyncio.create_task(ask(cast(Call, call), question, hear))
    await settle()
    return task


async def test_the_first_key_silences_the_question_and_the_last_one_answers_it() -> None:
    call = FakeCall()
    task = await asking(call, keys=3)
    await call.press("4")
    assert call.said[0].stopped
    await call.press("71")
    assert await task == Gathered(keys="471", why="keys")
    assert "471" not in repr(await task)


@pytest.mark.parametrize(("pressed", "bounds"), [("12#", {}), ("1*", {"until": "*#"})])
async def test_an_answer_ends_with_its_key(pressed: str, bounds: dict[str, str]) -> None:
    call = FakeCall()
    task = await asking(call, **bounds)
    await call.press(pressed)
    assert (await task).keys == pressed[:-1]


async def test_who_types_ahead_is_not_asked() -> None:
    call = FakeCall()
    await call.press("2")
    assert (await (await asking(call, keys=1))).keys == "2"
    assert not call.said


async def test_the_time_counts_from_the_end_of_the_question() -> None:
    call = FakeCall()
    task = await asking(call, first_s=5.0)
    await call.clock.advance(60.0)
    assert not task.done()
    await call.heard()
    await call.clock.advance(4.9)
    assert not task.done()
    await call.clock.advance(0.2)
    assert await task == Gathered(why="nothing")
    assert not await task


async def test_keys_that_have_begun_have_a_pause_of_their_own() -> None:
    call = FakeCall()
    task = await asking(call, first_s=5.0, pause_s=3.0)
    await call.heard()
    await call.clock.advance(4.0)
    await call.press("8")
    await call.clock.advance(2.9)
    assert not task.done()
    await call.clock.advance(0.2)
    assert (await task).keys == "8"


async def test_it_is_asked_again_and_counted() -> None:
    call = FakeCall()
    task = await asking(call, keys=1, first_s=5.0, tries=3, again="Press a key.")
    for _ in range(2):
        await call.heard()
        await call.clock.advance(5.1)
    await call.press("9")
    assert await task == Gathered(keys="9", why="keys", tries=3)
    assert [each.text for each in call.said] == [
        *("Your number, please.", "Press a key.", "Press a key."),
    ]


async def test_a_call_that_ends_ends_the_question() -> None:
    call = FakeCall()
    task = await asking(call, tries=5)
    await call.hang_up()
    assert await task == Gathered(why="call_over")


async def test_a_voice_that_fails_is_raised() -> None:
    call = FakeCall()
    task = await asking(call)
    call.said[0].over.set_exception(EngineFailed("it broke."))
    with pytest.raises(EngineFailed):
        await task


async def test_speech_that_has_begun_is_waited_for_and_noise_is_not() -> None:
    call = FakeCall()
    task = await asking(call, hear="anything", first_s=5.0)
    await call.heard()
    call.listening.on_event(OnsetHeard(1.0, 1.0))
    await call.clock.advance(5.1)
    assert not task.done()
    call.listening.on_event(TurnEnded(1.0, 1.0, 1.0, "noise", cut_in=False))
    await call.clock.advance(4.0)
    call.listening.on_event(OnsetHeard(1.0, 1.0))
    await call.clock.advance(60.0)
    call.listening.on_event(TurnEnded(1.0, 1.0, 1.0, "pause", cut_in=False))
    await call.clock.advance(60.0)
    assert not task.done()
    call.listening.turns.put_nowait(
        Turn(text="two", began_at=1, ended_at=2, decided_at=3, transcribed_at=3, why="pause")
    )
    assert await task == Gathered(text="two", why="speech")


async def test_what_was_not_understood_is_asked_again_with_its_error() -> None:
    call = FakeCall()
    task = await asking(call, hear="anything", tries=2)
    error = EngineFailed("no model.")
    for _ in range(2):
        call.listening.turns.put_nowait(
            Turn(began_at=1, ended_at=2, decided_at=3, transcribed_at=3, why="pause", error=error)
        )
        await settle()
    assert await task == Gathered(why="not_understood", tries=2, error=error)


@pytest.mark.parametrize(
    ("bounds", "named"),
    [
        ({"keys": -1}, "keys"),
        ({"first_s": 0}, "first_s"),
        ({"pause_s": float("nan")}, "pause_s"),
        ({"tries": 0}, "tries"),
        ({"again": 7}, "again"),
    ],
)
def test_bounds_that_make_no_sense_are_named(bounds: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=rf"^{named}"):
        Question("What?", **bounds)
    with pytest.raises(ValueError, match=r"^text"):
        Question(" ")


@pytest.mark.network
async def test_a_far_end_answers_by_voice_and_by_keys_on_a_real_call() -> None:
    def understood(samples: object, rate_hz: int) -> str:
        return "the second one"

    async with (
        asyncio.timeout(60),
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        Phone(server_url=server.url, announce=None) as ours,
        Phone(server_url=server.url, announce=None) as theirs,
    ):
        call = await ours.dial(theirs.uri)
        asked = asyncio.create_task(call.ask("The first, or the second?", hear=understood))
        far = await anext(theirs.incoming())
        await far.answer()
        while not asked.done():
            await far.say("I should like the second one, please.")
            await asyncio.wait({asked}, timeout=2)
        assert (await asked).text == "the second one"
        asked = asyncio.create_task(call.ask("Which number? " * 10, keys=2, first_s=30))
        await far.send_dtmf("47", duration_ms=60, gap_ms=40)
        assert (await asked).keys == "47"
        await call.hangup()


@pytest.mark.network
@pytest.mark.parametrize("kind", ["human", "machine"])
async def test_one_argument_of_dial_keeps_the_words_for_people(kind: str) -> None:
    from qwen3tts_phone import AnswererHeard, MachineAnswered

    async with (
        asyncio.timeout(60),
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        Phone(server_url=server.url, announce=None) as ours,
        Phone(link=SpeechLink(""), announce=None) as theirs,
    ):
        call = await ours.dial(theirs.uri, on_machine="hang-up")
        saying = asyncio.create_task(call.say("Good morning."))
        far = await anext(theirs.incoming())
        await far.answer()
        playing = asyncio.create_task(far.play(speech(0.8 if kind == "human" else 6.0), 8000))
        if kind == "human":
            assert (await saying).heard == "Good morning."
            await call.hangup()
        else:
            with pytest.raises(MachineAnswered):
                await saying
            assert call.over
        await asyncio.gather(playing, return_exceptions=True)
        assert call.facts.answered_by == kind
        told = [each async for each in call.events if isinstance(each, AnswererHeard)]
        assert [each.kind for each in told] == [kind]
        wrong: Any = "wait"
        with pytest.raises(ValueError, match=r"^on_machine='wait'"):
            await ours.dial(theirs.uri, on_machine=wrong)


@pytest.mark.network
async def test_one_argument_of_dial_leaves_the_message_after_the_beep() -> None:
    async with (
        asyncio.timeout(60),
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        Phone(server_url=server.url, announce=None) as ours,
        Phone(link=SpeechLink(""), announce=None) as theirs,
    ):
        call = await ours.dial(theirs.uri, on_machine="after-beep")
        saying = asyncio.create_task(call.say("Good morning."))
        far = await anext(theirs.incoming())
        await far.answer()
        assert await far.play(speech(5.0), 8000)
        greeted_at = ours.clock.now()
        assert await far.play(tone(1000, 8000, 0.5), 8000)
        spoken = await saying
        assert spoken.heard == "Good morning."
        assert spoken.record.marks[Mark.FIRST_FRAME_WIRE] > greeted_at
        assert call.facts.answered_by == "machine"
        await call.hangup()
