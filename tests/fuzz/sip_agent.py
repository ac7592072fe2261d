"""The SIP user agent as a whole, with an untrusted peer and a clock."""

from __future__ import annotations

import contextlib
import random
from collections import deque

from qwen3tts_phone.errors import CallError, WrongState
from qwen3tts_phone.sip.call.call import Call
from qwen3tts_phone.sip.call.incoming import IncomingCall
from qwen3tts_phone.sip.call.modification import Method
from qwen3tts_phone.sip.call.outgoing import OutgoingCall
from qwen3tts_phone.sip.call.state import (
    CallEvent,
    CallState,
    Ended,
    ReferReceived,
    ReinviteReceived,
    TransferProgress,
)
from qwen3tts_phone.sip.call.transfer import OutgoingRefer
from qwen3tts_phone.sip.core.account import Account
from qwen3tts_phone.sip.core.settings import SipSettings
from qwen3tts_phone.sip.message.message import Request, Response, parse_message
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.registration.registration import RegistrationCore, RegistrationState
from qwen3tts_phone.sip.transaction.client_request import OutcomeListener
from qwen3tts_phone.sip.transaction.dialog import ReferTo
from qwen3tts_phone.sip.transaction.digest import Digest
from qwen3tts_phone.sip.user_agent import UserAgent
from tests.fuzz.sip_messages import CHALLENGE, COMPACT, HELD, OFFER, SIP_WORDS, request, response
from tests.fuzz.target import SEPARATOR, Target, sequence, steps

MAX_CALLS = 4
MAX_SENDS = 8
"""Messages that one event may bring about, timers aside."""

OVERHEAD = 4096
"""Bytes that our message may add to those copied from theirs."""

PAUSES_S = {"1": 0.05, "2": 0.6, "3": 5.0, "4": 40.0, "5": 1000.0}

THEIR_HOST = "192.0.2.9"


class ReferListener:
    """Listener of our REFER; its outcome is reported once."""

    def __init__(self) -> None:
        self.outcomes: list[int | CallError] = []

    def taken(self, status: int, *, quiet: bool) -> None:
        assert 200 <= status < 300

    def progress(self, progress: TransferProgress) -> None:
        assert 100 <= progress.status < 700
        assert progress.reason.isprintable()

    def over(self, outcome: int | CallError) -> None:
        self.outcomes.append(outcome)


