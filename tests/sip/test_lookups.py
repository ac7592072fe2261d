"""Names of strangers: slow ones keep neither the event loop's threads nor our own names waiting."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from qwen3tts_phone.errors import CalleeUnreachable
from qwen3tts_phone.sip.endpoint import SipEndpoint
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.settings import DnsSettings
from qwen3tts_phone.sip.transport.dns import THREADS, ResolverThreads
from qwen3tts_phone.sip.transport.locator import MAX_ASKED, MAX_KEPT, Locator
from tests.sip.name_server import Domains


class Names:
    """The system's resolver: names that begin with "slow" wait until they are let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.asked: Counter[str] = Counter()

    def look_up(self, name: str, *args: object, **kwargs: object) -> list[object]:
        self.asked[name] += 1
        if name.startswith("slow"):
            self.let_go.wait(30)
        return [(0, 0, 0, "", ("10.0.0.7", 0))]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    made = Names()
    monkeypatch.setattr(socket, "getaddrinfo", made.look_up)
    yield made
    made.let_go.set()


def hop(name: str) -> Hop:
    return Hop("udp", name, 5060)


def asking(locator: Locator, *named: str) -> list[asyncio.Task[tuple[Hop, ...]]]:
    return [asyncio.ensure_future(locator.locate(hop(each), theirs=True)) for each in named]


async def begun() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_slow_names_of_strangers_hold_up_no_other_thread_and_no_name_of_ours(
    names: Names,
) -> None:
    locator = Locator(lambda: 0.0, DnsSettings(srv=False))
    waiting = asking(locator, *(f"slow{number}.example" for number in range(20)))
    await begun()
    assert await asyncio.to_thread(lambda: "free") == "free"
    assert (await locator.locate(hop("registrar.example")))[0].host == "10.0.0.7"
    assert sum(names.asked[f"slow{number}.example"] for number in range(20)) <= THREADS
    names.let_go.set()
    assert {each[0].host for each in await asyncio.gather(*waiting)} == {"10.0.0.7"}
    locator.close()


async def test_any_number_of_slow_names_of_strangers_leaves_room_for_ours(names: Names) -> None:
    locator = Locator(lambda: 0.0, DnsSettings(srv=False))
    waiting = asking(locator, *(f"slow{number}.example" for number in range(MAX_ASKED + 20)))
    await begun()
    assert (await locator.locate(hop("registrar.example")))[0].host == "10.0.0.7"
    names.let_go.set()
    refused = await asyncio.gather(*waiting, return_exceptions=True)
    assert sum(isinstance(each, OSError) for each in refused) >= 20
    locator.close()


async def test_names_of_strangers_displace_no_answer_of_ours(names: Names) -> None:
    now = [0.0]
    locator = Locator(lambda: now[0], DnsSettings(srv=False))
    await locator.locate(hop("registrar.example"))
    for number in range(MAX_KEPT + 1):
        await locator.locate(hop(f"n{number}.example"), theirs=True)
    assert locator.known(hop("registrar.example")) is not None
    assert locator.known(hop("n0.example")) is None
    locator.close()


async def test_who_asks_for_the_same_name_waits_for_the_same_look_up(names: Names) -> None:
    locator = Locator(lambda: 0.0, DnsSettings(srv=False))
    waiting = asking(locator, *["slow.example"] * 30)
    await begun()
    waiting[0].cancel()
    await begun()
    names.let_go.set()
    found = await asyncio.gather(*waiting[1:])
    assert {each[0].host for each in found} == {"10.0.0.7"}
    assert names.asked == {"slow.example": 1}
    locator.close()


async def test_a_name_that_takes_too_long_is_an_error_and_is_not_asked_for_twice(
    names: Names,
) -> None:
    locator = Locator(lambda: 0.0, DnsSettings(srv=False, timeout_s=0.01))
    for _ in range(3):
        with pytest.raises(OSError, match="no answer within"):
            await locator.locate(hop("slow.example"), theirs=True)
    assert names.asked["slow.example"] <= 1
    locator.close()


async def test_more_names_than_may_wait_are_refused() -> None:
    let_go = threading.Event()
    threads = ResolverThreads(threads=1, waiting=2)
    waiting = [
        asyncio.ensure_future(threads.run(number, lambda: let_go.wait(30), 30))
        for number in range(3)
    ]
    await begun()
    with pytest.raises(OSError, match="3 names are being looked up"):
        await threads.run("one more", lambda: None, 30)
    let_go.set()
    assert await asyncio.gather(*waiting) == [True] * 3
    assert await threads.run("one more", lambda: "again", 30) == "again"
    threads.close()


async def test_what_has_not_begun_when_its_asker_is_gone_is_left_out() -> None:
    let_go = threading.Event()
    began: list[int] = []
    threads = ResolverThreads(threads=1)
    first = asyncio.ensure_future(threads.run(0, lambda: let_go.wait(30), 30))
    late = asyncio.ensure_future(threads.run(1, lambda: began.append(1), 30))
    await begun()
    late.cancel()
    await begun()
    let_go.set()
    await first
    assert await threads.run(2, lambda: "next", 30) == "next"
    assert not began
    threads.close()


async def test_a_name_longer_than_any_asks_nothing(names: Names) -> None:
    with pytest.raises(OSError, match="too long"):
        await Locator(lambda: 0.0, DnsSettings(srv=False)).locate(hop("a." * 200))
    assert not names.asked


async def test_questions_to_the_dns_are_shared_as_well() -> None:
    class Slow(Domains):
        async def addresses(self, name: str, families: tuple[int, ...]):  # type: ignore[no-untyped-def]
            await gate.wait()
            return await Domains.addresses(self, name, families)  # type: ignore[arg-type]

    gate = asyncio.Event()
    domains = Slow(hosts={"pbx.example": ("10.0.0.7",)})
    locator = Locator(lambda: 0.0, DnsSettings(srv=False), records=domains)
    waiting = asking(locator, "pbx.example", "PBX.example", "pbx.example")
    await begun()
    gate.set()
    await asyncio.gather(*waiting)
    assert sum(domains.asked.values()) == 1


@pytest.mark.network
@pytest.mark.parametrize("theirs", [False, True])
async def test_a_name_from_a_far_end_is_looked_up_apart_from_names_of_ours(
    theirs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    async def locate(
        self: Locator, hop: Hop, transports: Sequence[str] = (), *, theirs: bool = False
    ) -> tuple[Hop, ...]:
        asked.append(theirs)
        raise OSError("no such name")

    monkeypatch.setattr(Locator, "locate", locate)
    async with SipEndpoint() as endpoint:
        with pytest.raises(CalleeUnreachable):
            await endpoint.media_host("sip:x@phone.example", theirs=theirs)
        with pytest.raises(CalleeUnreachable):
            await endpoint.place("sip:x@phone.example", "v=0", theirs=theirs)
    assert asked == [theirs, theirs]
