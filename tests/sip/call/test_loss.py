"""Whatever both owners do, on a wire that loses, doubles and reorders: everything ends, and once.

Each run is a random walk of two phones through everything that can be done to calls. At its end
both hang up, and nothing may be left: no call, transaction, timer or question without an answer.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_phone.errors import CallError, WrongState
from qwen3tts_phone.sdp.session import SdpSession, parse
from qwen3tts_phone.sip.call.call import Call
from qwen3tts_phone.sip.call.incoming import UNANSWERED_S
from qwen3tts_phone.sip.call.state import (
    Answered,
    CallEvent,
    CallState,
    Ended,
    ReferReceived,
    ReinviteReceived,
    TransferProgress,
)
from qwen3tts_phone.sip.call.transfer import OutgoingRefer
from qwen3tts_phone.sip.message.message import Response
from qwen3tts_phone.sip.transaction.client_request import OutcomeListener
from qwen3tts_phone.sip.transaction.dialog import ReferTo, Replaces
from qwen3tts_phone.sip.transaction.digest import Digest
from qwen3tts_phone.sip.transaction.transaction import Failure
from tests.sip.wire import ANSWER, OFFER, Carried, Phone, Wire, pair

MAX_CALLS = 6


class Told:
    """A transfer's listener that counts its ends."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._number = owner.ask("refer")

    def taken(self, status: int, *, quiet: bool) -> None:
        pass

    def progress(self, progress: TransferProgress) -> None:
        pass

    def over(self, outcome: int | CallError) -> None:
        self._owner.answered(self._number)


class Owner:
    """One phone, and what a program does with its calls."""

    def __init__(self, wire: Wire, host: str, chance: random.Random) -> None:
        self.phone = Phone(wire, host)
        self.phone.answers_with = None
        self.wire = wire
        self.chance = chance
        self.calls: list[Call] = []
        self.ends: Counter[int] = Counter()
        self.asked: dict[int, str] = {}
        self.answers: Counter[int] = Counter()
        self.open: list[Callable[[], None]] = []
        self.phone._on_call = self._took  # type: ignore[method-assign]
        self.phone.agent.on_call = self._took

    def ask(self, what: str) -> int:
        number = len(self.asked)
        self.asked[number] = what
        return number

    def answered(self, number: int) -> None:
        self.answers[number] += 1

    def place(self, other: Owner, headers: dict[str, str] | None = None) -> None:
        call = self.phone.agent.place(
            other.phone.uri, OFFER, self.wire.now, digest=Digest("a", "b"), headers=headers
        )
        self._follow(call)

    def _took(self, call: Any) -> None:
        self._follow(call)

    def _follow(self, call: Call) -> None:
        self.calls.append(call)
        number = len(self.calls) - 1

        def told(event: CallEvent) -> None:
            if isinstance(event, Ended):
                self.ends[number] += 1
            elif isinstance(event, ReinviteReceived):
                sdp = self.chance.choice([ANSWER, None])
                self.later(lambda: event.respond(sdp))
            elif isinstance(event, ReferReceived):
                self._referred(event)

        call.notify = told

    def _referred(self, event: ReferReceived) -> None:
        def decide() -> None:
            if self.chance.random() < 0.7:
                event.accept()
                self.later(lambda: event.notify(180, "Ringing"))
                self.later(lambda: event.notify(self.chance.choice([200, 486]), ""))
            else:
                event.refuse(603)

        self.later(decide)

    def later(self, work: Callable[[], None]) -> None:
        """Now, at some time, or never."""
        luck = self.chance.random()
        if luck < 0.4:
            work()
        elif luck < 0.9:
            self.open.append(work)

    def act(self, other: Owner) -> None:
        """Do something; what is not possible now is a typed error."""
        if self.open and self.chance.random() < 0.3:
            self.open.pop(self.chance.randrange(len(self.open)))()
            return
        call = self.chance.choice(self.calls) if self.calls else None
        name = self.chance.choice([*ACTIONS, "place", "place"])
        try:
            if name == "place":
                if len(self.calls) < MAX_CALLS:
                    self.place(other)
            elif call is not None:
                ACTIONS[name](self, call, other)
        except (CallError, ValueError):
            pass

    # What can be done to a call

    def ring(self, call: Any, other: Owner) -> None:
        if call.direction == "in":
            call.ring(self.wire.now, self.chance.choice([None, ANSWER]))

    def answer(self, call: Any, other: Owner) -> None:
        if call.direction == "in":
            call.answer(ANSWER, self.wire.now)

    def reject(self, call: Any, other: Owner) -> None:
        if call.direction == "in":
            call.reject(self.chance.choice([302, 486, 603]), self.wire.now)

    def hang_up(self, call: Call, other: Owner) -> None:
        call.hang_up(self.wire.now)

    def change(self, call: Call, other: Owner) -> None:
        number = self.ask("change")
        method = self.chance.choice(["INVITE", "UPDATE"])
        try:
            call.modification.start(
                OFFER,
                lambda result: self.answered(number),
                self.wire.now,
                cast(Any, method),
            )
        except WrongState:
            self.answered(number)

    def inform(self, call: Call, other: Owner) -> None:
        dialog = call.session_dialog()
        if dialog is None or call.state in (CallState.ENDING, CallState.ENDED):
            return
        number = self.ask("info")
        request = dialog.request(self.chance.choice(["INFO", "OPTIONS", "MESSAGE"]))

        def told(outcome: Response | Failure, now: float) -> None:
            self.answered(number)

        call.send_in_dialog(request, OutcomeListener(told), self.wire.now, dialog)

    def refer(self, call: Call, other: Owner) -> None:
        if call.state is CallState.UP:
            refer_to = ReferTo("sip:x@10.0.0.7", None)
            OutgoingRefer(call, refer_to, Told(self), [], self.wire.now)

    def replace(self, call: Call, other: Owner) -> None:
        if call.dialog is not None and len(self.calls) < MAX_CALLS:
            dialog = call.dialog
            early = self.chance.random() < 0.2
            replaces = Replaces(dialog.call_id, dialog.remote_tag, dialog.local_tag, early)
            self.place(other, {"Replaces": replaces.value})