class AgentHarness:
    """The agent, its events, and all messages that it sends."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.incoming: list[IncomingCall] = []
        self.outgoing: list[OutgoingCall] = []
        self.events: list[CallEvent] = []
        self.asked: deque[ReinviteReceived] = deque(maxlen=4)
        self.referred: deque[ReferReceived] = deque(maxlen=4)
        self.transfers: list[ReferListener] = []
        self.words = dict.fromkeys((b"%T", b"%B", b"%F", b"%I", b"%N", b"%M", b"%Q"), b"x")
        """Placeholders of a peer that reads our messages: the To tag of our last response, and its
        RSeq; branch, From tag, Call-ID, CSeq number and method of our last request."""
        self.registration: RegistrationCore | None = None
        self.said: set[bytes] = set()
        """All messages of ours; what is sent again is not looked at again."""
        self.longest = 0
        self.ticks_left = 20_000
        self.agent = UserAgent(
            SipSettings(host="192.0.2.1", port=5060, max_calls=MAX_CALLS, display_name="Us"),
            now=lambda: self.now,
            local=lambda hop: ("192.0.2.1", 5060),
            on_call=self._on_call,
            rng=random.Random(0),
        )

    def _on_call(self, call: IncomingCall) -> None:
        call.notify = self._on_event
        self.incoming.append(call)

    def _on_event(self, event: CallEvent) -> None:
        self.events.append(event)
        if isinstance(event, ReinviteReceived):
            self.asked.append(event)
        elif isinstance(event, ReferReceived):
            self.referred.append(event)

    def step(self, kind: str, rest: bytes) -> None:
        agent = self.agent
        if kind in "ut":
            for word, value in self.words.items():
                rest = rest.replace(word, value)
            self.longest = max(self.longest, len(rest))
            transport = "tcp" if kind == "t" else "udp"
            agent.receive(rest, Hop(transport, THEIR_HOST, 5060, 7 if kind == "t" else 0), self.now)
        elif kind == "f":
            agent.transport_failed(Hop("udp", THEIR_HOST, 5060), self.now)
        elif kind in PAUSES_S:
            self.pass_time(PAUSES_S[kind])
            return
        elif kind == "p":
            if len(self.outgoing) < MAX_CALLS:
                self.place()
        elif kind == "g":
            self.register()
        elif kind == "s":
            if self.registration is not None:
                self.registration.stop(self.now)
        elif kind in "yn":
            while self.asked:
                with contextlib.suppress(WrongState):
                    self.asked.popleft().respond(HELD if kind == "y" else None)
                self.sent(MAX_SENDS)
            for refer in self.referred:
                refer.accept() if kind == "y" else refer.refuse(603)
                self.sent(MAX_SENDS)
        elif kind in "vw":
            for refer in self.referred:
                refer.notify(180 if kind == "v" else 200, "So\r\nX: y")
                self.sent(MAX_SENDS)
        else:
            self.act(kind)
            return
        self.sent(MAX_SENDS)

    def place(self) -> None:
        call = self.agent.place(
            f"sip:them@{THEIR_HOST}", OFFER, self.now, digest=Digest("us", "secret")
        )
        call.notify = self._on_event
        self.outgoing.append(call)

    def register(self) -> None:
        if self.registration is None:
            account = Account(f"sip:{THEIR_HOST}", "us", "secret")
            self.registration = RegistrationCore(self.agent, account, Hop("udp", THEIR_HOST, 5060))
            self.registration.start(self.now)

    def act(self, kind: str) -> None:
        """Do something with every call; what does not fit is WrongState and nothing else."""
        for call in (*self.incoming, *self.outgoing):
            with contextlib.suppress(WrongState):
                if kind == "h":
                    call.hang_up(self.now)
                elif kind in "cd":
                    method: Method = "INVITE" if kind == "c" else "UPDATE"
                    call.modification.start(OFFER, lambda result: None, self.now, method)
                elif kind == "x":
                    self.transfer(call)
                elif kind == "k" and call.dialog is not None:
                    info = call.dialog.request("INFO")
                    call.send_in_dialog(info, OutcomeListener(lambda outcome, now: None), self.now)
                elif isinstance(call, IncomingCall):
                    self.act_incoming(call, kind)
            self.sent(MAX_SENDS)

    def act_incoming(self, call: IncomingCall, kind: str) -> None:
        if kind in "re":
            call.ring(self.now, OFFER if kind == "e" else None)
        elif kind == "a":
            call.answer(OFFER, self.now)
        elif kind == "j":
            call.reject(486, self.now)

    def transfer(self, call: Call) -> None:
        if call.state is CallState.UP and len(self.transfers) < MAX_CALLS:
            told = ReferListener()
            OutgoingRefer(call, ReferTo(f"sip:other@{THEIR_HOST}"), told, [], self.now)
            self.transfers.append(told)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, with a tick at each deadline."""
        end = self.now + seconds
        agent = self.agent
        while (deadline := agent.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            agent.tick(self.now)
            self.sent(MAX_SENDS * (1 + len(agent.layer) + len(agent.calls)))
            self.ticks_left -= 1
            assert self.ticks_left > 0, "the agent never sleeps"
        self.now = end

    def sent(self, most: int) -> None:
        """Take what the agent says: not too much, and each of it a good message."""
        outbox = self.agent.outbox
        assert len(outbox) <= most, f"{len(outbox)} messages in one batch"
        while outbox:
            send = outbox.popleft()
            assert 0 < send.hop.port < 65536
            assert len(send.data) <= self.longest + OVERHEAD
            if send.data in self.said:
                continue
            self.said.add(send.data)
            message = parse_message(send.data)
            if isinstance(message, Response):
                self.words[b"%T"] = (message.to.tag or "").encode()
                self.words[b"%Q"] = (message.get("RSeq") or "x").encode()
            elif message.method != "ACK":
                self._read(message)

    def _read(self, message: Request) -> None:
        self.words[b"%B"] = message.branch.encode()
        self.words[b"%F"] = (message.from_.tag or "").encode()
        self.words[b"%I"] = message.call_id.encode()
        self.words[b"%N"] = str(message.cseq).encode()
        self.words[b"%M"] = message.method.encode()

    def kept(self) -> int:
        """Everything in the agent's tables."""
        agent = self.agent
        tables = (agent, agent.layer, agent.registry)
        holders = [value for table in tables for value in vars(table).values()]
        return sum(len(each) for each in holders if isinstance(each, dict | set | list | deque))


def run_sip_agent(data: bytes) -> None:
    harness = AgentHarness()
    script = steps(data)
    for kind, rest in script:
        harness.step(kind, rest)
        assert len(harness.agent.calls) <= 2 * MAX_CALLS
        assert harness.kept() <= 200 * (len(script) + 1)
    harness.act("h")
    harness.step("s", b"")
    # The longest that anything lasts is an answer that waits for its ACK, then the BYE's.
    harness.pass_time(400.0)
    assert harness.agent.next_deadline() is None
    assert harness.kept() == 0
    for call in (*harness.incoming, *harness.outgoing):
        assert call.state is CallState.ENDED
    if harness.registration is not None:
        assert harness.registration.state is RegistrationState.ENDED
    assert all(len(told.outcomes) == 1 for told in harness.transfers)
    assert all(call.open_referrals == 0 for call in (*harness.incoming, *harness.outgoing))
    ended = sum(isinstance(event, Ended) for event in harness.events)
    assert ended == len(harness.incoming) + len(harness.outgoing)


def _ok(*extra: str, body: str = OFFER) -> bytes:
    return b"u" + response(200, *extra, body=body)


INVITE = b"u" + request("INVITE", "Supported: timer", "Session-Expires: 90", body=OFFER)

RELIABLE = b"u" + request("INVITE", "Supported: 100rel", body=OFFER)

PRACK = b"u" + request("PRACK", "RAck: %Q 1 INVITE", cseq=2, tag="%T")

ALLOWS = "Allow: INVITE, ACK, BYE, UPDATE"
SIPFRAG = "Content-Type: message/sipfrag"


def _rel(rseq: int, *, body: str = "") -> bytes:
    return b"u" + response(183, "Require: 100rel", f"RSeq: {rseq}", body=body, method="INVITE")


def _notify(cseq: int, status: str, state: str = "active;expires=60") -> bytes:
    """A notice of a transfer that the agent has asked for with its last request."""
    notice = request("NOTIFY", "Event: refer", f"Subscription-State: {state}", cseq=cseq, tag="%F")
    return b"u" + notice.replace(b"Call-ID: fuzz", b"Call-ID: %I").replace(
        b"Content-Length: 0\r\n\r\n",
        f"{SIPFRAG}\r\nContent-Length: {len(status)}\r\n\r\n{status}".encode(),
    )


def _refer(cseq: int, *extra: str) -> bytes:
    return b"u" + request("REFER", "Refer-To: <sip:other@192.0.2.8>", *extra, cseq=cseq, tag="%T")


def _replacing(*tags: str) -> bytes:
    known = f"Replaces: fuzz;to-tag={tags[0]};from-tag={tags[1]}"
    invite = request("INVITE", known, branch="new", body=OFFER)
    return b"u" + invite.replace(b"Call-ID: fuzz", b"Call-ID: new")


GRANTED = "Contact: <sip:agent@192.0.2.1:5060>;expires=60"
ACK = b"u" + request("ACK", tag="%T", branch="a")

REINVITE = b"u" + request("INVITE", tag="%T", cseq=2, body=HELD)

SEEDS = (
    sequence(
        INVITE, "r", "a", ACK, "3", REINVITE, "y", b"u" + request("ACK", tag="%T", cseq=2), "h"
    ),
    sequence(INVITE, "r", b"u" + request("CANCEL", branch="INVITE1"), "1", "4"),
    sequence(INVITE, INVITE, "a", "4", "4", b"u" + request("BYE", tag="%T", cseq=2)),
    sequence(INVITE, "a", ACK, "c", b"u" + response(491), "3", _ok(), "5", "5"),
    sequence("p", b"u" + response(180), _ok("Session-Expires: 90;refresher=uac"), "c", _ok(), "5"),
    sequence(INVITE, "a", ACK, "c", "5", "n"),
    sequence("p", _ok("Session-Expires: 90;refresher=uac"), "5"),
    sequence("p", b"u" + response(401, CHALLENGE), b"u" + response(486), "4"),
    sequence(
        "p", b"u" + response(183, body=OFFER), "h", "3", b"u" + response(487, method="INVITE"), "4"
    ),
    sequence("p", b"u" + response(422, "Min-SE: 3600"), _ok(), _ok(), "h", _ok(body="")),
    sequence("g", _ok(GRANTED, body=""), "5", _ok("Expires: 5", body=""), "3", "s", _ok(body="")),
    sequence("g", b"u" + response(401, CHALLENGE), b"u" + response(423, "Min-Expires: 900"), "4"),
    sequence(
        "g", _ok(body=""), "5", b"u" + response(503, "Retry-After: 9 (x);duration=1"), "4", "f"
    ),
    sequence(b"t" + COMPACT, b"t" + request("OPTIONS"), b"u" + request("REFER"), "f", "j"),
    sequence(RELIABLE, "r", PRACK, "e", PRACK.replace(b"CSeq: 2", b"CSeq: 3"), "a", ACK, "h"),
    sequence(RELIABLE, "e", "a", "2", PRACK, ACK, "h"),
    sequence(RELIABLE, "e", "3", "4"),
    sequence(
        *(RELIABLE, "e", PRACK, b"u" + request("UPDATE", cseq=3, tag="%T", body=HELD), "y", "d"),
        *(_ok(), "a", "h"),
    ),
    sequence("p", _rel(7), _rel(8, body=OFFER), _rel(8), "d", _ok(), _ok(body=""), "h"),
    sequence("p", _ok("Session-Expires: 90;refresher=uac", ALLOWS), "5", _ok(ALLOWS, body=""), "5"),
    sequence(INVITE, "a", ACK, _refer(2), "y", "v", "w", "h"),
    sequence(INVITE, "a", ACK, _refer(2, "Refer-Sub: false"), _refer(3), "n", "h"),
    sequence(INVITE, "a", ACK, _refer(2), "y", "4", "5"),
    sequence(
        *("p", _ok(), "x", b"u" + response(202), _notify(1, "SIP/2.0 100 Trying"), "h"),
        _notify(2, "SIP/2.0 200 OK", "terminated;reason=noresource"),
    ),
    sequence("p", _ok(), "x", b"u" + response(202, "Refer-Sub: false"), "x", b"u" + response(603)),
    sequence("p", _ok(), "x", b"u" + response(202), "5", "k", b"u" + response(481)),
    sequence(INVITE, "a", ACK, _replacing("%T", "theirs"), "a", "4"),
    sequence(
        *(INVITE, "r"),
        b"u" + request("INFO", "Content-Type: application/dtmf-relay", cseq=2, tag="%T", body="x"),
        *("a", "k", "f"),
    ),
)

INVITE = request("INVITE", body=OFFER)

TARGETS = {
    "sip_agent": Target(
        run_sip_agent,
        "Whatever comes, in whatever order, the agent raises nothing, sends few and good messages,"
        " and has forgotten everything a while after the last hang-up.",
        SEEDS,
        (
            *SIP_WORDS,
            *(b";tag=%T", b";branch=%B", b";tag=%F", b": %I", b": %N %M"),
            *(b"\r\nRequire: 100rel\r\nRSeq: 1", b"\r\nRAck: %Q 1 INVITE", b"\r\nReplaces: "),
            *(b"\r\nRefer-To: <sip:", b"\r\nEvent: refer", b"\r\nSubscription-State: terminated"),
            *(b"UPDATE ", b"PRACK ", b"REFER ", b"NOTIFY ", b"INFO ", b"SIP/2.0 200 OK"),
            *(SEPARATOR + step for step in (b"u", b"t", b"r", b"a", b"h", b"c", b"y", b"p", b"3")),
            *(SEPARATOR + step for step in (b"e", b"d", b"k", b"x", b"v", b"w")),
        ),
        max_bytes=6000,
        stepwise=True,
        hard=(
            sequence(
                *[b"u" + INVITE] * 3, *[b"u" + request("INVITE", branch=f"b{n}") for n in range(9)]
            ),
            sequence(
                b"u" + request("ACK"), b"u" + request("CANCEL"), b"u" + request("BYE", tag="x")
            ),
            sequence(
                b"u" + INVITE.replace(b"Content-Length: ", b"Content-Length: 9"), b"u" + INVITE
            ),
            sequence(
                b"u" + request("INVITE", "Record-Route: <sip:p>", body=OFFER), "a", "h", "4", "h"
            ),
            sequence(b"u" + INVITE.replace(b"<sip:them@192.0.2.9:5060>", b"<sips:x>"), "r", "a"),
            sequence("p", "p", "p", "p", "p", "f", "h", "1"),
            sequence("g", "s", "4"),
            sequence("g", "4", "s", "s"),
            sequence("p", *[b"u" + response(200, body=OFFER)] * 4, "c", "c", "h", "5"),
            sequence("p", b"u" + response(302), b"u" + response(200)),
        ),
    )
}
