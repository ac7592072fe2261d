from __future__ import annotations

import asyncio
from typing import Any

import pytest

from qwen3tts_phone.softphone import messages as protocol
from qwen3tts_phone.softphone import session as module
from qwen3tts_phone.softphone.messages import Heard, Line, ServerMessage, State, Utterance
from qwen3tts_phone.softphone.services import SoftphoneServices
from qwen3tts_phone.softphone.session import MAX_WAITING, Outbox, PageSession
from qwen3tts_phone.softphone.settings import SoftphoneSettings
from qwen3tts_phone.softphone.webrtc.report import Report
from qwen3tts_wire.errors import BadRequest
from qwen3tts_wire.fields import DecodeError
from tests.fakes import FakeClock, settle

CALL = protocol.Call("v=0")


class FakeCall:
    """A page's call that notes what is asked of it, and ends when it is left."""

    made: list[FakeCall]

    def __init__(self, desk: SoftphoneServices, tell: Any, **_: str) -> None:
        self.log: list[Any] = []
        self.id = "call-1"
        self._over = asyncio.Event()
        self.made.append(self)

    @property
    def over(self) -> bool:
        return self._over.is_set()

    ending = False

    def begin(self, asked: object, before: FakeCall | None = None) -> None:
        self.log.append(asked)
        self.before = before

    def leave(self, reason: str = "") -> None:
        self.log.append(("leave", reason))
        self._over.set()

    async def ended(self) -> None:
        await self._over.wait()

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self.log.append((name, *given))


