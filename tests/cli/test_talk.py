from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
import typer

from qwen3tts_cli import answer, talk
from qwen3tts_cli.exits import CutShort
from qwen3tts_cli.talk import Telephone, checked_digits
from qwen3tts_cli.words import Words, choose_words
from qwen3tts_phone.call import Call
from qwen3tts_phone.call_events import CallEnded, CallEvent, KeyPressed
from qwen3tts_speech.latency import UtteranceRecord
from qwen3tts_speech.line import Spoken
from qwen3tts_wire.errors import EngineFailed, SpeechError
from tests.fakes import settle


class FakeCall:
    """A call that is up; ``say`` takes until `finish`, `interrupt` or the end of the call."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.keys = ""
        self.remote_uri = "sip:bob@127.0.0.1"
        self.failure: SpeechError | None = None
        self._over = asyncio.Event()
        self._through = asyncio.Event()
        self._interrupted = False
        self._events: asyncio.Queue[CallEvent] = asyncio.Queue()

    def finish(self) -> None:
        """All has been said."""
        self._through.set()

    def press(self, digit: str) -> None:
        self._events.put_nowait(KeyPressed(0.0, digit, 160))

    def remote_hangs_up(self) -> None:
        self.interrupt()
        self._over.set()
        self._events.put_nowait(CallEnded(0.0, "they did"))

    async def answer(self) -> None: ...

    @property
    async def events(self) -> AsyncIterator[CallEvent]:
        while not isinstance(event := await self._events.get(), CallEnded):
            yield event

    async def say(self, words: AsyncIterator[str]) -> Spoken:
        async for delta in words:
            self.said.append(delta)
        if self.failure is not None:
            raise self.failure
        await self._through.wait()
        heard = "Good" if self._interrupted else "Good morning."
        return Spoken(heard, "Good morning."[len(heard) :], self._interrupted, 0, UtteranceRecord())

    def interrupt(self) -> None:
        self._interrupted = not self._through.is_set()
        self._through.set()

    async def send_dtmf(self, keys: str) -> None:
        self.keys += keys

    async def hangup(self) -> None:
        if not self._over.is_set():
            self.remote_hangs_up()

    async def ended(self) -> str:
        await self._over.wait()
        return "it is over"


GREETING = Words(text="Good morning.")


async def talking(
    call: FakeCall, *, digits: str = "", max_seconds: float | None = None
) -> asyncio.Task[None]:
    """A conversation that has begun."""
    task = asyncio.create_task(
        talk.talk(cast(Call, call), GREETING, digits=digits, max_seconds=max_seconds)
    )
    await settle()
    return task


async def test_keys_are_pressed_then_the_words_are_said_then_the_call_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call = FakeCall()
    task = await talking(call, digits="12#")
    assert (call.keys, call.said) == ("12#", ["Good morning."])
    call.finish()
    await task
    assert call._over.is_set()
    told = capsys.readouterr().err
    assert "Heard: Good morning." in told
    assert "Not heard" not in told


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
    with pytest.raises(CutShort, match="the call ended before everything was said"):
        await task
    told = capsys.readouterr().err
    assert "Heard: Good\n" in told
    assert "Not heard: morning." in told


async def test_a_call_lasts_no_longer_than_allowed() -> None:
    call = FakeCall()
    task = await talking(call, max_seconds=0.01)
    with pytest.raises(CutShort, match="--max-seconds was over"):
        await task
    assert call._over.is_set()


async def test_words_that_fail_end_the_call_with_their_error() -> None:
    call = FakeCall()
    call.failure = EngineFailed("no voice left")
    task = await talking(call)
    with pytest.raises(EngineFailed):
        await task
    assert call._over.is_set()


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
    words = GREETING if failure else Words(file=Path("/nonexistent"))
    await answer.guarded(cast(Call, call), words, "", None)
    assert "Error: " in capsys.readouterr().err
    assert not caplog.records


async def test_a_bug_in_one_call_is_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    call = FakeCall()
    call.failure = cast(SpeechError, ZeroDivisionError("a bug"))
    await answer.guarded(cast(Call, call), GREETING, "", None)
    assert "ZeroDivisionError: a bug" in caplog.text


def test_digits_are_checked_before_the_call() -> None:
    assert checked_digits("12#a") == "12#A"
    assert checked_digits(None) == ""
    with pytest.raises(typer.BadParameter, match=r"'x' \(at 2\)"):
        checked_digits("1x")


def telephone(**changes: object) -> Telephone:
    options: dict[str, object] = {
        "host": "127.0.0.1",
        "port": 0,
        "user": None,
        "password_env": "SIP_PASSWORD",
        "registrar": None,
        "record": None,
        "latency_log": None,
        "voice": None,
        "language": None,
    }
    return Telephone(**{**options, **changes})  # type: ignore[arg-type]


def test_the_password_comes_from_the_environment_and_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SIP_PASSWORD", "secret")
    settings = telephone(registrar="sip:pbx.test", user="200").settings("ws://x")
    assert settings.account is not None
    assert settings.account.password == "secret"
    assert "secret" not in repr(settings)


def test_a_registrar_needs_a_user() -> None:
    with pytest.raises(typer.BadParameter, match="--user"):
        telephone(registrar="sip:pbx.test").settings("ws://x")


def chosen(**options: object) -> Words:
    given: dict[str, object] = {
        "say": None,
        "token_ms": 0.0,
        "file": None,
        "stdin": False,
        "by_key": False,
        "llm": None,
        "model": "default",
        "system": "",
        "prompt": "Hello?",
        "key_env": "LLM_KEY",
    }
    return choose_words(**{**given, **options})  # type: ignore[arg-type]


async def test_each_source_of_words_opens_anew_for_each_call(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Good morning.", "utf-8")
    for words in (chosen(say="Good morning."), chosen(say="Good morning.", token_ms=0.001)):
        for _ in range(2):
            assert "".join([delta async for delta in words.open()]) == "Good morning."
    words = chosen(file=path)
    for _ in range(2):
        assert [delta async for delta in words.open()] == ["Good morning."]
    assert not words.once
    assert chosen(stdin=True).once


def test_a_file_that_is_not_there_is_known_before_the_call(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match="is no file"):
        chosen(file=tmp_path)


def test_the_key_of_the_model_comes_from_the_environment_and_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LLM_KEY", "sk-1")
    words = chosen(llm="http://model.test/v1")
    assert words.chat is not None
    assert words.chat.api_key == "sk-1"
    assert "sk-1" not in repr(words)
