"""SIPVicious against our open port: it learns nothing, and nothing breaks."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from qwen3tts_phone.sip import CallState, SipEndpoint, SipSettings
from qwen3tts_phone.sip.core.settings import GateSettings
from qwen3tts_phone.sip.gate import SourceGate
from tests.conftest import require_package
from tests.peers.kamailio_runner import relay_before
from tests.peers.sipp_runner import free_port
from tests.sip.phones import answer_all, good_call

pytestmark = pytest.mark.network

STRANGERS = GateSettings(trusted=(), users=("agent", "+49301234"))
"""Whoever comes from 127.0.0.1 is a stranger, too."""
NAMES = ("100", "101", "agent", "1000", "+49301234", "admin", "200", "9999")
METHODS = ("REGISTER", "OPTIONS", "INVITE")
FEIGNED = (b"friendly-scanner", b"Linphone/5.2.5.0")


@pytest.fixture(scope="module", autouse=True)
def _need_sipvicious() -> None:
    require_package("sipvicious", "pip install sipvicious")


@asynccontextmanager
async def open_port(settings: GateSettings) -> AsyncIterator[tuple[SipEndpoint, SourceGate, int]]:
    """An endpoint that answers whoever gets through; the port of a relay that hides the scanner's
    name, as real ones do. In the end nothing of the scan is left, and a good call works.
    """
    gate = SourceGate(settings, own=lambda host, port: host == "127.0.0.1")
    async with (
        SipEndpoint(SipSettings(), gate=gate) as endpoint,
        relay_before(endpoint.port) as hide,
    ):
        hide.changes = lambda data: data.replace(*FEIGNED)
        answering = asyncio.create_task(answer_all(endpoint, []))
        try:
            yield endpoint, gate, hide.port
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)


async def scanned(tool: str, folder: Path, port: int, *options: str) -> str:
    """What a tool of SIPVicious prints about our port."""
    folder.mkdir(parents=True, exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "ignore", "-m", f"sipvicious.{tool}"),
        *("-b", "127.0.0.1", "-x", "127.0.0.1", "-P", str(free_port()), "-p", str(port)),
        *("-t", "0.02", *options, "127.0.0.1"),
        cwd=folder,
        env={"HOME": str(folder), "PYTHONPATH": ":".join(filter(None, sys.path))},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(40):
            printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return printed.decode("utf-8", "replace")


def words(folder: Path, *names: str) -> str:
    """A dictionary of names or passwords."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "words.txt"
    path.write_text("".join(f"{name}\n" for name in names))
    return str(path)


async def still_good(endpoint: SipEndpoint, gate: SourceGate) -> None:
    """A call of somebody whom we trust still works, and nothing of the scan is kept."""
    gate.trust("caller", ("127.0.0.1",))
    async with SipEndpoint() as caller:
        await good_call(caller, f"sip:agent@127.0.0.1:{endpoint.port}")
    assert all(call.state is CallState.ENDING for call in endpoint.agent.calls)


@pytest.mark.parametrize("method", METHODS)
async def test_a_scanner_that_says_so_finds_nothing_at_all(tmp_path: Path, method: str) -> None:
    async with open_port(STRANGERS) as (endpoint, gate, _):
        found = await scanned("svmap", tmp_path, endpoint.port, "-m", method)
        assert "found nothing" in found
        assert "mr-qwen3tts" not in found
        assert gate.counts["scanner"] >= 1
        await still_good(endpoint, gate)


@pytest.mark.parametrize("method", ["REGISTER", "OPTIONS"])
async def test_no_name_is_learnt_by_a_scanner_that_hides_what_it_is(
    tmp_path: Path, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    dictionary = words(tmp_path, *NAMES)
    with caplog.at_level(logging.ERROR):
        async with open_port(STRANGERS) as (endpoint, gate, hidden):
            options = ("-d", dictionary, "-m", method, "--force")
            found = await scanned("svwar", tmp_path, hidden, *options)
            assert gate.counts["scanner"] == 0
            told = [name for name in NAMES if f"| {name} " in found]
            # All of them, or none: whoever is told all names knows nothing.
            assert told in ([], list(NAMES)), found
            await still_good(endpoint, gate)
    assert not caplog.records


async def test_names_are_asked_for_in_vain_after_the_first_few(tmp_path: Path) -> None:
    dictionary = words(tmp_path, *(str(number) for number in range(100, 160)), "agent")
    async with open_port(STRANGERS) as (endpoint, gate, hidden):
        options = ("-d", dictionary, "-m", "INVITE", "--force", "--maximumtime", "3")
        found = await scanned("svwar", tmp_path, hidden, *options)
        assert "| agent " not in found
        assert gate.counts["user"] <= STRANGERS.ban_after + 1
        assert gate.counts["banned"] > 0
        assert gate.banned("127.0.0.1", endpoint.now())


async def test_there_is_no_password_to_be_guessed(tmp_path: Path) -> None:
    dictionary = words(tmp_path, "secret", "1234", "agent")
    async with open_port(STRANGERS) as (endpoint, gate, hidden):
        found = await scanned("svcrack", tmp_path, hidden, "-u", "agent", "-d", dictionary)
        assert not any(word in found for word in ("| secret", "| 1234", "| agent"))
        await still_good(endpoint, gate)


async def test_a_quiet_port_is_not_found_even_by_who_hides_what_he_is(tmp_path: Path) -> None:
    quiet = GateSettings(trusted=(), quiet=True)
    async with open_port(quiet) as (endpoint, gate, hidden):
        for method in ("OPTIONS", "REGISTER"):
            assert "found nothing" in await scanned("svmap", tmp_path, hidden, "-m", method)
        assert gate.counts["scanner"] == 0
        await still_good(endpoint, gate)
