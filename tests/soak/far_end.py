"""The far end of the calls of a day, in a process of its own: it takes and makes calls as told.

Whom it is called as says what it does: ``busy`` refuses, ``vanish`` answers and is gone. Lines of
JSON on its standard input make it call; it answers with a line for each.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, cast

from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone.errors import CallError
from qwen3tts_phone.sdp.session import SdpSession
from qwen3tts_phone.sip import (
    ReinviteReceived,
    SipCall,
    SipEndpoint,
    SipSettings,
    Timers,
)
from qwen3tts_phone.sip.call.state import ReferReceived
from qwen3tts_server.run import running_server
from tests.peers.kamailio_runner import Datagram, relay_before
from tests.peers.sipp_runner import free_port

TALKS_S = 0.3
"""How long a call lasts that the far end itself ends."""
REFUSALS = {"busy": 486, "declined": 603, "missing": 404, "codec": 488}
QUICK = Timers(t1=0.1, t2=0.4, t4=0.5)


class Echo(asyncio.DatagramProtocol):
    """Sends back what it hears, from a port of its own."""

    def __init__(self) -> None:
        self.port = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)
        self.port = transport.get_extra_info("sockname")[1]

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._transport.sendto(data, addr)

    def close(self) -> None:
        """Be silent from now on."""
        self._transport.close()


@contextlib.asynccontextmanager
async def echo() -> AsyncIterator[Echo]:
    """An echo while the block runs."""
    loop = asyncio.get_running_loop()
    _, protocol = await loop.create_datagram_endpoint(Echo, local_addr=("127.0.0.1", 0))
    try:
        yield protocol
    finally:
        protocol.close()


class FarEnd:
    """Takes calls as it is called, and makes calls as it is told."""

    def __init__(self, endpoint: SipEndpoint, port: int) -> None:
        self.endpoint = endpoint
        self.port = port
        self.cut: set[bytes] = set()
        """Call-IDs of which nothing reaches it any more."""

    def loses(self, data: Datagram) -> bool:
        """Whether the network to us is cut for that message."""
        return b" sip:silent@" in data.partition(b"\r\n")[0] or any(
            call_id in data for call_id in self.cut
        )

    async def take_all(self) -> None:
        """Take calls, until cancelled."""
        async with asyncio.TaskGroup() as group:
            async for call in self.endpoint.incoming:
                group.create_task(self._take(call))

    async def _take(self, call: SipCall) -> None:
        what = call.dialled_uri.partition(":")[2].partition("@")[0]
        with going_on(what), contextlib.suppress(CallError):
            async with echo() as ears:
                await self._as_called(what, call, ears)

    async def _as_called(self, what: str, call: SipCall, ears: Echo) -> None:
        ours = SdpSession("127.0.0.1", ears.port)
        assert call.offer is not None
        answer = ours.answer(call.offer)[0]
        if what in REFUSALS:
            call.ringing()
            await call.reject(REFUSALS[what])
            return
        call.ringing(answer if what.startswith("early") else None)
        if what in ("ring", "early"):
            await call.wait_ended()
            return
        if what in ("away", "earlybusy"):
            await asyncio.sleep(TALKS_S)
            await call.reject(480 if what == "away" else 486)
            return
        await call.answer(answer)
        # With the ACK, which may come late.
        await call.answered()
        following = asyncio.create_task(_follow(call, ours))
        try:
            await self._talk(what, call, ours, ears)
        finally:
            following.cancel()

    async def _talk(self, what: str, call: SipCall, ours: SdpSession, ears: Echo) -> None:
        try:
            await asyncio.sleep(TALKS_S)
            if what == "hangup":
                await call.bye()
            elif what == "vanish":
                self.vanish(call, ears)
            elif what == "hold":
                await call.hold(ours)
                await call.resume(ours)
            elif what == "moves":
                async with echo() as other:
                    await self._move(call, ours, other)
                    await call.wait_ended()
                return
            elif what == "sends_on":
                transfer = await call.refer(f"sip:answer@127.0.0.1:{self.port}")
                await transfer.done()
                await call.bye()
        except CallError as error:
            print(f"far end: {what}: {error}", file=sys.stderr)
        await call.wait_ended()

    async def _move(self, call: SipCall, ours: SdpSession, other: Echo) -> None:
        """Media comes from and goes to another port from now on."""
        moved = ours.offer().replace(f"m=audio {ours.port} ", f"m=audio {other.port} ")
        await call.reinvite(moved)

    def vanish(self, call: SipCall, ears: Echo) -> None:
        """Be gone, as a machine that is switched off."""
        self.cut.add(call.call_id.encode())
        ears.close()

    async def call(self, to: str, how: str) -> str:
        """Call somebody; what came of it."""
        async with echo() as ears:
            ours = SdpSession("127.0.0.1", ears.port)
            call = await self.endpoint.place(to, ours.offer(), headers={"X-Do": how})
            if how in ("ring", "cancel_at_once"):
                await asyncio.sleep(TALKS_S if how == "ring" else 0.0)
                await call.cancel()
                return "cancelled"
            try:
                answer = await call.answered()
            except CallError as error:
                return f"refused: {getattr(error, 'status', error.code)}"
            assert answer is not None
            ours.accept(answer)
            follow = asyncio.create_task(_follow(call, ours))
            try:
                await self._in_call(how, call, ours, ears)
            finally:
                follow.cancel()
            return "ended"

    async def _in_call(self, how: str, call: SipCall, ours: SdpSession, ears: Echo) -> None:
        await asyncio.sleep(TALKS_S)
        if how == "vanish":
            self.vanish(call, ears)
            return
        if how == "keys":
            for digit in "12#":
                await call.send_dtmf_info(digit)
        if how == "hold":
            await call.hold(ours)
            await call.resume(ours)
        if how == "hold_and_end":
            await call.hold(ours)
        if how == "stays":
            await call.wait_ended()
        else:
            await call.bye()


async def _follow(call: SipCall, ours: SdpSession) -> None:
    """Answer what the other side changes or asks for."""
    async for event in call.events:
        if isinstance(event, ReinviteReceived) and event.offer is not None:
            event.respond(ours.answer(event.offer)[0])
        elif isinstance(event, ReferReceived):
            event.accept()
            event.notify(100, "Trying")
            event.notify(200, "OK")


async def lines(on_line: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    """Each line of the standard input, until it is closed."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with asyncio.TaskGroup() as group:
        while line := await reader.readline():
            group.create_task(_answered(on_line, json.loads(line)))


