"""Workers that are lost, in all the ways there are."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_engine.base import SAMPLE_RATE, SynthesisRequest
from qwen3tts_engine.embedded.engine import EmbeddedEngine, EmbeddedSettings
from qwen3tts_wire.errors import EngineFailed, EngineUnavailable
from qwen3tts_wire.heard import Word
from tests.engine.waiting import until

TEXT = (
    "The first part of a long piece of text is said, and while it is said, its worker is lost, "
    "so that another one must say all of it once more, and still the caller hears it only once, "
    "with every word in its place, and nothing twice, and nothing left out at all."
)
"""Long enough that its sound does not fit into a pipe, so that its worker is at it when it dies."""


@pytest.fixture
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[EmbeddedEngine]:
    """Two workers; ``param``: seconds after which one counts as hung."""
    made = EmbeddedEngine(EmbeddedSettings(workers=2, stall_s=getattr(request, "param", 0.5)))
    await made.start()
    yield made
    await made.close()


async def heard(
    engine: EmbeddedEngine, text: str = TEXT, *, meddle: Callable[[int], None] = lambda chunks: None
) -> tuple[NDArray[np.int16], list[Word], list[int]]:
    """All that is said, and where each chunk ends; ``meddle`` gets the number of chunks so far
    and runs before the engine can read on."""
    pcm = bytearray()
    words: list[Word] = []
    edges = []
    async for chunk in engine.synthesize(SynthesisRequest(text)):
        pcm += chunk.pcm
        words += chunk.words
        edges.append(len(pcm) // 2)
        meddle(len(edges))
    return np.frombuffer(bytes(pcm), np.int16), words, edges


def kill_all(engine: EmbeddedEngine, how: signal.Signals = signal.SIGKILL) -> None:
    for pid in engine.pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, how)


def loudness(samples: NDArray[np.int16]) -> NDArray[np.float64]:
    """Levels of 20 ms each."""
    size = SAMPLE_RATE // 50
    blocks = samples[: len(samples) // size * size].reshape(-1, size).astype(np.float64)
    return np.asarray(np.sqrt((blocks**2).mean(axis=1)))


async def all_there(engine: EmbeddedEngine, workers: int) -> None:
    await until(lambda: len(engine.pids) >= workers and engine.idle_workers >= workers)


async def test_a_clause_whose_worker_is_killed_is_heard_once_and_whole(
    engine: EmbeddedEngine,
) -> None:
    usual, usual_words, _ = await heard(engine)
    for at in (1, 2, 7):
        joint: list[int] = []

        def kill(chunks: int, at: int = at, joint: list[int] = joint) -> None:
            if chunks == at:
                kill_all(engine)
                joint.append(chunks)

        before = engine.replaced_workers
        samples, words, edges = await heard(engine, meddle=kill)
        assert engine.replaced_workers > before
        assert [word.text for word in words] == [word.text for word in usual_words]
        assert len(samples) == pytest.approx(len(usual), abs=0.02 * SAMPLE_RATE)
        for word, expected in zip(words, usual_words, strict=True):
            assert word.start == pytest.approx(expected.start, abs=0.02 * SAMPLE_RATE)
        both = min(len(samples), len(usual)) // 480 - 1
        alike = np.corrcoef(loudness(samples)[:both], loudness(usual)[:both])[0, 1]
        assert alike > 0.97
        # No click: no step is larger than the undisturbed voice's own.
        largest = np.abs(np.diff(usual.astype(np.int32))).max()
        steps = np.abs(np.diff(samples.astype(np.int32)))
        assert steps.max() <= 1.15 * largest
        assert edges[joint[0] - 1] < len(samples)


# Thirteen on a busy machine are slow, not hung: a clause may lose two workers, not three.
@pytest.mark.parametrize("engine", [30.0], indirect=True)
async def test_the_others_are_not_disturbed_when_a_worker_is_killed(
    engine: EmbeddedEngine,
) -> None:
    usual = [word.text for word in (await heard(engine))[1]]

    def meddle(chunks: int) -> None:
        if chunks in (3, 30):
            kill_all(engine)

    everyone = await asyncio.gather(
        heard(engine, meddle=meddle), *(heard(engine) for _ in range(12))
    )
    for _, words, _ in everyone:
        assert [word.text for word in words] == usual
    await all_there(engine, 2)


def wait_for_ends(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ChildProcessError):  # another thread of asyncio's took its status
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


async def test_a_dead_worker_whose_end_was_not_read_yet_gets_no_job() -> None:
    engine = EmbeddedEngine(EmbeddedSettings(workers=2, attempts=1))
    await engine.start()
    try:
        kill_all(engine)
        wait_for_ends(engine.pids)  # the event loop has no turn meanwhile
        assert (await heard(engine, "fine"))[1][0].text == "fine"
    finally:
        await engine.close()


async def test_an_idle_worker_that_is_killed_is_replaced(engine: EmbeddedEngine) -> None:
    old = engine.pids
    kill_all(engine)
    assert (await heard(engine, "fine"))[1][0].text == "fine"
    await all_there(engine, 2)
    assert not set(old) & set(engine.pids)
    assert engine.replaced_workers == 2


async def test_a_worker_that_hangs_is_killed_and_its_clause_said_again(
    engine: EmbeddedEngine,
) -> None:
    def hang(chunks: int) -> None:
        if chunks == 2:
            kill_all(engine, signal.SIGSTOP)

    usual, usual_words, _ = await heard(engine)
    async with asyncio.timeout(20):
        samples, words, _ = await heard(engine, meddle=hang)
    assert [word.text for word in words] == [word.text for word in usual_words]
    assert len(samples) == pytest.approx(len(usual), abs=0.02 * SAMPLE_RATE)


async def test_a_stopped_worker_does_not_keep_the_engine_from_closing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qwen3tts_engine.workers.process.END_S", 0.2)
    engine = EmbeddedEngine(EmbeddedSettings(workers=2))
    await engine.start()
    pids = engine.pids
    kill_all(engine, signal.SIGSTOP)
    async with asyncio.timeout(10):
        await engine.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


BAD_WORKER = """
import os, sys, time
from qwen3tts_engine.workers.messages import Decoder, Done, Failed, Ready, Say, Sound, encoded
mode, flag = sys.argv[1:]
def write(message):
    os.write(1, encoded(message))
