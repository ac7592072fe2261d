"""Two replicas on a real Ray of this machine: load, a death, a scale-down, and a shared store."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import itertools
import re
from collections.abc import Collection, Iterator
from pathlib import Path

import httpx
import pytest

from qwen3tts_wire.client import Context, Resume, SpeechClient
from qwen3tts_wire.errors import ServerBusy
from qwen3tts_wire.events import Audio, Done, Event, Resumed
from tests.conftest import leave_out, require_package
from tests.server.scale.cluster import Cluster, running_cluster, until
from tests.server.voices.world import wav

pytestmark = [
    pytest.mark.network,
    # Ray's own; what a test warns of is checked in all others.
    pytest.mark.filterwarnings("ignore"),
]

TEXT = "One two three, four five six seven. Eight nine ten eleven twelve! " * 4
WORDS = re.findall(r"\w+", TEXT)
PATIENT = Resume(within_s=60.0, first_wait_s=0.02, max_wait_s=0.2)
WINDOW_MS = 200.0
"""So little is under way that a context whose events are not taken stands still."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # Ray reads its environment when it is imported: not before the cluster has set it.
    if importlib.util.find_spec("ray") is None:
        leave_out("the Python package ray is not installed (pip install 'ray[serve]')")
    require_package("espeakng_loader", "pip install espeakng-loader")
    with running_cluster(tmp_path_factory.mktemp("r")) as running:
        running.deploy(2)
        yield running


class Call:
    """A client, and what it says."""

    def __init__(self, client: SpeechClient, context: Context) -> None:
        self.client = client
        self.context = context
        self.events: list[Event] = []

    @classmethod
    async def begun(
        cls, url: str, resume: Resume | None = PATIENT, voice: str | None = None
    ) -> Call:
        """One of which some sound has come, and that stands still."""
        client = await SpeechClient.connect(url, open_timeout=30, resume=resume)
        context = await client.open(voice=voice, window_ms=WINDOW_MS)
        await context.append(TEXT)
        await context.end()
        call = cls(client, context)
        while context.received < 24_000:
            call.events.append(await anext(context))
        return call

    async def finish(self) -> None:
        """Read to the end."""
        async for event in self.context:
            self.events.append(event)

    @property
    def resumptions(self) -> list[Resumed]:
        return [each for each in self.events if isinstance(each, Resumed)]

    def check(self) -> int:
        """All of the text was said, once; returns its length in samples."""
        done = self.events[-1]
        assert isinstance(done, Done)
        position = 0
        for event in self.events:
            if isinstance(event, Audio):
                assert event.offset == position
                position += len(event.pcm) // 2
        assert done.samples == position == self.context.received
        words = self.context.words
        assert [re.sub(r"\W", "", each.text) for each in words] == WORDS
        assert all(one.end <= two.start for one, two in itertools.pairwise(words))
        assert self.context.heard(position).text_remaining == ""
        return position


async def calls(
    url: str, count: int, resume: Resume | None = PATIENT, voice: str | None = None
) -> list[Call]:
    """One after the other: Ray brings each to the replica with less to do, and knows which."""
    return [await Call.begun(url, resume, voice) for _ in range(count)]


async def two(cluster: Cluster, but: Collection[int] = ()) -> list[int]:
    """Wait until two replicas run, and connections are brought to both."""
    running = await cluster.until_running(2, but)
    client = await SpeechClient.connect(cluster.url, open_timeout=30)
    async with client, httpx.AsyncClient(base_url=cluster.http) as http, asyncio.timeout(60):
        counts: set[int] = set()
        while not {0, 1} <= counts:
            counts.add((await http.get("/health")).json()["connections"])
    return running


async def finished(under_way: list[Call]) -> None:
    await asyncio.gather(*(each.finish() for each in under_way))
    await asyncio.gather(*(each.client.close() for each in under_way))


async def test_load_is_spread_over_both_replicas_and_all_protocols_are_there(
    cluster: Cluster,
) -> None:
    await two(cluster)
    under_way = await calls(cluster.url, 8)
    counts = set()
    async with httpx.AsyncClient(base_url=cluster.http) as http:
        assert (await http.get("/ready")).json() == {"status": "ready"}
        for _ in range(20):
            counts.add((await http.get("/health")).json()["connections"])
        body = {"model": "tts-1", "input": "Hello there.", "voice": "alloy"}
        spoken = await http.post("/v1/audio/speech", json={**body, "response_format": "pcm"})
        assert spoken.status_code == 200
        assert len(spoken.content) > 24_000
    assert counts
    assert min(counts) >= 1
    assert max(counts) < 8
    await finished(under_way)
    for call in under_way:
        call.check()
        assert not call.resumptions


async def test_a_replica_is_killed_in_mid_stream_and_its_calls_go_on_at_the_other(
    cluster: Cluster,
) -> None:
    first, _ = await two(cluster)
    under_way = await calls(cluster.url, 6)
    cluster.kill(first)
    await finished(under_way)
    moved = [call for call in under_way if call.resumptions]
    assert 0 < len(moved) < len(under_way)
    whole = max(call.check() for call in under_way if not call.resumptions)
    for call in moved:
        (resumed,) = call.resumptions
        assert "lost" in resumed.reason
        # As long as one that was not cut, but for less than a word here and there.
        assert abs(call.check() - whole) < 24_000


async def test_scaling_down_cuts_no_call_without_a_word(cluster: Cluster) -> None:
    before = await two(cluster)
    under_way = await calls(cluster.url, 6)
    old_clients = await calls(cluster.url, 6, None)
    cluster.deploy(1)
    await until(lambda: any(call.client._leaving for call in under_way))
    await until(lambda: any(call.client.draining.is_set() for call in old_clients))
    # Those that stand still are not finished when the time is over: they are told, and go on.
    await until(lambda: not any(call.client._leaving for call in under_way))
    await until(lambda: any(call.client.closed for call in old_clients))
    await finished(under_way)
    moved = [call for call in under_way if call.resumptions]
    assert 0 < len(moved) < len(under_way)
    for call in under_way:
        call.check()
    for call in moved:
        assert "The server stopped" in call.resumptions[0].reason
    told = [call for call in old_clients if call.client.draining.is_set()]
    assert 0 < len(told) < len(old_clients)
    for call in old_clients:
        if call in told:
            with pytest.raises(ServerBusy, match="stopped before the end"):
                await call.finish()
            await until(functools.partial(getattr, call.client, "closed"))
            assert "1012" in str(call.client.error)
        else:
            await call.finish()
            call.check()
        await call.client.close()
    (left,) = await cluster.until_running(1)
    assert left in before


async def test_a_voice_brought_to_one_replica_speaks_on_the_other_also_when_that_one_is_dead(
    cluster: Cluster,
) -> None:
    before = cluster.replicas()
    cluster.deploy(2, import_path="tests.server.scale.cluster:application")
    first, _ = await two(cluster, before)
    async with await SpeechClient.connect(cluster.url, open_timeout=30) as client:
        voice = (await client.load_voice(wav(), "Hello.")).voice_id
    under_way = await calls(cluster.url, 4, voice=voice)
    cluster.kill(first)
    await finished(under_way)
    assert 0 < sum(bool(call.resumptions) for call in under_way) < len(under_way)
    for call in under_way:
        call.check()


def test_the_folder_of_ray_is_one_of_the_test(cluster: Cluster) -> None:
    assert any(Path(cluster.folder).glob("session_*"))