ACTIONS: dict[str, Callable[[Owner, Any, Owner], None]] = {
    "ring": Owner.ring,
    "answer": Owner.answer,
    "again": Owner.answer,
    "reject": Owner.reject,
    "hang_up": Owner.hang_up,
    "change": Owner.change,
    "inform": Owner.inform,
    "refer": Owner.refer,
    "replace": Owner.replace,
}


def without(host: str) -> Callable[[Carried], bool]:
    """A wire on which one address is there no more."""
    return lambda carried: host in (carried.source.host, carried.to.host)


def walk(seed: int, loss: float, doubling: float, jitter_s: float, *, vanish: bool) -> None:
    """One run, and what must hold at its end."""
    chance = random.Random(seed)
    wire = Wire(loss=loss, doubling=doubling, jitter_s=jitter_s, seed=seed)
    owners = [Owner(wire, "10.0.0.1", chance), Owner(wire, "10.0.0.2", chance)]
    vanish_at = chance.randrange(40) if vanish else -1
    for step in range(40):
        if step == vanish_at:
            gone = chance.choice(owners).phone.host
            wire.drop = without(gone)
        one, other = chance.sample(owners, 2)
        one.act(other)
        wire.collect()
        if chance.random() < 0.7:
            wire.run(chance.choice([0.005, 0.02, 0.3, 2.0, 35.0]))
    for owner in owners:
        for call in owner.calls:
            call.hang_up(wire.now)
    # What was under way may still arrive, and be left alone for as long as may be.
    wire.run(UNANSWERED_S + 400.0)
    for owner in owners:
        agent = owner.phone.agent
        assert not agent.calls, [(c.direction, c.state) for c in agent.calls]
        assert len(agent.layer) == 0
        assert not agent.timed
        assert not agent.registry.usages
        assert len(agent.registry) == 0
        assert agent.next_deadline() is None
        assert owner.ends == Counter(range(len(owner.calls)))
        left = {n: what for n, what in owner.asked.items() if owner.answers[n] != 1}
        assert not left, left


@given(
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.1, 0.4]),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([0.0, 0.05, 1.5]),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_whatever_both_do_everything_ends_once(
    seed: int, loss: float, doubling: float, jitter_s: float, vanish: bool
) -> None:
    walk(seed, loss, doubling, jitter_s, vanish=vanish)


