"""A real MindRoot as a process of its own, and what its users and its telephone do with it.

    host = Host.install(folder, {"MR_QWEN3TTS_URL": url})
    async with host.visit() as admin:
        call = await admin.call("json")
        await call.say(speaking("Good morning."))
        playout = await call.finished()

Nothing is started inside a test's event loop, so that one host serves many tests.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.mindroot_host.install import CHECKOUT, MINDROOT, PYTHON
from tests.mindroot_host.playout import Event, Playout, played

HERE = Path(__file__).resolve().parent
PLUGINS = HERE / "plugins"
BOOTS_WITHIN_S = 90
"""It takes 2 to 6 s; a machine with other work takes longer."""
ENDS_WITHIN_S = 60
"""The longest that a turn of the tests may take."""
USER, PASSWORD = "admin", "a password of the tests"
COMMANDS = ["speak", "hangup", "send_dtmf", "nothing"]
MODEL = {"stream_chat": {"provider": "scripted_model", "model": "script"}}
HASTE = {"MR_QWEN3TTS_SPEED": "2"}
"""Calls are in real time; so the agents of the tests speak fast."""
XML = {"MR_XML_STREAMING": "1"}
VOICES = ["en-us+f2", "en-us+f4", "en-us+m3", "en-us+m4"]
"""Agents with a voice of their own, for calls that say the same at the same time: what the engine
was asked for is told apart by it."""
_turns = itertools.count()


class HostFailed(AssertionError):
    """The host did not start, or a route of it failed; with the end of its log."""


class Host:
    """One MindRoot in a folder of its own, on a free port of 127.0.0.1."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.log = folder / "host.log"
        self.port = 0
        self.pid = 0
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._cookies: httpx.Cookies | None = None

    @classmethod
    def install(cls, folder: Path, environment: Mapping[str, str]) -> Host:
        """A new host with the plugins, installed by its own routes, restarted as they ask for."""
        host = cls(folder, environment)
        host.start()
        try:
            with host._client() as client:
                _post(client, "/plugin-manager/scan-directory", {"directory": str(CHECKOUT)})
                _post(client, "/plugin-manager/install-local-plugin", {"plugin": "mr_qwen3tts"})
                _post(client, "/plugin-manager/scan-directory", {"directory": str(PLUGINS)})
                for name in ("scripted_model", "recording_sip"):
                    _post(
                        client, "/plugin-manager/toggle-plugin", {"plugin": name, "enabled": True}
                    )
                host.persona(client, "clerk")
                host.agent(client, "json", env=HASTE)
                host.agent(client, "xml", env=HASTE | XML)
                for voice in VOICES:
                    host.persona(client, voice, voice_id=voice)
                    host.agent(client, f"json {voice}", persona=voice, env=HASTE)
                    host.agent(client, f"xml {voice}", persona=voice, env=HASTE | XML)
        except BaseException:
            host.stop()
            raise
        host.stop()
        host.start()
        host.check_plugins()
        return host

    def check_plugins(self) -> None:
        """Raises what the host says of plugins that it could not load."""
        boot = self.log.read_text(errors="replace").rpartition("inside of pre_load")[2]
        failed = boot.partition("Failed to load the following plugins:")[2]
        if failed:
            raise HostFailed(failed[:6000])

    def copy(self, folder: Path, environment: Mapping[str, str]) -> Host:
        """Another host with the same plugins and agents, started."""
        shutil.copytree(self.folder, folder, ignore=shutil.ignore_patterns("*.log", "port"))
        host = Host(folder, environment)
        host.start()
        host.check_plugins()
        return host

    def start(self) -> None:
        """Boot, and wait until it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        port_file = self.folder / "port"
        port_file.unlink(missing_ok=True)
        environment = {
            "PATH": f"{MINDROOT / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            # What the plugin needs is there: nothing is fetched while tests run. (pip takes this
            # one as the value of build_isolation: 0 is what --no-build-isolation says.)
            "PIP_NO_BUILD_ISOLATION": "0",
            "PIP_NO_INDEX": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PYTHONUNBUFFERED": "1",
            "MR_HANG_WATCHDOG_LOG": str(self.folder / "hangs.log"),
            **self._environment,
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(PYTHON), str(HERE / "launch.py"), str(port_file), "-u", USER, "-pw", PASSWORD],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until = time.monotonic() + BOOTS_WITHIN_S
        while time.monotonic() < until:
            if self._process.poll() is not None:
                break
            if port_file.exists():
                self.port, self.pid = map(int, port_file.read_text().split())
                try:
                    if httpx.get(f"{self.url}/healthz", timeout=5).status_code == 200:
                        self._sign_in()
                        return
                except httpx.HTTPError:
                    pass
            time.sleep(0.05)
        self.stop()
        raise HostFailed(f"the host did not start:\n{self.log_end()}")

    def stop(self) -> None:
        """End it; killed where it does not go."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def log_end(self, characters: int = 6000) -> str:
        """The end of what it wrote, for a failure."""
        return self.log.read_text(errors="replace")[-characters:]

    def _sign_in(self) -> None:
        with httpx.Client(base_url=self.url, timeout=30) as client:
            answer = client.post("/login", data={"username": USER, "password": PASSWORD})
            if answer.status_code != 303 or "access_token" not in answer.cookies:
                raise HostFailed(f"no sign-in: {answer.status_code}\n{self.log_end()}")
            self._cookies = answer.cookies

    def _client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, cookies=self._cookies, timeout=120)

    # --- what an administrator sets up

    def persona(self, client: httpx.Client, name: str, **more: Any) -> None:
        """A persona; ``voice_id`` is what its editor has for the voice."""
        persona = {"name": name, "description": "", "instructions": "", **more}
        _ok(client.post("/personas/local", data={"persona": json.dumps(persona)}))

    def agent(
        self, client: httpx.Client, name: str, *, persona: str = "clerk", **more: Any
    ) -> None:
        """An agent that talks as the script in the user's message says."""
        agent = {
            "name": name,
            "persona": persona,
            "instructions": "Say what you are told to.",
            "flags": [],
            "commands": COMMANDS,
            "env": {},
            "service_models": MODEL,
            **more,
        }
        _ok(client.post("/agents/local", data={"agent": json.dumps(agent)}))

    def add_agent(self, name: str, *, voice_id: str | None = None, **more: Any) -> None:
        """An agent with a persona of its own."""
        with self._client() as client:
            voice = {} if voice_id is None else {"voice_id": voice_id}
            self.persona(client, name, **voice)
            self.agent(client, name, persona=name, **{"env": HASTE, **more})

    @asynccontextmanager
    async def visit(self, *, signed_in: bool = True) -> AsyncIterator[Visit]:
        """A browser at this host."""
        cookies = self._cookies if signed_in else None
        async with httpx.AsyncClient(
            base_url=self.url, cookies=cookies, timeout=httpx.Timeout(30, read=ENDS_WITHIN_S)
        ) as client:
            visit = Visit(self, client)
            try:
                yield visit
            finally:
                await visit.close()


