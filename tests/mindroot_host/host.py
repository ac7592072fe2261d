"""A real MindRoot as a process of its own.

    host = Host.install(folder, {"MR_QWEN3TTS_URL": url})
    async with host.visit() as admin:
        call = await admin.call("json")
        await call.speak("Good morning.")
        await call.finished()
        playout = await call.silence()

Nothing is started inside a test's event loop, so that one host serves many tests.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.mindroot_host.call import ENDS_WITHIN_S, HostFailed, Visit, ok, post
from tests.mindroot_host.install import CHECKOUT, MINDROOT, PYTHON

HERE = Path(__file__).resolve().parent
PLUGINS = HERE / "plugins"
BOOTS_WITHIN_S = 90
"""It takes 2 to 6 s; a machine with other work takes longer."""
USER, PASSWORD = "admin", "a password of the tests"
COMMANDS = ["speak", "hangup", "send_dtmf", "nothing"]
MODEL = {"stream_chat": {"provider": "scripted_model", "model": "script"}}
HASTE = {"MR_QWEN3TTS_SPEED": "2"}
"""Calls are in real time; so the agents of the tests speak fast."""
XML = {"MR_XML_STREAMING": "1"}
VOICES = ["en-us+f2", "en-us+f4", "en-us+m3", "en-us+m4"]
"""Agents with a voice of their own, for calls that say the same at the same time: what the engine
was asked for is told apart by it."""


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
                post(client, "/plugin-manager/scan-directory", {"directory": str(CHECKOUT)})
                post(client, "/plugin-manager/install-local-plugin", {"plugin": "mr_qwen3tts"})
                post(client, "/plugin-manager/scan-directory", {"directory": str(PLUGINS)})
                for name in ("scripted_model", "recording_sip"):
                    post(client, "/plugin-manager/toggle-plugin", {"plugin": name, "enabled": True})
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
        ok(client.post("/personas/local", data={"persona": json.dumps(persona)}))

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
        ok(client.post("/agents/local", data={"agent": json.dumps(agent)}))

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