def everything_is_over(wire: Wire, *phones: Phone) -> None:
    for phone in phones:
        assert not phone.agent.calls
        assert len(phone.agent.layer) == 0
        ends = [event for event in phone.events if isinstance(event, Ended)]
        assert len(ends) <= 1
        for event in ends:
            assert event.error is None or isinstance(event.error, CallError)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([0.0, 0.1, 0.3, 0.5]),
    doubling=st.sampled_from([0.0, 0.3, 1.0]),
    jitter_s=st.sampled_from([0.0, 0.3, 2.0]),
    by_caller=st.booleans(),
)
def test_a_call_is_set_up_and_ended_or_fails_by_name(
    seed: int, loss: float, doubling: float, jitter_s: float, by_caller: bool
) -> None:
    wire, caller, callee = pair(seed=seed, loss=loss, doubling=doubling, jitter_s=jitter_s)
    call = caller.call(callee)
    wire.run(40.0)
    if call.state is CallState.UP:
        assert caller.events[-1] == Answered(ANSWER)
        (theirs,) = callee.calls
        if by_caller or theirs.state is not CallState.UP:
            call.hang_up(wire.now)
        else:
            theirs.hang_up(wire.now)
    else:
        call.hang_up(wire.now)
    wire.run(150.0)
    if call.state is CallState.UP and not any(bye.delivered for bye in wire.sent("BYE")):
        # All eleven were lost (1 in 2000 at half of them): no one could know.
        call.hang_up(wire.now)
        wire.run(150.0)
    assert isinstance(caller.events[-1], Ended)
    assert len(callee.calls) <= 1
    everything_is_over(wire, caller)
    if loss == 0.0:
        everything_is_over(wire, callee)
        assert Answered(ANSWER) in caller.events


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), after_s=st.floats(0.0, 3.0))
def test_a_cancelled_call_ends_at_both_sides_whenever_the_cancel_comes(
    seed: int, after_s: float
) -> None:
    wire, caller, callee = pair(seed=seed, loss=0.3, jitter_s=0.2)
    callee.answers_with = None
    call = caller.call(callee)
    wire.run(1.0)
    if callee.calls:
        callee.calls[0].ring(wire.now)
    wire.run(after_s)
    call.hang_up(wire.now)
    if callee.calls and seed % 2 and callee.calls[0].state is CallState.RINGING:
        callee.calls[0].answer(ANSWER, wire.now)
    wire.run(150.0)
    everything_is_over(wire, caller)
    assert isinstance(caller.events[-1], Ended)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_changes_from_both_sides_over_a_bad_wire_end_in_an_answer_or_an_error(seed: int) -> None:
    wire, caller, callee = pair(seed=seed, jitter_s=0.1)
    call = caller.call(callee)
    wire.run(5.0)
    wire.loss, wire.doubling = 0.2, 0.2
    got: list[str | CallError] = []
    for phone in (caller, callee):
        ours = next(iter(phone.agent.calls))

        def notify(event: object, phone: Phone = phone) -> None:
            phone.events.append(event)  # type: ignore[arg-type]
            if isinstance(event, ReinviteReceived):
                event.respond(ANSWER)

        ours.notify = notify
        ours.modification.start(OFFER, got.append, wire.now)
    wire.run(100.0)
    assert len(got) == 2
    call.hang_up(wire.now)
    wire.run(150.0)
    everything_is_over(wire, caller)


@pytest.mark.parametrize("seed", range(5))
def test_twenty_calls_at_once_over_a_bad_wire_do_not_disturb_each_other(seed: int) -> None:
    wire, caller, callee = pair(seed=seed, loss=0.1, doubling=0.1, jitter_s=0.1)
    calls = [caller.call(callee) for _ in range(20)]
    wire.run(40.0)
    assert all(call.state is CallState.UP for call in calls)
    assert len(callee.calls) == 20
    for call in calls:
        call.hang_up(wire.now)
    wire.run(100.0)
    assert not caller.agent.calls
    assert not callee.agent.calls


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    changes=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=6),
)
def test_over_a_bad_wire_each_hold_gets_its_own_answer_and_versions_only_rise(
    seed: int, changes: list[tuple[bool, bool]]
) -> None:
    wire, caller, callee = pair(seed=seed, jitter_s=0.3)
    sides = (SdpSession("10.0.0.1", 4000), SdpSession("10.0.0.2", 5000))
    callee.answers_with = sides[1].answer(sides[0].offer())[0]
    call = caller.call(callee, sdp=sides[0].offer())
    wire.run(5.0)
    calls = (call, callee.calls[0])
    sides[0].accept(callee.answers_with)
    wire.loss, wire.doubling = 0.25, 0.2
    for each, session in zip(calls, sides, strict=True):

        def notify(event: object, session: SdpSession = session) -> None:
            if isinstance(event, ReinviteReceived):
                event.respond(session.answer(event.offer or "")[0])

        each.notify = notify
    for by_callee, hold in changes:
        session, got = sides[by_callee], list[str | CallError]()

        def offer(session: SdpSession = session, hold: bool = hold) -> str:
            return session.offer("sendonly" if hold else "sendrecv")

        calls[by_callee].modification.start(offer, got.append, wire.now)
        wire.until(lambda got=got: bool(got))  # type: ignore[misc]
        if not isinstance(got[0], str):
            break
        direction = parse(got[0]).audio.direction
        assert direction in (("recvonly", "inactive") if hold else ("sendrecv", "sendonly"))
        session.accept(got[0])
    for host in ("10.0.0.1", "10.0.0.2"):
        said = [c.message.sdp for c in wire.carried if c.source.host == host and c.message.sdp]
        versions = [parse(text).version for text in dict.fromkeys(said)]
        assert versions == sorted(set(versions))