class Visit:
    """What one browser does."""

    def __init__(self, host: Host, client: httpx.AsyncClient) -> None:
        self.host = host
        self.client = client
        self._calls: list[Call] = []

    async def call(self, agent: str = "json", *, watched: bool = True) -> Call:
        """A new session with an agent; ``watched``: its page is open, as events are only sent (and
        the host only yields between its awaits) while somebody looks."""
        log_id = _ok(await self.client.get(f"/makesession/{agent}"))["log_id"]
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
        answer = _ok(await self.client.post(f"/chat/{self.log_id}/send", json=parts))
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
        return _ok(await self.client.post(f"/cmd/{self.log_id}", json=body))

    async def stop(self, task_id: str) -> None:
        """The stop button of the page."""
        _ok(await self.client.post(f"/chat/{self.log_id}/{task_id}/cancel"))

    # --- the telephone

    async def phone(self, what: str) -> Stopped:
        """Something happens to the call; see `recording_sip`."""
        answer = await self.client.post(f"/recording_sip/line/{self.log_id}/{what}")
        return Stopped(**_ok(answer))

    async def record(self) -> list[Event]:
        """All that the telephony plugin was given, and when."""
        line = _ok(await self.client.get(f"/recording_sip/line/{self.log_id}"))
        return [(at, what, value) for at, what, value in line["events"]]

    async def take_record(self) -> list[Event]:
        """The record so far; the telephony plugin forgets it."""
        line = _ok(await self.client.delete(f"/recording_sip/line/{self.log_id}"))
        return [(at, what, value) for at, what, value in line["events"]]

    async def playout(self) -> Playout:
        """What the caller has heard so far, or will of what is handed over."""
        return played(await self.record())

    async def model(self) -> list[dict[str, Any]]:
        """When the model was asked and wrote its tokens."""
        calls: list[dict[str, Any]] = _ok(
            await self.client.get(f"/scripted_model/calls/{self.log_id}")
        )
        return calls

    async def now(self) -> float:
        """The time of the host's process."""
        return (await self.phone("nothing")).done

    async def mix_up_with(self, other: Call) -> None:
        """The host gives this call's commands the other's context, as it does by mistake."""
        _ok(await self.client.post(f"/recording_sip/mix_up/{self.log_id}/{other.log_id}"))

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
                line = _ok(await self.client.get(f"/recording_sip/line/{self.log_id}"))
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


def _post(client: httpx.Client, path: str, body: Mapping[str, Any]) -> Any:
    answer = _ok(client.post(path, json=body))
    if not answer.get("success"):
        raise HostFailed(f"{path}: {answer.get('message')}")
    return answer


def _ok(answer: httpx.Response) -> Any:
    if answer.status_code != 200:
        raise HostFailed(f"{answer.request.url}: {answer.status_code} {answer.text[-2000:]}")
    return answer.json()
