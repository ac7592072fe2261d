"""OPTIONS outside a call (RFC 3261 section 11): whether somebody is there, and how far away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qwen3tts_phone.errors import CalleeUnreachable, CallError
from qwen3tts_phone.sip.account import Account, address_of_record
from qwen3tts_phone.sip.dialog import new_call_id, new_tag
from qwen3tts_phone.sip.fields import check_secure
from qwen3tts_phone.sip.hop import Hop
from qwen3tts_phone.sip.message import Request, Response
from qwen3tts_phone.sip.transaction import Failure
from qwen3tts_phone.sip.via import loose

if TYPE_CHECKING:
    from qwen3tts_phone.sip.agent import Agent
    from qwen3tts_phone.sip.exchange import Exchange


Located = Callable[[Sequence[Hop], OSError | None, float], None]
"""Gets the servers, best first, or why there are none, and the time."""
Locate = Callable[[Located], None]
"""Looks the servers of an account up, at once or later."""
Learn = Callable[[Hop, Response], None]
"""Looks at which address of ours a server saw."""


@dataclass(frozen=True, slots=True)
class OptionsReply:
    """What came back."""

    status: int
    reason: str
    round_trip_s: float
    """From the request, as last sent, to its answer."""
    user_agent: str = ""
    """Server or User-Agent of the answer."""
    server: str = ""
    """Who answered: ``192.0.2.1:5060 over UDP``."""


class Probe:
    """One OPTIONS request; ``done`` is called once, with the answer's status or None."""

    def __init__(
        self,
        agent: Agent,
        account: Account | None,
        hop: Hop,
        done: Callable[[int | None, float], None],
        *,
        target: str = "",
        secret: bool = True,
    ) -> None:
        """``secret``: whether a challenge is answered with the account's password."""
        self.response: Response | None = None
        self.failure: Failure | None = None
        self.cause: CallError | None = None
        self._agent = agent
        self._account = account
        self._hop = hop
        self._done = done
        self._target = target
        self._secret = secret
        self._cseq = 0
        self._exchange: Exchange | None = None

    @property
    def hop(self) -> Hop:
        """Whom it was sent to last."""
        return self._exchange.hop if self._exchange is not None else self._hop

    def start(self, now: float) -> None:
        """Send it."""
        account = self._account
        record = address_of_record(account) if account is not None else self._agent.uri(self._hop)
        target = self._target or (account.registrar if account is not None else record)
        check_secure(target, self._hop.transport)
        request = Request("OPTIONS", target)
        request.add("Max-Forwards", "70")
        if account is not None and account.proxy:
            request.add("Route", f"<{loose(account.proxy)}>")
        request.add("From", f"<{record}>;tag={new_tag()}")
        request.add("To", f"<{target}>")
        request.add("Call-ID", new_call_id())
        request.add("CSeq", f"{self._next_cseq()} OPTIONS")
        user = account.user if account is not None else ""
        request.add("Contact", self._agent.contact(self._hop, user=user))
        request.add("Accept", "application/sdp")
        self._agent.describe(request)
        digest = None
        if account is not None and account.password and self._secret:
            digest = self._agent.digest_for(account)
        self._exchange = self._agent.exchange(
            request, self._hop, self, now, next_cseq=self._next_cseq, digest=digest
        )

    def abandon(self) -> None:
        """Nobody wants the answer any more."""
        if self._exchange is not None:
            self._exchange.abandon()

    def on_provisional(self, response: Response, now: float) -> None:
        """Nothing to do."""

    def on_final(self, response: Response, now: float) -> None:
        """Somebody is there, whatever he says."""
        self.response = response
        self._done(response.status, now)

    def on_failure(self, failure: Failure, now: float) -> None:
        """Nobody is."""
        self.failure = failure
        self.cause = self._exchange.cause if self._exchange is not None else None
        self._done(None, now)

    def round_trip_s(self, now: float) -> float:
        """From the last sending to now."""
        return now - self._exchange.sent_at if self._exchange is not None else 0.0

    def _next_cseq(self) -> int:
        self._cseq += 1
        return self._cseq


async def ask(
    agent: Agent,
    hop: Hop,
    target: str,
    account: Account | None,
    *,
    secret: bool,
    now: Callable[[], float],
    flush: Callable[[], None],
) -> OptionsReply:
    """Send OPTIONS and wait for a final answer; raises CalleeUnreachable or BadCertificate."""
    done: asyncio.Future[OptionsReply] = asyncio.get_running_loop().create_future()

    def answered(status: int | None, now: float) -> None:
        if done.done():
            return
        answer = probe.response
        if answer is None:
            done.set_exception(probe.cause or _no_answer(probe))
            return
        who = answer.get("Server") or answer.get("User-Agent") or ""
        took = probe.round_trip_s(now)
        done.set_result(OptionsReply(answer.status, answer.reason, took, who, probe.hop.at))

    probe = Probe(agent, account, hop, answered, target=target, secret=secret)
    probe.start(now())
    flush()
    try:
        return await done
    finally:
        probe.abandon()


def _no_answer(probe: Probe) -> CalleeUnreachable:
    gone = probe.failure is Failure.UNREACHABLE
    return CalleeUnreachable(
        f"Nothing listens for SIP at {probe.hop.words}."
        if gone
        else f"No answer from {probe.hop.words}.",
        remedy="Check the address, the network and any firewall between.",
        why="refused" if gone else "timeout",
    )
