"""A page's call without a network: the messages about its calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from qwen3tts_phone.call.events import MediaBegan, MediaSilent
from qwen3tts_phone.errors import CallError, CallNotAllowed, CallRefused
from qwen3tts_phone.facts import EndFacts
from qwen3tts_phone.softphone import messages as protocol
from qwen3tts_phone.softphone.messages import Call, Dial, Listen, ServerMessage, State
from qwen3tts_phone.softphone.page_call import STATISTICS_INTERVAL_S, PageCall
from qwen3tts_phone.softphone.services import SoftphoneServices
from qwen3tts_phone.softphone.settings import SoftphoneSettings
from qwen3tts_phone.softphone.webrtc.statistics import TransportStatistics
from qwen3tts_wire.errors import SpeechError
from tests.fakes import FakeClock, settle


class FakeCall:
    """One call, of the page or of the telephone; it does what a test says."""

    id = "web-1"
    codec = "PCMU"
    speaker = None
    on_hear = None

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.log: list[Any] = []
        self.facts = SimpleNamespace(end=None)
        self.up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.events: asyncio.Queue[Any] = asyncio.Queue()
        self._over = asyncio.Event()
        self.cause = ""

    # what a test does

    def ends(self, cause: str, by: Any = "remote", error: SpeechError | None = None) -> None:
        if self._over.is_set():
            return
        self.facts.end, self.cause = EndFacts(by=by, error=error), cause
        self._over.set()
        if not self.up.done():
            self.up.set_exception(error or CallError(cause))
            self.up.exception()

    # what the page's call does

    @property
    def over(self) -> bool:
        return self._over.is_set()

    async def answer(self) -> None:
        await asyncio.shield(self.up)

    answered = answer

    async def ended(self) -> str:
        await self._over.wait()
        return self.cause

    async def hangup(self) -> None:
        self.ends("we hung up", "local")

    def far_end_left(self, reason: str = "") -> None:
        self.ends(f"the page hung up: {reason}")

    async def progress(self) -> AsyncIterator[Any]:
        while True:
            yield await self.events.get()

    def statistics(self) -> TransportStatistics:
        return TransportStatistics(
            time=self.clock.now(),
            state="up",
            pacer="playing",
            codec="PCMU",
            queued_ms=120.0,
            frames=7,
            skipped=1,
            starvations=2,
            longest_gap_ms=3.0,
            first_sound_ms=None,
            silent_ms=0.0,
            received=4,
            lost_in=0,
            jitter_in_ms=0.0,
        )

    def hear(self, settings: Any) -> Any:
        self.log.append(("hear", settings.barge_in))
        return SimpleNamespace(followers=[], on_voice=None, start=lambda: None)

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **more: self.log.append((name, *given))


class FakeJoined:
    """A telephone call, joined to the page's."""

    def __init__(self, page: FakeCall) -> None:
        self.page = page
        self.call = FakeCall(page.clock)
        self.told: asyncio.Queue[State] = asyncio.Queue()
        self.log: list[Any] = []

    async def states(self) -> AsyncIterator[State]:
        state = None
        while state is None or state.state != "ended":
            yield (state := await self.told.get())

    def ends(self, cause: str = "", code: str = "", remedy: str = "") -> None:
        """The party's end; the page's call goes with it."""
        self.call.ends(cause)
        self.page.ends("we hung up", "local")
        self.told.put_nowait(State("ended", cause, remedy, "remote", code))

    async def over(self) -> None:
        await self.call.ended()

    async def close(self) -> None:
        self.log.append("close")
        self.call.ends("closed", "local")

    async def press(self, digits: str) -> None:
        self.log.append(("press", digits))
        if digits == "#":
            raise CallError("Keys cannot be pressed now.")

    def speak(self, words: Any) -> Any:
        self.log.append("speak")
        raise CallError("The party has not answered yet.")

    def interrupt(self) -> None:
        self.log.append("interrupt")

    def talk(self, on: bool) -> None:
        self.log.append(("talk", on))