if mode == "exits at start" or (mode == "starts once" and os.path.exists(flag)):
    sys.exit(3)
if mode == "says nothing at start":
    time.sleep(60)
open(flag, "w").close()
def entry(name, identifier, language, gender=None):
    languages = [language]
    return {"name": name, "identifier": identifier, "languages": languages, "gender": gender}
voices = [entry("English", "gmw/en-US", (2, "en-us"))]
variants = [entry("female3", "f3", (5, "variant"), "female")]
facts = {"version": "0", "sample_rate": 22050, "voices": voices, "variants": variants}
write(Ready(facts))
decoder = Decoder()
while data := os.read(0, 65536):
    for message in decoder.push(data):
        if not isinstance(message, Say):
            continue
        if mode in ("dies", "starts once"):
            write(Sound(message.job, bytes(2646), ((0, 0),)))
            os._exit(7)
        if mode == "refuses":
            write(Failed(message.job, "status 2"))
        if mode == "babbles":
            os.write(1, bytes(range(255)))
        if mode == "answers another":
            write(Done(message.job + 1))
        if mode == "never ends":
            for _ in range(200):
                write(Sound(message.job, bytes(100_000), ((0, 0),)))
"""


@pytest.fixture
def bad_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Makes every worker one that goes wrong in the way named."""

    def use(mode: str) -> None:
        line = [sys.executable, "-P", "-c", BAD_WORKER, mode, str(tmp_path / "flag")]
        monkeypatch.setattr(
            "qwen3tts_engine.embedded.engine.worker_command", lambda library, data: line
        )

    return use


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("dies", "status 7"),
        ("babbles", "no message"),
        ("answers another", "another job"),
        ("never ends", "bytes of sound of one job"),
    ],
)
async def test_a_text_that_every_worker_is_lost_on_fails_with_the_cause(
    bad_worker: Callable[[str], None], mode: str, why: str
) -> None:
    bad_worker(mode)
    engine = EmbeddedEngine(EmbeddedSettings(workers=2))
    await engine.start()
    try:
        stream = engine.synthesize(SynthesisRequest("Hello"))
        with pytest.raises(EngineFailed, match=f"3 speech workers were lost.*{why}") as caught:
            [_ async for _ in stream]
        assert caught.value.remedy
        assert caught.value.retryable
    finally:
        await engine.close()


async def test_what_the_library_refuses_is_not_tried_again(
    bad_worker: Callable[[str], None],
) -> None:
    bad_worker("refuses")
    engine = EmbeddedEngine(EmbeddedSettings(workers=1))
    await engine.start()
    try:
        with pytest.raises(EngineFailed, match="did not speak: status 2"):
            await heard(engine, "Hello")
        assert engine.replaced_workers == 0
    finally:
        await engine.close()


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("exits at start", "ended at its start: it ended with status 3"),
        ("says nothing at start", r"not get ready within 0\.3 s"),
    ],
)
async def test_workers_that_do_not_start_are_told(
    bad_worker: Callable[[str], None], mode: str, why: str
) -> None:
    bad_worker(mode)
    engine = EmbeddedEngine(EmbeddedSettings(workers=2, start_s=0.3 if "says" in mode else 10))
    with pytest.raises(EngineUnavailable, match=why) as caught:
        await engine.start()
    assert caught.value.remedy
    assert engine.pids == []


async def test_when_no_worker_can_be_replaced_those_who_wait_are_told(
    bad_worker: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qwen3tts_engine.workers.pool.FIRST_DELAY_S", 0.01)
    bad_worker("starts once")
    engine = EmbeddedEngine(EmbeddedSettings(workers=1))
    await engine.start()
    try:
        for _ in range(2):
            async with asyncio.timeout(20):
                with pytest.raises(EngineFailed, match="none can be started") as caught:
                    await heard(engine, "Hello")
            assert caught.value.remedy
    finally:
        await engine.close()


async def test_a_program_that_cannot_be_run_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "qwen3tts_engine.embedded.engine.worker_command",
        lambda library, data: ["/nonexistent/python"],
    )
    with pytest.raises(EngineUnavailable, match="no process can be started"):
        await EmbeddedEngine(EmbeddedSettings(workers=1)).start()


async def test_a_loop_that_ends_without_a_close_leaves_no_worker() -> None:
    """As after an unhandled error: the loop cancels its tasks and the workers end."""
    pids: list[int] = []

    def run_and_forget() -> None:
        async def main() -> None:
            engine = EmbeddedEngine(EmbeddedSettings(workers=2))
            await engine.start()
            pids.extend(engine.pids)

        asyncio.run(main())

    await asyncio.to_thread(run_and_forget)
    assert len(pids) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
