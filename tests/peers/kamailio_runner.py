"""A real Kamailio as registrar and proxy, and a relay before it that loses what a test says."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.peers.sipp_runner import free_port

CONFIG = Path(__file__).parent / "kamailio.cfg"
REALM = "test.example"
PASSWORDS = {"alice": "wonderland", "bob": "builder"}
TLS = """\
loadmodule "tls.so"
modparam("tls", "tls_method", "TLSv1.2+")
modparam("tls", "certificate", "{certificate}")
modparam("tls", "private_key", "{key}")
"""
PING = (
    "OPTIONS sip:127.0.0.1:{port} SIP/2.0\r\nVia: SIP/2.0/UDP {ours};branch=z9hG4bK{number};rport"
    "\r\nFrom: <sip:ready@127.0.0.1>;tag=1\r\nTo: <sip:127.0.0.1:{port}>\r\nCall-ID: {number}\r\n"
    "CSeq: 1 OPTIONS\r\nMax-Forwards: 5\r\nContent-Length: 0\r\n\r\n"
)
Datagram = bytes
Address = tuple[str, int]


@dataclass
class Kamailio:
    """One running Kamailio on 127.0.0.1."""

    process: asyncio.subprocess.Process
    port: int
    """UDP and TCP."""
    tls_port: int
    """0 without TLS."""
    folder: Path

    @property
    def registrar(self) -> str:
        """What an account has as its registrar."""
        return f"sip:127.0.0.1:{self.port}"

    def log(self) -> str:
        """What it said, shortened."""
        return (self.folder / "kamailio.log").read_text("utf-8", "replace")[-4000:]

    async def registered(self, user: str, within_s: float = 10.0) -> None:
        """Wait until somebody is registered."""
        for _ in range(int(within_s / 0.02)):
            if f"registered: {user}\n" in self.log():
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"{user} did not register\n{self.log()}")

    async def kill(self) -> None:
        """End it at once, as a machine that is switched off: nobody is told."""
        if self.process.returncode is None:
            # Its workers are in a session of their own; all of them have to go.
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()


@asynccontextmanager
async def kamailio(
    folder: Path,
    *,
    port: int = 0,
    advertised: int = 0,
    others: Iterable[int] = (),
    passwords: Mapping[str, str] = PASSWORDS,
    min_expires: int = 1,
    max_expires: int = 60,
    nonce_s: int = 300,
    challenges_inside: bool = False,
    tls: tuple[Path, Path] | None = None,
) -> AsyncIterator[Kamailio]:
    """Run a Kamailio until the block ends; the block is entered when it answers.

    Args:
        port: 0 = any free one.
        advertised: the port that it writes into Via and Record-Route, such as a relay's.
        others: ports of other servers of the same domain.
        min_expires: registrations for a shorter time are refused with 423.
        max_expires: what longer ones are shortened to.
        nonce_s: seconds after which a nonce is stale.
        challenges_inside: whether requests inside a call are asked for a password, too.
        tls: certificate and key; then it listens for TLS at a port of its own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    tls_port = free_port() if tls is not None else 0
    shown = f" advertise 127.0.0.1:{advertised}" if advertised else ""
    listen = [f"listen=udp:127.0.0.1:{port}{shown}", f"listen=tcp:127.0.0.1:{port}"]
    listen += [f"alias=udp:127.0.0.1:{each}" for each in (advertised, *others) if each]
    if tls is not None:
        listen += ["enable_tls=yes", f"listen=tls:127.0.0.1:{tls_port}"]
    filled = {
        "LISTEN": "\n".join(listen),
        "TLS": TLS.format(certificate=tls[0], key=tls[1]) if tls is not None else "",
        "MIN_EXPIRES": str(min_expires),
        "MAX_EXPIRES": str(max_expires),
        "NONCE_S": str(nonce_s),
        "REALM": REALM,
        "CHALLENGES_INSIDE": "1==1" if challenges_inside else "1==0",
        "PASSWORDS": "\n".join(
            f'    $sht(passwords=>{user}) = "{password}";' for user, password in passwords.items()
        ),
    }
    text = re.sub(r"@([A-Z_]+)@", lambda name: filled.get(name[1], name[0]), CONFIG.read_text())
    (folder / "kamailio.cfg").write_text(text)
    program = shutil.which("kamailio", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program is not None
    with (folder / "kamailio.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(program, "-DD", "-E", "-m", "16", "-M", "4"),
            *("-f", str(folder / "kamailio.cfg"), "-Y", str(folder), "-w", str(folder)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    running = Kamailio(process, port, tls_port, folder)
    try:
        await _answers(running)
        yield running
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                async with asyncio.timeout(5):
                    await process.wait()
            except TimeoutError:
                await running.kill()


async def _answers(running: Kamailio) -> None:
    """Wait until it answers an OPTIONS."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.setblocking(False)
        probe.bind(("127.0.0.1", 0))
        ours = f"127.0.0.1:{probe.getsockname()[1]}"
        for number in range(100):
            assert running.process.returncode is None, running.log()
            ping = PING.format(port=running.port, ours=ours, number=number)
            with contextlib.suppress(OSError, TimeoutError):
                await loop.sock_sendto(probe, ping.encode(), ("127.0.0.1", running.port))
                async with asyncio.timeout(0.2):
                    if (await loop.sock_recv(probe, 65536)).startswith(b"SIP/2.0 200"):
                        return
    raise AssertionError(f"kamailio did not start\n{running.log()}")


@dataclass
class Relay:
    """A UDP relay between many clients and one server that loses what ``loses`` says.

    The server sees each client at a port of the relay's own.
    """

    loses: Callable[[Datagram], bool] = lambda data: False
    changes: Callable[[Datagram], Datagram] = lambda data: data
    """What becomes of the clients' messages."""
    seen: list[str] = field(default_factory=list)
    """What passed or was lost, both ways: ``INVITE``, ``200 INVITE``."""
    lost: list[str] = field(default_factory=list)
    """What was lost of it."""
    port: int = 0

    def __post_init__(self) -> None:
        self._server: Address = ("127.0.0.1", 0)
        self._front: asyncio.DatagramTransport
        self._backs: dict[Address, asyncio.DatagramTransport] = {}
        self._opening: dict[Address, list[Datagram]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, port: int, server: Address) -> None:
        """Take datagrams at ``port`` for ``server``."""
        self._server = server
        loop = asyncio.get_running_loop()
        self._front, _ = await loop.create_datagram_endpoint(
            lambda: _Side(self._from_client), local_addr=("127.0.0.1", port)
        )
        self.port = self._front.get_extra_info("sockname")[1]

    def close(self) -> None:
        """Stop."""
        for task in self._tasks:
            task.cancel()
        self._front.close()
        for back in self._backs.values():
            back.close()

    def _passes(self, data: Datagram) -> bool:
        what = kind_of(data)
        self.seen.append(what)
        if self.loses(data):
            self.lost.append(what)
            return False
        return True

    def _from_client(self, data: Datagram, client: Address) -> None:
        if not self._passes(data):
            return
        data = self.changes(data)
        back = self._backs.get(client)
        if back is not None:
            back.sendto(data)
            return
        waiting = self._opening.setdefault(client, [])
        waiting.append(data)
        if len(waiting) == 1:
            task = asyncio.get_running_loop().create_task(self._open(client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _open(self, client: Address) -> None:
        def answer(data: Datagram, _: Address) -> None:
            if self._passes(data):
                self._front.sendto(data, client)

        loop = asyncio.get_running_loop()
        back, _ = await loop.create_datagram_endpoint(
            lambda: _Side(answer), local_addr=("127.0.0.1", 0), remote_addr=self._server
        )
        self._backs[client] = back
        for data in self._opening.pop(client):
            back.sendto(data)


class _Side(asyncio.DatagramProtocol):
    def __init__(self, received: Callable[[Datagram, Address], None]) -> None:
        self._received = received

    def datagram_received(self, data: bytes, addr: Address) -> None:
        self._received(data, addr)


@asynccontextmanager
async def two_kamailios(folder: Path, **options: Any) -> AsyncIterator[tuple[Kamailio, Kamailio]]:
    """Two servers of one domain; each knows its own registrations only."""
    ports = free_port(), free_port()
    async with (
        kamailio(folder / "1", port=ports[0], others=ports, **options) as first,
        kamailio(folder / "2", port=ports[1], others=ports, **options) as second,
    ):
        yield first, second


@asynccontextmanager
async def kamailio_behind_relay(
    folder: Path, **options: Any
) -> AsyncIterator[tuple[Kamailio, Relay]]:
    """A Kamailio that is known to everybody by the address of a relay before it (UDP)."""
    port = free_port()
    async with (
        relay_before(port) as relay,
        kamailio(folder, port=port, advertised=relay.port, **options) as server,
    ):
        yield server, relay


@asynccontextmanager
async def relay_before(server_port: int, port: int = 0) -> AsyncIterator[Relay]:
    """A relay to ``server_port`` of 127.0.0.1 while the block runs."""
    relay = Relay()
    await relay.start(port, ("127.0.0.1", server_port))
    try:
        yield relay
    finally:
        relay.close()


def first_of_each(*kinds: str) -> Callable[[Datagram], bool]:
    """Loses the first message of each kind: ``BYE``, or ``200 BYE`` for the answer to one."""
    left = list(kinds)

    def loses(data: Datagram) -> bool:
        what = kind_of(data)
        if what in left:
            left.remove(what)
            return True
        return False

    return loses


def every_other() -> Callable[[Datagram], bool]:
    """Loses each message when it is sent for the first time, and lets its repetition through."""
    seen: set[tuple[str, bytes]] = set()

    def loses(data: Datagram) -> bool:
        branch = re.search(rb"(?i)\r\n(?:Via|v)\s*:[^\r]*;branch=([^;,\s]+)", data)
        key = (kind_of(data), branch[1] if branch else b"")
        if key in seen:
            return False
        seen.add(key)
        return True

    return loses


def kind_of(data: Datagram) -> str:
    """``INVITE``, or ``200 INVITE``."""
    words = data.split(b"\r\n", 1)[0].split(b" ")
    if words[0] != b"SIP/2.0":
        return words[0].decode("ascii", "replace")
    method = re.search(rb"(?i)\r\nCSeq\s*:\s*\d+\s+(\w+)", data)
    return f"{words[1].decode()} {method[1].decode() if method else ''}"
