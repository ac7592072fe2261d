"""Registrars on the wire of the tests, as many as are wanted."""

from __future__ import annotations

from qwen3tts_phone.sip.message.message import Request, Response, reply
from tests.sip.wire import CHALLENGE, Stranger, Wire


class Registrar(Stranger):
    """Answers REGISTER and OPTIONS as a test tells it."""

    def __init__(self, wire: Wire, host: str = "10.0.0.5", port: int = 5060) -> None:
        super().__init__(wire, host, port)
        self.grants: int | None = None
        """Seconds in the Contact of the answer; None = as asked, in Expires."""
        self.least = 0
        self.challenges = 0
        self.status = 200
        self.silent = False
        self.seen_at: tuple[str, int] | None = None
        """Where it sees requests come from; None = it does not say."""
        self.asked: list[int] = []
        self.times: list[float] = []
        self.contacts: list[list[str]] = []
        """Contact values of each REGISTER."""
        self.options = 0
        self.respond = self._answer

    @property
    def registered(self) -> bool:
        """Whether the last REGISTER that was answered with 200 asked for some time."""
        return bool(self.asked) and self.asked[-1] > 0

    def _answer(self, request: Request) -> list[Response]:
        if self.silent:
            return []
        if request.method == "OPTIONS":
            self.options += 1
            return [self._seen(request, reply(request, self.status, to_tag="x"))]
        if request.method != "REGISTER":
            return []
        asked = int(request.require("Expires"))
        self.asked.append(asked)
        self.times.append(self.wire.now)
        self.contacts.append(request.values("Contact"))
        if self.challenges and request.get("Authorization") is None:
            self.challenges -= 1
            response = reply(request, 401, "Unauthorized", to_tag="x")
            response.add("WWW-Authenticate", CHALLENGE)
        elif asked and asked < self.least:
            response = reply(request, 423, "Interval Too Brief", to_tag="x")
            response.add("Min-Expires", str(self.least))
        elif self.status != 200:
            response = reply(request, self.status, "No", to_tag="x")
            response.add("Retry-After", "7 (back soon);duration=9")
        else:
            response = reply(request, 200, to_tag="x")
            if asked and self.grants is not None:
                response.add("Contact", "<sip:agent@10.0.0.77:5060>;expires=9999")
                response.add("Contact", f"{request.values('Contact')[0]};expires={self.grants}")
                response.add("Expires", "8888")
            else:
                response.add("Expires", str(asked))
        return [self._seen(request, response)]

    def _seen(self, request: Request, response: Response) -> Response:
        if self.seen_at is not None:
            host, port = self.seen_at
            lines = response.headers.getlist("Via")
            lines[0] = lines[0].replace(";rport", f";rport={port}") + f";received={host}"
        return response
