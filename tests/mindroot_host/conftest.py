"""The real host and a speech server as processes, started once for all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import leave_out
from tests.mindroot_host.host import Host
from tests.mindroot_host.install import STAMP
from tests.mindroot_host.speech_server import Said, SpeechServer, said

Since = Callable[[], list[Said]]


@pytest.fixture(scope="session")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SpeechServer]:
    """A speech server that keeps what it says."""
    server = SpeechServer(tmp_path_factory.mktemp("speech"))
    yield server
    server.kill()


@pytest.fixture(scope="session")
def host(speech: SpeechServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """The host, with the plugin and the newer telephony plugin."""
    if not STAMP.exists():
        leave_out("the environment of the real host is not there (make host)")
    folder = tmp_path_factory.mktemp("host") / "new"
    host = Host.install(folder, {"MR_QWEN3TTS_URL": speech.url, "RECORDING_SIP": "new"})
    yield host
    host.stop()


@pytest.fixture(scope="session")
def another_host(host: Host) -> Iterator[Callable[..., Host]]:
    """Starts further hosts like it, with other environments; stopped with it."""
    started: list[Host] = []

    def start(name: str, **environment: str) -> Host:
        folder = host.folder.parent / name
        started.append(host.copy(folder, environment))
        return started[-1]

    yield start
    for each in started:
        each.stop()


@pytest.fixture
def said_now(speech: SpeechServer) -> Since:
    """What the engine was asked for since the test began."""
    before = len(said(speech.folder))
    return lambda: said(speech.folder, before)


@pytest.fixture(autouse=True)
def host_log(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    """What the hosts wrote during a test stands in the test's report."""
    hosts = [
        request.getfixturevalue(name)
        for name in request.fixturenames
        if name in {"host", "old", "without_sip", "astray"}
    ]
    before: dict[Path, int] = {
        each.log: each.log.stat().st_size for each in hosts if each.log.exists()
    }
    yield
    for log, size in before.items():
        with log.open("rb") as written:
            written.seek(size)
            text = written.read().decode(errors="replace")
        print(f"--- {log}\n{text[-20000:]}")