class Page:
    """One session without a network."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.over: list[PageSession] = []
        desk = SoftphoneServices(SoftphoneSettings(), self.clock, None, None, None)
        self.session = PageSession(desk, on_over=self.over.append)

    def told(self) -> list[ServerMessage]:
        found = []
        while (message := self.session.outbox.take()) is not None:
            found.append(message)
        return found

    def says(self, *messages: Any) -> list[ServerMessage]:
        self.told()
        for message in messages:
            self.session.take(message)
        return self.told()

    def refused(self, message: Any) -> str:
        """The code of the refusal."""
        (error,) = self.says(message)
        assert isinstance(error, protocol.Error)
        assert error.about == getattr(message, "type", "")
        return error.code


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Page:
    FakeCall.made = []
    monkeypatch.setattr(module, "PageCall", FakeCall)
    return Page()


def call() -> FakeCall:
    return FakeCall.made[-1]


async def test_a_page_is_greeted_with_all_it_may_do(page: Page) -> None:
    page.session.attach("socket")
    (welcome,) = page.told()
    assert isinstance(welcome, protocol.Welcome)
    assert welcome.session == page.session.id
    assert [each.id for each in welcome.engines] == ["engine-1"]
    assert (welcome.resumed, welcome.call_id, welcome.agent) == (False, None, False)
    assert welcome.limits.calls == 8


async def test_the_servers_clock_is_told_with_the_pages_own(page: Page) -> None:
    assert page.says(protocol.Ping(17.0)) == [protocol.Pong(17.0, page.clock.now() * 1000)]


async def test_a_page_has_one_call_at_a_time(page: Page) -> None:
    assert page.says(CALL) == []
    assert page.refused(CALL) == "wrong_state"
    assert page.says(protocol.HangUp()) == []
    assert page.says(CALL) == []
    assert len(FakeCall.made) == 2


async def test_a_call_that_is_hung_up_makes_room_for_the_next(page: Page) -> None:
    page.says(CALL)
    first = call()
    first.ending = True
    assert page.says(CALL) == []
    assert call().before is first
    page.session.close()
    await settle()
    assert page.over == []  # the first one still clears itself away
    first.leave()
    await page.session.ended()
    assert page.over == [page.session]


async def test_what_needs_a_call_says_so(page: Page) -> None:
    needing = (protocol.Type(1, "a"), protocol.Say("a"), protocol.Key("1"), protocol.Talk(on=True))
    for message in needing:
        assert page.refused(message) == "wrong_state"
    harmless = (
        protocol.HangUp(),
        protocol.Interrupt(),
        protocol.TypeEnd(1),
        protocol.Mute(on=True),
        Report(rtt_ms=3.0),
        protocol.Voice(),
    )
    assert page.says(*harmless) == []


async def test_the_call_is_given_what_the_page_asks_for(page: Page) -> None:
    report = Report(rtt_ms=3.0)
    voice = protocol.Voice(voice="anna")
    page.says(
        CALL,
        protocol.Type(1, "Good "),
        protocol.TypeEnd(1),
        protocol.Key("#"),
        protocol.Talk(on=True),
        protocol.Interrupt(),
        report,
        voice,
    )
    assert call().log == [
        CALL,
        ("type", 1, "Good "),
        ("type_end", 1),
        ("press", "#"),
        ("talk", True),
        ("interrupt",),
        ("report", report),
        ("choose_voice", voice),
    ]


async def test_an_engine_that_is_none_and_a_second_hello_are_refused(page: Page) -> None:
    assert page.refused(protocol.Voice(engine="other")) == "no_such_engine"
    assert page.refused(protocol.Hello("token")) == "bad_request"
    told = page.says(DecodeError(BadRequest("The message is not JSON."), None))
    assert [each.type for each in told] == ["error"]


async def test_a_lost_page_that_comes_back_in_time_has_its_call(page: Page) -> None:
    page.session.attach("first")
    page.says(CALL)
    page.session.detach("first", gone=False)
    await page.clock.advance(7.9)
    page.session.attach("second", resumed=True)
    welcome = page.told()[0]
    assert isinstance(welcome, protocol.Welcome)
    assert (welcome.resumed, welcome.call_id) == (True, "call-1")
    assert call().log[-1] == ("repeat",)
    await page.clock.advance(60)
    assert not page.session.closed


async def test_what_was_told_meanwhile_waits_for_it(page: Page) -> None:
    page.session.attach("first")
    page.told()
    page.session.detach("first", gone=False)
    page.session.tell(protocol.State("ended", "the far end hung up"))
    page.session.attach("second", resumed=True)
    assert [each.type for each in page.told()] == ["hello", "state"]


async def test_a_lost_page_that_stays_away_loses_its_call(page: Page) -> None:
    page.session.attach("first")
    page.says(CALL)
    page.session.detach("first", gone=False)
    await page.clock.advance(8.1)
    await page.session.ended()
    assert call().log[-1] == ("leave", "it did not come back")
    assert page.over == [page.session]


async def test_a_page_that_is_closed_ends_its_call_at_once(page: Page) -> None:
    page.session.attach("first")
    page.says(CALL)
    page.session.detach("first", gone=True)
    await page.session.ended()
    assert call().log[-1] == ("leave", "it was closed")
    assert page.over == [page.session]
    page.session.close()
    assert page.over == [page.session]


async def test_a_connection_that_was_taken_over_ends_nothing(page: Page) -> None:
    page.session.attach("first")
    page.session.attach("second", resumed=True)
    page.session.detach("first", gone=True)
    await settle()
    assert not page.session.closed
    assert page.session.connection == "second"


async def test_a_page_that_takes_nothing_any_more_is_given_up(page: Page) -> None:
    page.session.attach("first")
    page.says(CALL)
    for _ in range(MAX_WAITING + 1):
        page.session.tell(protocol.State("up"))
    await page.session.ended()
    assert page.session.closed
    assert call().over
    page.session.tell(protocol.State("up"))
    assert len(page.session.outbox) <= MAX_WAITING + 1


def taken(outbox: Outbox) -> list[ServerMessage]:
    found = []
    while (message := outbox.take()) is not None:
        found.append(message)
    return found


def test_messages_keep_their_order() -> None:
    outbox = Outbox()
    told: list[ServerMessage] = [State("connecting"), Utterance(1, "typed", "a"), State("up")]
    for each in told:
        assert outbox.put(each)
    assert taken(outbox) == told


def test_what_is_out_of_date_is_left_out() -> None:
    outbox = Outbox()
    for position in range(5):
        outbox.put(Heard(1, position, 0.0))
        outbox.put(Heard(2, position, 0.0))
        outbox.put(State("up"))
    assert taken(outbox) == [State("up")] * 4 + [Heard(1, 4, 0.0), Heard(2, 4, 0.0), State("up")]


def test_a_slow_page_costs_no_memory_for_figures() -> None:
    outbox = Outbox()
    for number in range(10 * MAX_WAITING):
        assert outbox.put(Line(float(number), "idle"))
    assert len(outbox) <= MAX_WAITING
    assert taken(outbox) == [Line(10.0 * MAX_WAITING - 1, "idle")]
    outbox.put(Line(0.0, "idle"))
    assert taken(outbox) == [Line(0.0, "idle")]


def test_a_page_that_takes_nothing_at_all_is_given_up() -> None:
    outbox = Outbox()
    assert all(outbox.put(State("up")) for _ in range(MAX_WAITING))
    assert not outbox.put(State("up"))
