"""One request of ours until its final answer, sent anew with credentials when it is challenged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from qwen3tts_phone.sip.auth import Digest
from qwen3tts_phone.sip.dialog import new_branch
from qwen3tts_phone.sip.layer import TransactionLayer
from qwen3tts_phone.sip.message import Request, Response
from qwen3tts_phone.sip.session_timer import min_se, session_expires
from qwen3tts_phone.sip.transaction import Failure, Hop, Transaction


class Listener(Protocol):
    """Who wants the answer."""

    def on_provisional(self, response: Response, now: float) -> None:
        """A 1xx."""

    def on_final(self, response: Response, now: float) -> None:
        """A final answer; an INVITE may bring several 2xx, repeated or of a fork."""

    def on_failure(self, failure: Failure, now: float) -> None:
        """There will be no answer."""


class Unheard:
    """A listener for answers that change nothing."""

    def on_provisional(self, response: Response, now: float) -> None:
        """Nothing."""

    def on_response(self, response: Response, now: float) -> None:
        """Nothing."""

    def on_final(self, response: Response, now: float) -> None:
        """Nothing."""

    def on_failure(self, failure: Failure, now: float) -> None:
        """Nothing."""


class Exchange:
    """A request, its retries against challenges, and the answer that counts."""

    def __init__(
        self,
        layer: TransactionLayer,
        request: Request,
        hop: Hop,
        listener: Listener,
        *,
        via: Callable[[Hop], str],
        next_cseq: Callable[[], int],
        digest: Digest | None = None,
        max_retries: int = 3,
    ) -> None:
        self.request = request
        """The request as last sent."""
        self.hop = hop
        self.may_retry = True
        """Cleared when nobody wants it to succeed any more."""
        self.transaction: Transaction | None = None
        self._layer = layer
        self._listener = listener
        self._via = via
        self._next_cseq = next_cseq
        self._digest = digest
        self._retries_left = max_retries
        self._limit: float | None = None
        self._answered: set[tuple[bool, str]] = set()

    def start(self, now: float) -> None:
        """Send the request for the first time."""
        self._send(self.request, now)

    def limit(self, at: float) -> None:
        """Give up at that time if there is no final answer by then (INVITE only)."""
        self._limit = at
        if self.transaction is not None:
            self.transaction.limit(at)

    def abandon(self) -> None:
        """Let it run out unheard; nobody wants its answer any more."""
        self.may_retry = False
        self._listener = Unheard()

    def on_response(self, response: Response, now: float) -> None:
        """From the transaction."""
        if response.status < 200:
            self._listener.on_provisional(response, now)
        elif not self._tried_again(response, now):
            self._listener.on_final(response, now)

    def on_failure(self, failure: Failure, now: float) -> None:
        """From the transaction."""
        self._listener.on_failure(failure, now)

    def _tried_again(self, response: Response, now: float) -> bool:
        if response.status in (401, 407):
            return self._answer_challenge(response, now)
        return response.status == 422 and self._raise_interval(response, now)

    def _answer_challenge(self, response: Response, now: float) -> bool:
        """RFC 3261 section 22.2: once for each realm, again only where the nonce was stale."""
        if self._digest is None or not self.may_retry or self._retries_left <= 0:
            return False
        asked = self._digest.learn(response)
        if not asked:
            return False
        if any(not c.stale and c.space in self._answered for c in asked):
            return False
        self._answered |= {challenge.space for challenge in asked}
        self._again({}, now)
        return True

    def _raise_interval(self, response: Response, now: float) -> bool:
        """RFC 4028 section 7.4: ask again for the interval that the far end can bear."""
        asked, least = session_expires(self.request), min_se(response)
        if not self.may_retry or self._retries_left <= 0 or asked is None or least <= asked[0]:
            return False
        role = f";refresher={asked[1]}" if asked[1] else ""
        self._again({"Session-Expires": f"{least}{role}", "Min-SE": str(least)}, now)
        return True

    def _again(self, changes: dict[str, str], now: float) -> None:
        self._retries_left -= 1
        old = self.request
        request = Request(old.method, old.uri, body=old.body)
        request.take(old, without=("via", "authorization", "proxy-authorization", "cseq"))
        # Section 8.1.3.5: the same Call-ID, From and To, the next CSeq, a new branch.
        request.add("CSeq", f"{self._next_cseq()} {old.method}")
        for name, value in changes.items():
            request.replace(name, value)
        self._send(request, now)

    def _send(self, request: Request, now: float) -> None:
        if self._digest is not None:
            for name, value in self._digest.headers(request.method, request.uri, request.body):
                request.add(name, value)
        # The Via goes first, as on any message.
        sent = Request(request.method, request.uri, body=request.body)
        sent.add("Via", f"{self._via(self.hop)};branch={new_branch()};rport")
        sent.take(request)
        self.request = sent
        self.transaction = self._layer.send(sent, self.hop, self, now)
        if self._limit is not None:
            self.transaction.limit(self._limit)
