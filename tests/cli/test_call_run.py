from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
import typer

from qwen3tts_cli.calls import answering, call_run
from qwen3tts_cli.calls.call_run import CallPlan, checked_digits
from qwen3tts_cli.calls.text import TextSource
from qwen3tts_cli.options.listening import ListenOptions
from qwen3tts_cli.output.exits import CutShort
from qwen3tts_phone.audio.frames import KeyPressed
from qwen3tts_phone.call.call import Call, CallEvent
from qwen3tts_phone.call.events import CallEnded
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.errors import CallRefused, TransferFailed
from qwen3tts_phone.facts import CallFacts, EndFacts
from qwen3tts_speech.latency import UtteranceRecord
from qwen3tts_speech.line import Spoken
from qwen3tts_wire.errors import EngineFailed, SpeechError
from tests.fakes import settle


class FakeUtterance:
    """One reply; it takes until it is finished, interrupted, or fails."""

    def __init__(self, words: AsyncIterator[str], failure: SpeechError | None) -> None:
        self.text = ""
        self.interrupted = False
        self.all_heard = False
        """Whether an interruption comes when all of the text was heard."""
        self.through = asyncio.Event()
        self._words = words
        self._failure = failure

    async def spoken(self) -> Spoken:
        reading = asyncio.create_task(self._read())
        through = asyncio.create_task(self.through.wait())
        try:
            await asyncio.wait({reading, through}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()
                await through
        finally:
            reading.cancel()
            through.cancel()
            await asyncio.gather(reading, through, return_exceptions=True)
        return self.outcome()

    async def _read(self) -> None:
        async for delta in self._words:
            self.text += delta
        if self._failure is not None:
            raise self._failure

    def outcome(self) -> Spoken:
        cut = (self.interrupted and not self.all_heard) or self._failure
        heard = "Good" if cut else self.text
        rest = self.text[len(heard) :]
        return Spoken(heard, rest, self.interrupted, len(heard), UtteranceRecord())


class FakeListening:
    """A call's listening; the test says when the caller speaks."""

    def __init__(self, over: asyncio.Event) -> None:
        self.interrupted: set[FakeUtterance] = set()
        self.quiet = asyncio.Event()
        self.quiet.set()
        self._over = over

    def __aiter__(self) -> FakeListening:
        return self

    async def __anext__(self) -> None:
        await self._over.wait()
        raise StopAsyncIteration


class FakeCall:
    """A call that is up; what is said takes until `finish`, `interrupt` or the end of the call."""

    def __init__(self) -> None:
        self.utterances: list[FakeUtterance] = []
        self.keys = ""
        self.remote_uri = "sip:bob@127.0.0.1"
        self.facts = CallFacts()
        self.handed_on_to = ""
        self.transfer_error: SpeechError | None = None
        self.failure: SpeechError | None = None
        self._over = asyncio.Event()
        self._events: asyncio.Queue[CallEvent] = asyncio.Queue()
        self.listening: FakeListening | None = None
        self.listen_settings: ListenSettings | None = None

    @property
    def said(self) -> list[str]:
        return [utterance.text for utterance in self.utterances]

    def finish(self) -> None:
        """All has been said."""
        self.utterances[-1].through.set()

    def press(self, digit: str) -> None:
        self._events.put_nowait(KeyPressed(0.0, digit, 160))

    def voice(self, speaking: bool) -> None:
        """The caller begins to speak, or has finished."""
        if self.listening is None:
            return
        if speaking:
            self.listening.quiet.clear()
            self.listening.interrupted.update(self.interrupt())
        else:
            self.listening.quiet.set()

    def remote_hangs_up(self) -> None:
        self.interrupt()
        self._over.set()
        self._events.put_nowait(CallEnded(0.0, "they did"))
        self.voice(False)

    async def answer(self) -> None: ...

    async def successor(self) -> None:
        await self._over.wait()

    @property
    async def events(self) -> AsyncIterator[CallEvent]:
        while not isinstance(event := await self._events.get(), CallEnded):
            yield event

    def hear(self, settings: ListenSettings, recogniser: object = None) -> FakeListening:
        self.listen_settings = settings
        self.listening = FakeListening(self._over)
        return self.listening

    def speak(self, words: AsyncIterator[str]) -> FakeUtterance:
        self.utterances.append(FakeUtterance(words, self.failure))
        return self.utterances[-1]

    def interrupt(self) -> list[FakeUtterance]:
        stopped = [utterance for utterance in self.utterances if not utterance.through.is_set()]
        for utterance in stopped:
            utterance.interrupted = True
            utterance.through.set()
        return stopped

    async def send_dtmf(self, keys: str) -> None:
        self.keys += keys

    async def transfer(self, target: str) -> None:
        if self.transfer_error is not None:
            raise self.transfer_error
        self.handed_on_to = target
        self.remote_hangs_up()

    async def hangup(self) -> None:
        if not self._over.is_set():
            self.remote_hangs_up()

    async def ended(self) -> str:
        await self._over.wait()
        return "it is over"


GREETING = TextSource(text="Good morning.")


class WordsOf(TextSource):
    """Words that come one after the other, each when the test types it, as on standard input."""

    def __init__(self, *texts: str | None, stdin: bool = False) -> None:
        super().__init__(stdin=stdin)
        object.__setattr__(self, "typed", asyncio.Queue())
        for text in texts:
            self.type(text)

    def type(self, text: str | None) -> None:
        """Type it; None is the end."""
        self.__dict__["typed"].put_nowait(text)

    async def open(self) -> AsyncIterator[str]:
        while (text := await self.__dict__["typed"].get()) is not None:
            yield text


async def talking(
    call: FakeCall, plan: CallPlan | None = None, words: TextSource = GREETING
) -> asyncio.Task[None]:
    """A conversation that has begun."""
    task = asyncio.create_task(call_run.handle_call(cast(Call, call), words, plan or CallPlan()))
    await settle()
    return task


async def test_keys_are_pressed_then_the_words_are_said_then_the_call_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call = FakeCall()
    task = await talking(call, CallPlan(digits="12#"))
    assert (call.keys, call.said) == ("12#", ["Good morning."])
    call.finish()
    await task
    assert call._over.is_set()
    told = capsys.readouterr().err
    assert "Heard: Good morning." in told
    assert "Not heard" not in told


async def test_a_call_is_handed_on_when_everything_was_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call = FakeCall()
    task = await talking(call, CallPlan(transfer="sip:200@pbx.test"))
    assert call.handed_on_to == ""
    call.finish()
    await task
    assert call.handed_on_to == "sip:200@pbx.test"
    told = capsys.readouterr().err
    assert told.index("Heard: Good morning.") < told.index("Transferring the call")
    assert "The call was transferred." in told


async def test_a_call_that_cannot_be_handed_on_is_an_error_and_is_hung_up() -> None:
    call = FakeCall()
    call.transfer_error = TransferFailed(603, "Decline")
    task = await talking(call, CallPlan(transfer="sip:200@pbx.test"))
    call.finish()
    with pytest.raises(TransferFailed):
        await task
    assert call._over.is_set()


async def test_why_nobody_heard_anything_is_told_at_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call = FakeCall()
    call.facts = CallFacts(end=EndFacts(by="error", error=CallRefused(403, "Forbidden")))
    task = await talking(call)
    call.finish()
    await task
    assert "forbids" in capsys.readouterr().err


async def test_keys_of_the_other_side_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    call = FakeCall()
    task = await talking(call)
    call.press("5")
    call.finish()
    await task
    assert capsys.readouterr().out == "key 5\n"


async def test_a_call_that_ends_before_the_words_is_an_error_that_tells_what_was_heard(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call = FakeCall()
    task = await talking(call)
    call.remote_hangs_up()
    with pytest.raises(CutShort, match="the call ended before all text was spoken"):
        await task
    told = capsys.readouterr().err
    assert "Heard: Good\n" in told
    assert "Not heard: morning." in told


async def test_a_call_lasts_no_longer_than_allowed() -> None:
    call = FakeCall()
    task = await talking(call, CallPlan(max_seconds=0.01))
    with pytest.raises(CutShort, match="--max-seconds elapsed"):
        await task
    assert call._over.is_set()


async def test_words_that_fail_end_the_call_with_their_error_and_what_was_heard_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call = FakeCall()
    call.failure = EngineFailed("no voice left")
    task = await talking(call)
    with pytest.raises(EngineFailed):
        await task
    assert call._over.is_set()
    told = capsys.readouterr().err
    assert "Heard: Good\n" in told
    assert "Not heard: morning." in told


async def test_words_that_hold_nothing_are_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    call = FakeCall()
    task = await talking(call, words=WordsOf("", None))
    call.finish()
    with pytest.raises(CutShort, match="no text to speak"):
        await task
    assert "Nothing was heard." in capsys.readouterr().err


async def test_of_what_was_not_heard_a_long_rest_is_shortened(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call = FakeCall()
    task = await talking(call, words=TextSource(text="Good" + " morning" * 1000))
    call.remote_hangs_up()
    with pytest.raises(CutShort):
        await task
    told = capsys.readouterr().err
    assert "(7999 characters in all)" in told
    assert len(told) < 500


BARGE_IN = CallPlan(listening=ListenOptions(barge_in=True))


async def test_the_callers_voice_silences_what_is_said_and_he_may_finish(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call = FakeCall()
    task = await talking(call, BARGE_IN)
    call.voice(True)
    await settle()
    assert call.utterances[0].interrupted
    assert not task.done()
    call.voice(False)
    await task
    told = capsys.readouterr().err
    assert "The caller interrupts." in told
    assert "Heard: Good\n" in told
    assert "Not heard: morning." in told


async def test_a_caller_who_interrupts_and_hangs_up_is_no_error() -> None:
    call = FakeCall()
    task = await talking(call, BARGE_IN)
    call.voice(True)
    await settle()
    call.remote_hangs_up()
    await task


async def test_words_after_an_interruption_that_are_cut_short_are_an_error() -> None:
    call = FakeCall()
    typed = WordsOf("Good morning.", stdin=True)
    task = await talking(
        call, CallPlan(listening=ListenOptions(barge_in=True), max_seconds=0.05), typed
    )
    call.voice(True)
    await settle()
    typed.type("Good bye.")
    with pytest.raises(CutShort):
        await task
    assert call.said == ["Good morning.", "Good bye."]


async def test_the_callers_voice_is_no_interruption_unless_that_is_asked_for() -> None:
    call = FakeCall()
    task = await talking(call)
    call.voice(True)
    await settle()
    assert not call.utterances[0].interrupted
    call.finish()
    await task


async def test_what_is_typed_after_an_interruption_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call = FakeCall()
    typed = WordsOf("Good morning.", stdin=True)
    task = await talking(call, BARGE_IN, typed)
    call.voice(True)
    await settle()
    typed.type("Good bye.")
    typed.type(None)
    await settle()
    call.finish()
    await task
    assert call.said == ["Good morning.", "Good bye."]
    assert capsys.readouterr().err.count("Heard: Good") == 2


async def test_a_caller_interrupts_nothing_while_nothing_is_typed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call = FakeCall()
    typed = WordsOf("Good morning.", stdin=True)
    task = await talking(call, BARGE_IN, typed)
    call.utterances[0].all_heard = True
    call.voice(True)
    await settle()
    call.voice(False)
    typed.type("Good bye.")
    typed.type(None)
    await settle()
    call.finish()
    await task
    assert call.said == ["Good morning.", "Good bye."]
    told = capsys.readouterr().err
    assert "The caller interrupts." not in told
    assert "Heard: Good morning." in told


async def test_ctrl_c_hangs_up() -> None:
    call = FakeCall()
    task = await talking(call)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert call._over.is_set()


@pytest.mark.parametrize("failure", [EngineFailed("no voice left"), None])
async def test_one_call_that_fails_leaves_the_others_alone(
    failure: SpeechError | None,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    call = FakeCall()
    call.failure = failure
    words = GREETING if failure else TextSource(file=Path("/nonexistent"))
    await asyncio.create_task(answering.converse_isolated(cast(Call, call), words, CallPlan()))
    told = capsys.readouterr().err
    assert "Error: sip:bob@127.0.0.1: " in told
    assert "sip:bob@127.0.0.1: The call has ended" in told
    assert not caplog.records


async def test_a_bug_in_one_call_is_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    call = FakeCall()
    call.failure = cast(SpeechError, ZeroDivisionError("a bug"))
    await answering.converse_isolated(cast(Call, call), GREETING, CallPlan())
    assert "ZeroDivisionError: a bug" in caplog.text


def test_digits_are_checked_before_the_call() -> None:
    assert checked_digits("12#a") == "12#A"
    assert checked_digits(None) == ""
    with pytest.raises(typer.BadParameter, match=r"'x' \(at 2\)"):
        checked_digits("1x")
