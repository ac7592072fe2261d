"""`answer` in service: calls of several callers, and SIGTERM that lets them end."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from qwen3tts_cli.calls import answering
from qwen3tts_cli.calls.call_run import CallPlan
from qwen3tts_cli.calls.phone import Telephone
from qwen3tts_cli.calls.text import TextSource
from qwen3tts_cli.options.speech import SpeechOptions
from qwen3tts_phone.errors import CallRefused
from qwen3tts_phone.phone import Phone, PhoneSettings
from qwen3tts_phone.settings.file import config_from
from qwen3tts_phone.sip import AccountEvent
from qwen3tts_server.run import running_server
from qwen3tts_settings.entries import from_yaml
from qwen3tts_speech.link import SpeechLink
from tests.cli.sip_server import Registrar
from tests.engine.fake_engine import FakeEngine

pytestmark = pytest.mark.network

LONG = TextSource(text="Good morning. " * 200)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> asyncio.Queue[str]:
    """What is told to people."""
    lines: asyncio.Queue[str] = asyncio.Queue()
    monkeypatch.setattr(answering, "note", lines.put_nowait)
    return lines


async def line(told: asyncio.Queue[str], pattern: str) -> str:
    """The first line that fits, and what its group holds."""
    while True:
        if found := re.search(pattern, await told.get()):
            return found[found.re.groups]


@asynccontextmanager
async def attending(
    words: TextSource, told: asyncio.Queue[str], drain_s: float
) -> AsyncIterator[tuple[asyncio.Task[None], asyncio.Event, Phone, str]]:
    """A answering, what stops it, a phone to call it with, and its address."""
    link = SpeechLink("ws://127.0.0.1:9/v1/speech")
    telephone = Telephone(
        "127.0.0.1", 0, None, "NONE", None, None, None, SpeechOptions(voice="tone")
    )
    async with asyncio.timeout(60), running_server(FakeEngine()) as server:
        async with (
            Phone(telephone.settings(server.url)) as desk,
            Phone(PhoneSettings(), link=link) as caller,
        ):
            stop = asyncio.Event()
            people = answering.AnswerService([desk], words, CallPlan())
            task = asyncio.create_task(people.all(stop, drain_s))
            yield task, stop, caller, desk.uri
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await link.close()


async def test_a_drain_lets_calls_under_way_end_and_takes_no_new_ones(
    told: asyncio.Queue[str],
) -> None:
    async with attending(LONG, told, 60.0) as (task, stop, caller, uri):
        call = await caller.dial(uri)
        await call.answered()
        stop.set()
        assert await line(told, r"(one call) may still run") == "one call"
        late = await caller.dial(uri)
        with pytest.raises(CallRefused) as refused:
            await late.answered()
        assert refused.value.status == 503
        assert not task.done()
        await call.hangup()
        await task


async def test_a_drain_does_not_wait_for_ever(told: asyncio.Queue[str]) -> None:
    async with attending(LONG, told, 0.05) as (task, stop, caller, uri):
        call = await caller.dial(uri)
        await call.answered()
        stop.set()
        await task
        assert "hung up" in await call.ended()


async def test_a_drain_without_calls_is_over_at_once(told: asyncio.Queue[str]) -> None:
    async with attending(LONG, told, 60.0) as (task, stop, _, _):
        stop.set()
        await task


async def test_with_one_call_only_a_stop_before_it_ends_the_wait() -> None:
    stop = asyncio.Event()
    stop.set()
    link = SpeechLink("ws://127.0.0.1:9/v1/speech")
    async with asyncio.timeout(30), Phone(PhoneSettings(), link=link) as phone:
        await answering.AnswerService([phone], LONG, CallPlan()).one(stop)
    await link.close()


def test_the_first_sigterm_is_for_the_drain_and_the_second_ends_it() -> None:
    script = (
        "import asyncio, os, signal\n"
        "from qwen3tts_cli.output.exits import at_first_sigterm, run\n"
        "async def main():\n"
        "    stop = asyncio.Event()\n"
        "    with at_first_sigterm(stop.set):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        await stop.wait()\n"
        "        print('drains')\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        await asyncio.Event().wait()\n"
        "run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (143, "drains\n", "")


async def test_the_command_drains_at_sigterm_and_ends_with_0(tmp_path: object) -> None:
    link = SpeechLink("ws://127.0.0.1:9/v1/speech")
    async with asyncio.timeout(60), running_server(FakeEngine()) as server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "qwen3tts_cli.main", "answer", "--port", "0"),
            *("--server", server.url, "--say", "Good morning. " * 200),
            env={**os.environ, "PYTHONPATH": ":".join(sys.path), "COLUMNS": "200"},
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        uri = ""
        while not uri:
            shown = (await process.stderr.readline()).decode()
            assert shown, "it ended"
            if found := re.search(r"Waiting for calls at (\S+)\.", shown):
                uri = found[1]
        async with Phone(PhoneSettings(), link=link) as caller:
            call = await caller.dial(uri)
            await call.answered()
            process.send_signal(signal.SIGTERM)
            while "No new calls are accepted" not in (
                shown := (await process.stderr.readline()).decode()
            ):
                assert shown, "it ended"
            assert process.returncode is None
            await call.hangup()
            assert await process.wait() == 0
    await link.close()


async def test_accounts_are_told_as_they_stand_and_as_they_change(
    told: asyncio.Queue[str],
) -> None:
    async with Registrar("pbx.test", {"200": "right"}) as registrar:
        text = f"""
listen: {{port: 0}}
accounts:
  - {{name: office, registrar: "sip:127.0.0.1:{registrar.port}", user: "200", password_env: P}}
"""
        config = config_from(from_yaml(text, "phone.yaml"), {"P": "right"})
        options = (None, None, None, "NONE", None, None, None, SpeechOptions(voice="tone"))
        async with asyncio.timeout(60), running_server(FakeEngine()) as server:
            task = asyncio.create_task(
                answering.answer_calls(
                    Telephone(*options, config=config), LONG, CallPlan(), server.url
                )
            )
            at = f"registered at 127.0.0.1:{registrar.port} over UDP"
            assert await line(told, r"The account office: (.*)\.") == at
            assert registrar.registered == ["200"]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    changes = answering.RegistrationPrinter()
    changes(AccountEvent("office", "registration_lost", "office is not registered any more", 0.0))
    assert told.empty() or "registered any more" not in told.get_nowait()
    changes.announced = True
    changes(AccountEvent("office", "registration_lost", "office is not registered any more", 0.0))
    assert await line(told, "(registered any more)")
