"""Two or more SIP agents on a wire that loses, doubles and reorders, in a time of its own."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from qwen3tts_phone.sip.call.call import Call
from qwen3tts_phone.sip.call.incoming import IncomingCall
from qwen3tts_phone.sip.call.outgoing import OutgoingCall
from qwen3tts_phone.sip.call.state import CallEvent, CallState, Ended, ReinviteReceived
from qwen3tts_phone.sip.core.settings import SipSettings
from qwen3tts_phone.sip.core.ua_core import ALLOW
from qwen3tts_phone.sip.message.message import Request, Response, parse_message, reply
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.transaction.digest import Digest
from qwen3tts_phone.sip.user_agent import UserAgent

DELAY_S = 0.01
CHALLENGE = 'Digest realm="test", nonce="n1", qop="auth"'

OFFER = (
    "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n"
    "m=audio 40000 RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n"
)
ANSWER = OFFER.replace("40000", "50000")


@dataclass
class Carried:
    """A message that was put on the wire."""

    at: float
    source: Hop
    to: Hop
    message: Request | Response
    data: bytes
    delivered: bool

    @property
    def what(self) -> str:
        """``INVITE``, or ``200 INVITE``."""
        if isinstance(self.message, Request):
            return self.message.method
        return f"{self.message.status} {self.message.cseq_method}"


Filter = Callable[[Carried], bool]


@dataclass
class Wire:
    """Carries what agents send; ``drop`` says what is lost."""

    loss: float = 0.0
    doubling: float = 0.0
    jitter_s: float = 0.0
    seed: int = 0
    now: float = 100.0
    drop: Filter = lambda carried: False
    carried: list[Carried] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self._phones: dict[tuple[str, int], Phone] = {}
        self._under_way: list[tuple[float, int, Hop, Hop, bytes]] = []
        self._order = itertools.count()

    def connect(self, phone: Phone) -> None:
        self._phones[phone.host, phone.port] = phone

    def collect(self) -> None:
        """Take what the agents want to send."""
        for phone in list(self._phones.values()):
            while phone.agent.outbox:
                send = phone.agent.outbox.popleft()
                self.put(send.data, phone.hop(send.hop.transport), send.hop)

    def put(self, data: bytes, source: Hop, to: Hop) -> None:
        carried = Carried(self.now, source, to, parse_message(data), data, delivered=True)
        self.carried.append(carried)
        lossy = to.transport == "udp"
        if self.drop(carried) or (lossy and self.random.random() < self.loss):
            carried.delivered = False
            return
        copies = 2 if lossy and self.random.random() < self.doubling else 1
        for _ in range(copies):
            at = self.now + DELAY_S + (self.random.random() * self.jitter_s if lossy else 0.0)
            heapq.heappush(self._under_way, (at, next(self._order), source, to, data))

    def run(self, seconds: float) -> None:
        """Let that much time pass."""
        end = self.now + seconds
        self.collect()
        while True:
            deadlines = [phone.agent.next_deadline() for phone in self._phones.values()]
            nearest = [at for at in deadlines if at is not None]
            nearest += [self._under_way[0][0]] if self._under_way else []
            at = min(nearest, default=end + 1.0)
            if at > end:
                break
            self.now = max(self.now, at)
            while self._under_way and self._under_way[0][0] <= self.now:
                _, _, source, to, data = heapq.heappop(self._under_way)
                phone = self._phones.get((to.host, to.port))
                if phone is not None:
                    phone.agent.receive(data, source, self.now)
                    self.collect()
            for phone in list(self._phones.values()):
                phone.agent.tick(self.now)
            self.collect()
        self.now = end

    def until(self, condition: Callable[[], bool], within_s: float = 120.0) -> None:
        """Let time pass until something is so."""
        end = self.now + within_s
        while not condition():
            assert self.now < end, f"not within {within_s} s; on the wire: {self.story()}"
            self.run(0.01)

    def story(self, kind: type[Request] | type[Response] | None = None) -> list[str]:
        """What was sent, in order."""
        return [c.what for c in self.carried if kind is None or isinstance(c.message, kind)]

    def sent(self, what: str) -> list[Carried]:
        """All that was sent of one kind, e.g. ``INVITE`` or ``200 INVITE``."""
        return [c for c in self.carried if c.what == what]

    def requests(self, method: str) -> list[Request]:
        return [
            c.message
            for c in self.carried
            if isinstance(c.message, Request) and c.message.method == method
        ]


class Phone:
    """An agent at an address, with what happened to it."""

    def __init__(self, wire: Wire, host: str, port: int = 5060, **settings: object) -> None:
        self.wire = wire
        self.host = host
        self.port = port
        self.calls: list[IncomingCall] = []
        self.events: list[CallEvent] = []
        self.answers_with: str | None = ANSWER
        """SDP that incoming calls are answered with; None = they are left alone."""
        self.agent = UserAgent(
            SipSettings(host=host, port=port, **settings),  # type: ignore[arg-type]
            now=lambda: wire.now,
            local=lambda hop: (host, port),
            on_call=self._on_call,
            rng=random.Random(wire.seed),
        )
        wire.connect(self)

    def hop(self, transport: str = "udp") -> Hop:
        return Hop(transport, self.host, self.port, 1 if transport == "tcp" else 0)

    @property
    def uri(self) -> str:
        return f"sip:phone@{self.host}:{self.port}"

    def call(
        self, other: Phone | str, *, digest: Digest | None = None, sdp: str = OFFER
    ) -> OutgoingCall:
        target = other if isinstance(other, str) else other.uri
        call = self.agent.place(target, sdp, self.wire.now, digest=digest)
        call.notify = self.events.append
        return call

    def kinds(self) -> list[str]:
        """Names of the events, in order."""
        return [type(event).__name__ for event in self.events]

    def send(self, message: Request | Response | bytes, to: Phone, transport: str = "udp") -> None:
        """Put something on the wire by hand."""
        self.wire.put(bytes(message), self.hop(transport), to.hop(transport))

    def _on_call(self, call: IncomingCall) -> None:
        self.calls.append(call)
        call.notify = self.events.append
        if self.answers_with is not None:
            call.ring(self.wire.now)
            call.answer(self.answers_with, self.wire.now)


def pair(**wire: object) -> tuple[Wire, Phone, Phone]:
    """A wire with a caller and a callee."""
    joined = Wire(**wire)  # type: ignore[arg-type]
    return joined, Phone(joined, "10.0.0.1"), Phone(joined, "10.0.0.2")


def request(
    method: str,
    to: Phone,
    *,
    source: str = "10.0.0.9",
    branch: str = "z9hG4bKhand",
    call_id: str = "by-hand",
    cseq: int = 1,
    from_tag: str = "theirs",
    to_tag: str = "",
    sdp: str | None = None,
    extra: tuple[tuple[str, str], ...] = (),
    via: str = "",
) -> Request:
    """A request as a stranger would write it."""
    message = Request(method, to.uri)
    message.add("Via", via or f"SIP/2.0/UDP {source}:5060;branch={branch};rport")
    message.add("Max-Forwards", "70")
    message.add("From", f"<sip:stranger@{source}>;tag={from_tag}")
    message.add("To", f"<{to.uri}>" + (f";tag={to_tag}" if to_tag else ""))
    message.add("Call-ID", call_id)
    message.add("CSeq", f"{cseq} {method}")
    message.add("Contact", f"<sip:stranger@{source}:5060>")
    for name, value in extra:
        message.add(name, value)
    message.set_body(sdp)
    return message


class Stranger(Phone):
    """An address whose messages a test writes by hand; what it gets is kept."""

    def __init__(self, wire: Wire, host: str = "10.0.0.9", port: int = 5060) -> None:
        super().__init__(wire, host, port)
        self.got: list[Request | Response] = []
        self.respond: Callable[[Request], list[Response]] = lambda request: []
        self.agent.receive = self._receive  # type: ignore[method-assign]

    def _receive(self, data: bytes, source: Hop, now: float) -> None:
        message = parse_message(data)
        self.got.append(message)
        if isinstance(message, Request):
            for response in self.respond(message):
                self.wire.put(bytes(response), self.hop(source.transport), source)

    def statuses(self) -> list[int]:
        return [message.status for message in self.got if isinstance(message, Response)]


def lose(wire: Wire, *kinds: str) -> None:
    """Lose the first message of each kind."""
    left = list(kinds)

    def drop(carried: Carried) -> bool:
        if carried.what in left:
            left.remove(carried.what)
            return True
        return False

    wire.drop = drop


def up(wire: Wire, caller: Phone, callee: Phone) -> None:
    call = caller.call(callee)
    wire.run(1.0)
    assert call.state is CallState.UP
    assert callee.calls[0].state is CallState.UP


def is_up(call: Call) -> bool:
    """Whether both ends agree on it."""
    return call.state is CallState.UP


def ended(phone: Phone) -> Ended:
    event = phone.events[-1]
    assert isinstance(event, Ended)
    return event


def without_update(phone: Phone) -> None:
    """Let a phone say that it does not know UPDATE, as old ones do."""
    describe = phone.agent.describe

    def described(message: Request | Response, *options: str) -> None:
        describe(message, *options)
        message.replace("Allow", ", ".join(m for m in ALLOW.split(", ") if m != "UPDATE"))

    phone.agent.describe = described  # type: ignore[method-assign]


def accept_changes(phone: Phone, sdp: str = ANSWER) -> None:
    """Answer each re-INVITE immediately."""
    call = phone.calls[0] if phone.calls else next(iter(phone.agent.calls))

    def notify(event: object) -> None:
        phone.events.append(event)  # type: ignore[arg-type]
        if isinstance(event, ReinviteReceived):
            event.respond(sdp)

    call.notify = notify


def stranger_up(wire: Wire, stranger: Stranger, callee: Phone, **fields: object) -> str:
    """A call from a stranger that is up; gives the callee's tag."""
    stranger.send(request("INVITE", callee, sdp=OFFER, **fields), callee)  # type: ignore[arg-type]
    wire.run(0.2)
    okay = stranger.got[-1]
    assert isinstance(okay, Response)
    assert okay.status == 200
    tag = okay.to.tag or ""
    ack = request("ACK", callee, branch="z9hG4bKack", to_tag=tag, cseq=okay.cseq)
    stranger.send(ack, callee)
    wire.run(0.2)
    assert callee.calls[-1].state is CallState.UP
    return tag