class Phone:
    """A page's call, and the calls that are made for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = FakeClock()
        self.web = FakeCall(self.clock)
        self.joined = FakeJoined(self.web)
        self.refuses: Exception | None = None
        gateway = cast(Any, self)
        self.desk = SoftphoneServices(
            SoftphoneSettings(max_call_s=60.0), self.clock, None, gateway, None
        )
        monkeypatch.setattr(self.desk, "web_call", self.web_call)
        self.told: list[ServerMessage] = []
        self.page = PageCall(self.desk, self.told.append)

    async def web_call(self, *_: Any, **__: Any) -> tuple[Any, str]:
        self.desk.calls.add(cast(Any, self.web))
        return self.web, "v=0"

    async def dial(self, page: Any, uri: str) -> FakeJoined:
        if self.refuses is not None:
            raise self.refuses
        return self.joined

    listen = dial

    async def after(self, asked: Any) -> list[str]:
        """The states told so far."""
        self.page.begin(asked)
        await settle(20)
        return self.states

    @property
    def states(self) -> list[str]:
        return [each.state for each in self.told if isinstance(each, State)]

    def said(self, kind: type[Any]) -> list[Any]:
        return [each for each in self.told if isinstance(each, kind)]

    async def end(self) -> State:
        """Wait for the end; what was told of it."""
        await self.page.ended()
        assert self.page.over
        assert self.desk.calls == set()
        assert self.web.over
        assert not self.page._tasks
        return self.page.state


@pytest.fixture
async def phone(monkeypatch: pytest.MonkeyPatch) -> Phone:
    return Phone(monkeypatch)


DIAL = Dial("v=0", "sip:bob@192.0.2.7")
LISTEN = Listen("v=0", "call-1")


async def test_a_call_tells_its_answer_then_that_it_is_up(phone: Phone) -> None:
    assert await phone.after(Call("v=0")) == ["connecting"]
    assert phone.said(protocol.Answer) == [protocol.Answer("web-1", "v=0", "PCMU", 8000)]
    phone.web.up.set_result(None)
    await settle(20)
    assert phone.states == ["connecting", "up"]
    assert ("hear", True) in phone.web.log
    phone.page.leave("it was closed")
    assert await phone.end() == State("ended", "the page hung up: it was closed", by="remote")


async def test_a_page_that_hangs_up_before_it_is_connected_is_told_just_that(phone: Phone) -> None:
    await phone.after(Call("v=0"))
    phone.page.leave("it was closed")
    assert await phone.end() == State("ended", "the page hung up: it was closed", by="remote")


async def test_a_line_that_falls_silent_is_lost_and_found_again(phone: Phone) -> None:
    await phone.after(Call("v=0"))
    phone.web.up.set_result(None)
    await settle(20)
    for event in (MediaBegan(0.0), MediaSilent(1.0, 2.0), MediaBegan(3.0)):
        phone.web.events.put_nowait(event)
        await settle(20)
    assert phone.states == ["connecting", "up", "lost", "up"]
    assert phone.said(State)[2].remedy
    phone.page.leave()
    await phone.end()


async def test_what_broke_the_line_is_told_with_what_helps(phone: Phone) -> None:
    await phone.after(Call("v=0"))
    error = CallError("The network between here and the browser broke.", remedy="Check it.")
    phone.web.ends("lost", "error", error)
    ended = await phone.end()
    assert (ended.cause, ended.remedy, ended.code) == (error.message, "Check it.", "call_error")


async def test_the_lines_figures_come_five_times_a_second(phone: Phone) -> None:
    await phone.after(Call("v=0"))
    phone.web.up.set_result(None)
    await settle(20)
    phone.told.clear()
    for _ in range(5):
        await phone.clock.advance(STATISTICS_INTERVAL_S)
    lines = phone.said(protocol.Line)
    assert len(lines) == 5
    assert (lines[0].state, lines[0].queued_ms, lines[0].frames) == ("playing", 120.0, 7)
    assert (lines[0].skipped, lines[0].starvations, lines[0].longest_gap_ms) == (1, 2, 3.0)
    phone.page.leave()
    await phone.end()


async def test_a_call_that_lasts_too_long_is_ended(phone: Phone) -> None:
    await phone.after(Call("v=0"))
    phone.web.up.set_result(None)
    await phone.clock.advance(61.0)
    assert phone.said(protocol.Error)[0].code == "too_long"
    assert (await phone.end()).by == "local"


async def test_a_page_that_leaves_before_there_is_a_call_leaves_nothing(phone: Phone) -> None:
    phone.page.begin(Call("v=0"))
    phone.page.leave()
    await phone.page.ended()
    assert not phone.desk.calls
    assert phone.states[-1] == "ended"


async def test_a_page_that_leaves_twice_does_not_break_off_the_clearing_away(
    phone: Phone, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing, closed = asyncio.Event(), asyncio.Event()

    async def connecting(*_: Any, **__: Any) -> tuple[Any, str]:
        try:
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]
        finally:
            closing.set()
            await settle(20)
            closed.set()

    monkeypatch.setattr(phone.desk, "web_call", connecting)
    await phone.after(Call("v=0"))
    phone.page.leave()
    await closing.wait()
    phone.page.leave("it was closed")
    await phone.page.ended()
    assert closed.is_set()
    assert phone.page.state.state == "ended"


async def test_the_next_call_waits_for_the_end_of_the_one_before(phone: Phone) -> None:
    await phone.after(Call("v=0"))
    phone.web.up.set_result(None)
    await settle(20)
    ending = [phone.page.ending]
    next_one = PageCall(phone.desk, phone.told.append)
    next_one.begin(Call("v=0"), phone.page)
    await settle(20)
    assert phone.states == ["connecting", "up"]
    phone.page.leave()
    ending.append(phone.page.ending)
    assert ending == [False, True]
    await phone.page.ended()
    assert phone.states[:4] == ["connecting", "up", "ended", "connecting"]
    next_one.leave()
    await next_one.ended()
    assert next_one.state.state == "ended"


async def test_a_dialled_call_tells_how_its_party_stands(phone: Phone) -> None:
    await phone.after(DIAL)
    phone.web.up.set_result(None)
    for state in ("connecting", "ringing", "up"):
        phone.joined.told.put_nowait(State(cast(Any, state)))
    phone.joined.call.up.set_result(None)
    await settle(20)
    assert phone.states == ["connecting", "connecting", "ringing", "up"]
    assert ("hear", False) in phone.joined.call.log
    phone.page.press("5")
    phone.page.talk(False)
    phone.page.interrupt()
    await settle(20)
    assert phone.joined.log == [("talk", False), "interrupt", ("press", "5")]
    phone.page.press("#")
    await settle(20)
    assert phone.said(protocol.Error)[0].message == "Keys cannot be pressed now."
    phone.joined.ends("they hung up")
    assert (await phone.end()).cause == "they hung up"
    assert phone.joined.log[-1] == "close"


async def test_a_party_that_is_busy_before_the_page_is_connected_is_told(phone: Phone) -> None:
    await phone.after(DIAL)
    refused = CallRefused(486, "Busy Here")
    phone.joined.ends(refused.message, refused.code, refused.remedy)
    ended = await phone.end()
    assert (ended.cause, ended.code, ended.remedy) == (
        refused.message,
        "call_refused",
        refused.remedy,
    )


async def test_a_number_that_may_not_be_called_ends_it_with_the_rule(phone: Phone) -> None:
    phone.refuses = CallNotAllowed("It is a premium number.", rule="premium", remedy="Ask.")
    assert (await phone.after(DIAL))[-1] == "ended"
    ended = await phone.end()
    assert (ended.code, ended.remedy, ended.by) == ("call_not_allowed", "Ask.", "error")


async def test_a_guest_is_never_listened_for_in_the_other_call(phone: Phone) -> None:
    await phone.after(LISTEN)
    phone.web.up.set_result(None)
    phone.joined.told.put_nowait(State("up"))
    await settle(20)
    assert phone.states[-1] == "up"
    assert phone.joined.call.log == []
    phone.page.leave()
    phone.joined.told.put_nowait(State("ended"))
    phone.joined.call.ends("")
    await phone.end()


async def test_what_breaks_unforeseen_is_told_without_its_words(
    phone: Phone, caplog: pytest.LogCaptureFixture
) -> None:
    phone.refuses = RuntimeError("secret words")
    await phone.after(DIAL)
    ended = await phone.end()
    assert (ended.code, ended.by) == ("internal_error", "error")
    assert "secret" not in ended.cause + caplog.text
    assert "RuntimeError" in caplog.text
