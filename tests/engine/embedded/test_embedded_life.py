"""Starting, closing and being without: the embedded engine's processes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import qwen3tts_engine
from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_engine.embedded.engine import EmbeddedEngine, EmbeddedSettings, default_workers
from qwen3tts_wire.errors import BadText, EngineUnavailable, UnknownVoice
from tests.engine.waiting import until


@pytest.fixture
async def engine() -> AsyncIterator[EmbeddedEngine]:
    made = EmbeddedEngine(EmbeddedSettings(workers=2))
    await made.start()
    yield made
    await made.close()


async def said(engine: EmbeddedEngine, text: str) -> list[str]:
    chunks = [chunk async for chunk in engine.synthesize(SynthesisRequest(text))]
    return [word.text for chunk in chunks for word in chunk.words]


async def test_a_missing_package_is_told_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EngineUnavailable, match="espeakng-loader") as caught:
        await EmbeddedEngine().start()
    assert "pip install 'mr_qwen3tts[embedded]'" in str(caught.value)


async def test_a_missing_library_is_told_with_its_remedy(tmp_path: Path) -> None:
    engine = EmbeddedEngine(EmbeddedSettings(library=tmp_path / "libespeak-ng.so"))
    with pytest.raises(EngineUnavailable, match=r"libespeak-ng\.so is missing") as caught:
        await engine.start()
    assert "mr_qwen3tts[embedded]" in caught.value.remedy


async def test_a_library_that_is_none_is_told_with_what_the_loader_said(tmp_path: Path) -> None:
    library = tmp_path / "libespeak-ng.so"
    library.write_bytes(b"not a library")
    engine = EmbeddedEngine(EmbeddedSettings(library=library))
    with pytest.raises(EngineUnavailable, match=r"cannot start: .*libespeak-ng\.so") as caught:
        await engine.start()
    assert caught.value.remedy
    assert engine.pids == []


async def test_data_that_is_none_is_told(tmp_path: Path) -> None:
    engine = EmbeddedEngine(EmbeddedSettings(data=tmp_path))
    with pytest.raises(EngineUnavailable, match="holds no eSpeak NG data"):
        await engine.start()


async def test_a_default_voice_that_does_not_exist_is_told_and_leaves_nothing() -> None:
    engine = EmbeddedEngine(EmbeddedSettings(voice="en-us+nobody"))
    with pytest.raises(UnknownVoice, match="nobody"):
        await engine.start()
    assert engine.pids == []


@pytest.mark.parametrize("field", ["max_chars", "attempts", "stall_s", "start_s"])
def test_settings_that_make_no_sense_are_refused(field: str) -> None:
    values: dict[str, Any] = {field: 0}
    with pytest.raises(ValueError, match=field):
        EmbeddedSettings(**values)
    with pytest.raises(ValueError, match="workers=-1"):
        EmbeddedSettings(workers=-1)


def test_there_are_two_to_four_workers() -> None:
    assert 2 <= default_workers() <= 4


def children() -> set[int]:
    """This process's children."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == os.getpid():
            found.add(int(path.parent.name))
    return found


async def test_a_close_leaves_no_process_and_no_file_open() -> None:
    engine = EmbeddedEngine(EmbeddedSettings(workers=2))
    await engine.start()
    await engine.close()
    processes, files = children(), len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        await engine.start()
        assert len(engine.pids) == 2
        assert await said(engine, "fine") == ["fine"]
        await engine.close()
        assert engine.pids == []
    assert children() == processes
    assert len(os.listdir("/proc/self/fd")) == files


async def test_what_is_said_is_in_no_log(
    engine: EmbeddedEngine, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        await said(engine, "Xylophones are confidential.")
        with pytest.raises(BadText):
            await said(engine, "Xylophones \x00")
        os.kill(engine.pids[0], signal.SIGKILL)
        await until(lambda: engine.replaced_workers == 1)
        await said(engine, "Xylophones again.")
    assert "ylophone" not in caplog.text


PARENT = """
import asyncio, sys
from qwen3tts_engine.embedded.engine import EmbeddedEngine, EmbeddedSettings

async def main():
    engine = EmbeddedEngine(EmbeddedSettings(workers=2))
    await engine.start()
    print(*engine.pids, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def alive(pid: int) -> bool:
    """Whether the process runs; one that ended and waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent(how: signal.Signals) -> None:
    roots = [str(Path(qwen3tts_engine.__file__).parents[1])]
    roots += [path for path in sys.path if Path(path).name == "codecs"]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(roots)},
    )
    with parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(map(alive, pids))
        parent.send_signal(how)
        parent.wait(10)
    asyncio.run(until(lambda: not any(map(alive, pids))))