def challenging(stranger: Stranger, *challenges: tuple[int, str]) -> None:
    """Challenge the requests in turn, then answer them."""
    left = list(challenges)

    def answer(request: Request) -> list[Response]:
        if request.method == "ACK":
            return []
        if left:
            status, challenge = left.pop(0)
            response = reply(request, status, "Who are you", to_tag="x")
            name = "WWW-Authenticate" if status == 401 else "Proxy-Authenticate"
            response.add(name, challenge)
            return [response]
        response = reply(request, 200, to_tag="x")
        response.add("Contact", "<sip:bob@10.0.0.9:5060>")
        response.set_body(ANSWER if request.method == "INVITE" else None)
        return [response]

    stranger.respond = answer


# Reliable provisional responses (RFC 3262)

RELIABLE = (("Supported", "100rel"),)
EARLY = OFFER.replace("40000", "42000")


def ringing(callee: Phone, sdp: str | None = None, **fields: object) -> None:
    callee.calls[0].ring(callee.wire.now, sdp, **fields)  # type: ignore[arg-type]


def invited(
    stranger: Stranger, callee: Phone, *, sdp: str | None = OFFER, reliable: bool = True
) -> None:
    """A stranger's INVITE without an answer yet."""
    callee.answers_with = None
    extra = RELIABLE if reliable else ()
    stranger.send(request("INVITE", callee, sdp=sdp, extra=extra), callee)
    stranger.wire.run(0.1)


def prack(
    stranger: Stranger,
    callee: Phone,
    response: Response,
    *,
    cseq: int = 2,
    rack: str = "",
    sdp: str | None = None,
) -> None:
    """What a stranger sends to a reliable provisional answer."""
    rack = rack or f"{response.get('RSeq')} {response.cseq} INVITE"
    message = request(
        "PRACK",
        callee,
        branch=f"z9hG4bKp{cseq}",
        cseq=cseq,
        to_tag=response.to.tag or "",
        sdp=sdp,
        extra=(("RAck", rack),),
    )
    stranger.send(message, callee)
    stranger.wire.run(0.1)


def provisional(stranger: Stranger) -> Response:
    """The last answer above 100 and below 200."""
    found = [m for m in stranger.got if isinstance(m, Response) and 100 < m.status < 200]
    return found[-1]


def reliably(
    request: Request, rseq: int, status: int = 183, sdp: str | None = None, tag: str = "x"
) -> Response:
    response = reply(request, status, to_tag=tag)
    response.add("Require", "100rel")
    response.add("RSeq", str(rseq))
    response.add("Contact", "<sip:bob@10.0.0.9:5060>")
    response.set_body(sdp)
    return response
