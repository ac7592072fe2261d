"""What people do at a host: a browser's visit, its calls, and what happens on the telephone."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

from tests.mindroot_host.playout import Event, Playout, played

if TYPE_CHECKING:
    from tests.mindroot_host.host import Host

ENDS_WITHIN_S = 60
"""The longest that a turn of the tests may take."""
_turns = itertools.count()


class HostFailed(AssertionError):
    """The host did not start, or a route of it failed; with the end of its log."""


class Visit:
    """What one browser does."""

    def __init__(self, host: Host, client: httpx.AsyncClient) -> None:
        self.host = host
        self.client = client
        self._calls: list[Call] = []

    async def call(self, agent: str = "json", *, watched: bool = True) -> Call:
        """A new session with an agent; ``watched``: its page is open, as events are only sent (and
        the host only yields between its awaits) while somebody looks."""
        log_id = ok(await self.client.get(f"/makesession/{agent}"))["log_id"]
        call = Call(self, log_id, agent)
        self._calls.append(call)
        if watched:
            await call.watch()
        return call

    async def close(self) -> None:
        await asyncio.gather(*(call.close() for call in self._calls))


@dataclass
class Stopped:
    """When something was asked of the host, and when it was done, on the clock of its process."""

    asked: float
    done: float


class Call:
    """One session, which for a telephony plugin is one call."""

    def __init__(self, visit: Visit, log_id: str, agent: str) -> None:
        self.log_id = log_id
        self.visit = visit
        self.xml = agent.startswith("xml")
        self.client = visit.client
        self.host = visit.host
        self.events: list[tuple[str, Any]] = []
        """What the browser was told: the event's name and its data."""
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._seen = 0

    async def watch(self) -> None:
        """Read the events of the session from now on."""
        listening = asyncio.Event()
        self._task = asyncio.create_task(self._watch(listening))
        await asyncio.wait(
            [self._task, asyncio.create_task(listening.wait())],
            timeout=30,
            return_when=asyncio.FIRST_COMPLETED,
        )

    async def _watch(self, listening: asyncio.Event) -> None:
        name = ""
        async with self.client.stream(
            "GET", f"/chat/{self.log_id}/events", timeout=httpx.Timeout(30, read=None)
        ) as answer:
            listening.set()
            async for line in answer.aiter_lines():
                if line.startswith("event:"):
                    name = line.removeprefix("event:").strip()
                elif line.startswith("data:"):
                    data = line.removeprefix("data:").strip()
                    self.events.append((name, json.loads(data) if data else None))
                    self._changed.set()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def say(self, *replies: Mapping[str, Any]) -> str:
        """The user writes, and the model answers with ``replies``; returns the task's id."""
        script = json.dumps({"turn": str(next(_turns)), "replies": replies})
        self._seen = len(self.events)
        parts = [{"type": "text", "text": script}]
        answer = ok(await self.client.post(f"/chat/{self.log_id}/send", json=parts))
        return str(answer["task_id"])

    async def speak(self, *sentences: str, **reply: Any) -> str:
        """The model says each of the sentences, in the agent's mode."""
        if self.xml:
            return await self.say(xml("<nothing/>".join(sentences), **reply))
        return await self.say(speaking(*sentences, **reply))

    async def told(self, name: str, **fields: Any) -> Any:
        """Wait for an event of this turn with these fields; returns its data."""
        async with asyncio.timeout(ENDS_WITHIN_S):
            while True:
                self._changed.clear()
                for event, data in self.events[self._seen :]:
                    if event == name and all(
                        data.get(key) == value for key, value in fields.items()
                    ):
                        return data
                await self._changed.wait()

    async def finished(self) -> None:
        """Wait until the host's turn is over."""
        await self.told("finished_chat")

    async def command(self, name: str, **args: Any) -> Any:
        """Run a command in the session, by the host's own route for that."""
        body = {"command": name, "args": args}
        return ok(await self.client.post(f"/cmd/{self.log_id}", json=body))

    async def stop(self, task_id: str) -> None:
        """The stop button of the page."""
        ok(await self.client.post(f"/chat/{self.log_id}/{task_id}/cancel"))

    # --- the telephone

    async def phone(self, what: str) -> Stopped:
        """Something happens to the call; see `recording_sip`."""
        answer = await self.client.post(f"/recording_sip/line/{self.log_id}/{what}")
        return Stopped(**ok(answer))

    async def record(self) -> list[Event]:
        """All that the telephony plugin was given, and when."""
        line = ok(await self.client.get(f"/recording_sip/line/{self.log_id}"))
        return [(at, what, value) for at, what, value in line["events"]]

    async def take_record(self) -> list[Event]:
        """The record so far; the telephony plugin forgets it."""
        line = ok(await self.client.delete(f"/recording_sip/line/{self.log_id}"))
        return [(at, what, value) for at, what, value in line["events"]]

    async def playout(self) -> Playout:
        """What the caller has heard so far, or will of what is handed over."""
        return played(await self.record())

    async def model(self) -> list[dict[str, Any]]:
        """When the model was asked and wrote its tokens."""
        calls: list[dict[str, Any]] = ok(
            await self.client.get(f"/scripted_model/calls/{self.log_id}")
        )
        return calls

    async def now(self) -> float:
        """The time of the host's process."""
        return (await self.phone("nothing")).done

    async def mix_up_with(self, other: Call) -> None:
        """The host gives this call's commands the other's context, as it does by mistake."""
        ok(await self.client.post(f"/recording_sip/mix_up/{self.log_id}/{other.log_id}"))

    async def frames(self, count: int) -> Playout:
        """Wait until so many frames are handed over in all."""
        async with asyncio.timeout(ENDS_WITHIN_S):
            while True:
                playout = await self.playout()
                if len(playout.frames) + playout.thrown_away >= count:
                    return playout
                await asyncio.sleep(0.02)

    async def silence(self, seconds: float = 0.5, after: float = 0.0) -> Playout:
        """Wait until no frame has come for so long; what was heard in all, ``after`` a moment."""
        async with asyncio.timeout(ENDS_WITHIN_S):
            while True:
                line = ok(await self.client.get(f"/recording_sip/line/{self.log_id}"))
                chunks = [at for at, what, _ in line["events"] if what == "chunk"]
                last = max(chunks, default=0.0)
                if line["now"] - last >= seconds:
                    return played([tuple(each) for each in line["events"] if each[0] > after])
                await asyncio.sleep(min(0.1, seconds / 4))


def speaking(*sentences: str, **reply: Any) -> dict[str, Any]:
    """A reply in JSON mode: one ``speak`` for each sentence."""
    return commands(*({"speak": {"text": each}} for each in sentences), **reply)


def commands(*each: Mapping[str, Any], **reply: Any) -> dict[str, Any]:
    """A reply in JSON mode with any commands."""
    return {"text": json.dumps(list(each)), **reply}


def xml(text: str, **reply: Any) -> dict[str, Any]:
    """A reply in XML mode."""
    return {"text": text, **reply}


def chunk_times(events: Sequence[Event]) -> list[float]:
    """When chunks were handed over."""
    return [at for at, what, _ in events if what == "chunk"]


def times(events: Sequence[Event], name: str) -> list[float]:
    """When this happened."""
    return [at for at, what, _ in events if what == name]


def post(client: httpx.Client, path: str, body: Mapping[str, Any]) -> Any:
    answer = ok(client.post(path, json=body))
    if not answer.get("success"):
        raise HostFailed(f"{path}: {answer.get('message')}")
    return answer


def ok(answer: httpx.Response) -> Any:
    if answer.status_code != 200:
        raise HostFailed(f"{answer.request.url}: {answer.status_code} {answer.text[-2000:]}")
    return answer.json()
