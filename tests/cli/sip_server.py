"""A registrar on 127.0.0.1 that asks for a password: REGISTER and nothing else."""

from __future__ import annotations

import asyncio
import hashlib
import re
from types import TracebackType


class Registrar(asyncio.DatagramProtocol):
    """Challenges each REGISTER (RFC 7616, MD5) and takes those of ``users``."""

    def __init__(self, realm: str, users: dict[str, str]) -> None:
        self.realm = realm
        self.users = users
        self.port = 0
        self.registered: list[str] = []
        """Users in the order in which they registered; those that unregister are not in it."""
        self._transport: asyncio.DatagramTransport

    async def __aenter__(self) -> Registrar:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(
            lambda: self, local_addr=("127.0.0.1", 0)
        )
        self.port = self._transport.get_extra_info("sockname")[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._transport.close()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        text = data.decode()
        if not text.startswith("REGISTER "):
            return
        fields = {
            name.lower(): value
            for line in text.split("\r\n\r\n")[0].split("\r\n")[1:]
            for name, _, value in [line.partition(": ")]
        }
        user = self._user_of(fields.get("authorization", ""))
        if user is None:
            status = f'401 Unauthorized\r\nWWW-Authenticate: Digest realm="{self.realm}", nonce="n"'
        else:
            gone = "expires=0" in fields["contact"] or fields.get("expires") == "0"
            if not gone and user not in self.registered:
                self.registered.append(user)
            status = f"200 OK\r\nContact: {fields['contact']}\r\nExpires: 300"
        copied = "".join(
            f"{name}: {fields[name.lower()]}\r\n"
            for name in ("Via", "From", "To", "Call-ID", "CSeq")
        )
        copied = re.sub(r"^(To: [^\r]*)", r"\1;tag=t", copied, flags=re.M)
        answer = f"SIP/2.0 {status}\r\n{copied}Content-Length: 0\r\n\r\n"
        self._transport.sendto(answer.encode(), addr)

    def _user_of(self, authorization: str) -> str | None:
        """The user whose password the answer to the challenge was made with."""
        given = dict(re.findall(r'(\w+)="([^"]*)"', authorization))
        user = given.get("username", "")
        if user not in self.users:
            return None
        first = _md5(f"{user}:{self.realm}:{self.users[user]}")
        second = _md5(f"REGISTER:{given['uri']}")
        return user if given["response"] == _md5(f"{first}:{given['nonce']}:{second}") else None


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