async def _answered(on_line: Callable[[dict[str, Any]], Awaitable[None]], line: Any) -> None:
    with going_on(str(line)):
        await on_line(line)


@contextlib.contextmanager
def going_on(what: str) -> Iterator[None]:
    """One call that breaks must not end the others."""
    try:
        yield
    except Exception:
        print(f"far end: {what}", file=sys.stderr)
        traceback.print_exc()


async def main() -> None:
    """Run until the standard input is closed."""
    inner = free_port()
    async with (
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as speech,
        relay_before(inner) as relay,
    ):
        settings = SipSettings(
            port=inner, advertised_port=relay.port, max_calls=100_000, timers=QUICK, user="far"
        )
        async with SipEndpoint(settings) as endpoint:
            far_end = FarEnd(endpoint, relay.port)
            relay.loses = far_end.loses
            taking = asyncio.create_task(far_end.take_all())

            async def on_line(line: dict[str, Any]) -> None:
                try:
                    result = await far_end.call(line["to"], line["how"])
                except (CallError, OSError) as error:
                    result = f"failed: {type(error).__name__}"
                print(json.dumps({"id": line["id"], "result": result}), flush=True)

            print(json.dumps({"port": relay.port, "speech": speech.url}), flush=True)
            await lines(on_line)
            taking.cancel()


if __name__ == "__main__":
    asyncio.run(main())
