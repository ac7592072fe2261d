from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from qwen3tts_agent.recognition.kinds import recogniser_named
from qwen3tts_agent.recognition.queue import RESTART_DELAY_S
from qwen3tts_agent.recognition.settings import WhisperSettings
from qwen3tts_agent.recognition.whisper import WhisperRecogniser, check
from qwen3tts_agent.recognition.whisper_process import WhisperProcess
from qwen3tts_phone.detection import core
from qwen3tts_phone.detection.events import ListenEvent, TurnEnded
from qwen3tts_phone.detection.recogniser import (
    RecogniserReport,
    RecogniserUnavailable,
    RecognitionFailed,
    RecognitionTimeout,
    Samples,
    Transcript,
)
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_phone.detection.speech_detection import SpeechDetection
from tests.agent.recognition.real_whisper import real_whisper, said
from tests.agent.recognition.sounds import RATE, Talk, quiet, tone
from tests.conftest import require_package
from tests.fakes import FakeClock, settle
from tests.phone.detection.fake_call import FakeCall, LoudDetector

pytestmark = pytest.mark.network

BOUND_S = 120.0
"""A start takes seconds, most of them imports; a test that takes longer has failed."""
TEXT = "What time do you open tomorrow?"


@pytest.fixture(scope="module")
def folder() -> str:
    require_package("faster_whisper", "pip install faster-whisper")
    return real_whisper()


@pytest.fixture
async def process(folder: str) -> AsyncIterator[WhisperProcess]:
    async with asyncio.timeout(BOUND_S):
        process = await WhisperProcess.start(WhisperSettings(folder, threads=1))
        yield process
        await process.close()


async def test_turns_are_written_down_by_a_process_of_its_own(
    folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    (question,) = await said(TEXT)
    async with asyncio.timeout(BOUND_S):
        recogniser = recogniser_named(f"whisper:{folder}", languages=("en",), threads=1)
        assert isinstance(recogniser, WhisperRecogniser)
        assert recogniser.rate_hz == RATE
        with caplog.at_level(logging.INFO):
            await recogniser.warm()
        assert f"Whisper {folder} (folder), en, int8_float32 on cpu, ready" in caplog.text
        partials: list[str] = []
        told = asyncio.Event()

        def partial(transcript: Transcript) -> None:
            partials.append(transcript.text)
            told.set()

        recognition = await recogniser.open(partial)
        talk = Talk(recognition)
        last = talk.turn(question)
        recognition.pause(last)
        await told.wait()
        text = await recognition.end_turn(last)
        assert partials[-1] == text.text
        assert text.language == "en"
        assert "open tomorrow" in text.text.lower()
        assert 0.3 < (text.confidence or 0.0) < 1.0
        # Silence does not reach the model at all.
        assert (await recognition.end_turn(talk.turn(quiet(1.0)))).text == ""
        await recognition.close()
        await recogniser.close()
        with pytest.raises(RecognitionFailed, match="is closed"):
            await recogniser.open()


async def test_a_check_loads_the_model_and_says_how_fast_it_is(folder: str) -> None:
    (question,) = await said(TEXT)
    async with asyncio.timeout(BOUND_S):
        report = await check(WhisperSettings(folder, languages=("en",), threads=1), question)
        with pytest.raises(RecogniserUnavailable, match="English only, and de is asked") as caught:
            await check(WhisperSettings(folder, languages=("de",)))
    assert "mr_qwen3tts[stt-offline-languages]" in caught.value.remedy
    assert isinstance(report, RecogniserReport)
    assert (report.kind, report.model, report.language) == ("whisper", folder, "en")
    assert report.line == f"Whisper {folder} (folder), en, int8_float32 on cpu"
    assert report.wait_s is not None
    assert report.real_time_factor == pytest.approx(report.wait_s / (len(question) / RATE))
    assert report.load_s > 0
    assert "open tomorrow" in report.text.lower()
    assert "open tomorrow" not in repr(report)


async def test_a_process_that_is_killed_is_replaced(folder: str) -> None:
    async with asyncio.timeout(BOUND_S):
        recogniser = WhisperRecogniser(WhisperSettings(folder, threads=1))
        recognition = await recogniser.open()
        last = Talk(recognition).turn((await said(TEXT))[0])
        await recogniser.warm()
        worker = recogniser._queue._worker
        assert isinstance(worker, WhisperProcess)
        os.kill(worker.pid, signal.SIGKILL)
        await worker.gone.wait()
        with pytest.raises(RecognitionFailed, match="SIGKILL"):
            await worker.hear(tone(1.0))
        assert (await recognition.end_turn(last)).text
        assert recogniser._queue.started == 2
        await recogniser.close()


async def test_a_process_that_is_killed_in_the_middle_of_a_guess_costs_no_words(
    folder: str,
) -> None:
    async with asyncio.timeout(BOUND_S):
        clock = FakeClock()
        recogniser = WhisperRecogniser(WhisperSettings(folder, threads=1), clock=clock)
        partials: list[str] = []
        recognition = await recogniser.open(lambda partial: partials.append(partial.text))
        (question,) = await said(TEXT)
        talk = Talk(recognition)
        last = await killed_in_a_guess(recogniser, talk, question)
        text = (await recognition.end_turn(last)).text
        assert text.lower().count("open tomorrow") == 1
        assert partials == []
        assert recogniser._queue.started == 2
        # The second within a short time: there is not another, and the turn has the error.
        last = await killed_in_a_guess(recogniser, talk, question)
        with pytest.raises(RecognitionFailed):
            await recognition.end_turn(last)
        await clock.advance(RESTART_DELAY_S)
        assert (await recognition.end_turn(talk.turn(question))).text == text
        assert partials == []
        await recogniser.close()


async def test_a_turn_whose_guess_was_killed_is_delivered_once(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "make_detector", lambda name: LoudDetector())
    async with asyncio.timeout(BOUND_S):
        recogniser = WhisperRecogniser(WhisperSettings(folder, threads=1))
        await recogniser.warm()
        worker = recogniser._queue._worker
        assert isinstance(worker, WhisperProcess)
        call = FakeCall()
        events: list[ListenEvent] = []
        settings = ListenSettings(adaptive_pause=False)
        listening = SpeechDetection(call, settings, recogniser, on_event=events.append)
        async with listening:
            await settle()
            os.kill(worker.pid, signal.SIGSTOP)
            await call.say(0.6)
            await call.rest(0.3)  # notice_ms
            os.kill(worker.pid, signal.SIGKILL)
            await call.rest(0.5)
            await call.hang_up()
            turn = await anext(listening)
            assert (turn.why, turn.error) == ("pause", None)
            assert recogniser._queue.started == 2
            assert sum(isinstance(event, TurnEnded) for event in events) == 1
            assert not listening._ready
        await recogniser.close()


async def killed_in_a_guess(recogniser: WhisperRecogniser, talk: Talk, speech: Samples) -> float:
    """Say ``speech`` and pause; the process is killed while it works on the guess."""
    await recogniser.warm()
    worker = recogniser._queue._worker
    assert isinstance(worker, WhisperProcess)
    os.kill(worker.pid, signal.SIGSTOP)  # it is not done before it is killed
    last = talk.turn(speech)
    talk.recognition.pause(last)
    await settle()
    assert worker._answer is not None
    os.kill(worker.pid, signal.SIGKILL)
    await worker.gone.wait()
    return last


async def test_a_piece_that_is_given_up_or_breaks_makes_way_for_the_next(
    process: WhisperProcess,
) -> None:
    first = asyncio.ensure_future(process.hear(tone(30.0)))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await process.idle()
    half_a_sample = np.zeros(3, np.int8)
    with pytest.raises(RecognitionFailed, match="ValueError"):
        await process.hear(half_a_sample)  # type: ignore[arg-type]
    assert (await process.hear((await said(TEXT))[0])).text
    assert process.facts["device"] == "cpu"
    assert process.facts["threads"] == 1


async def test_a_process_that_works_for_too_long_is_ended(folder: str) -> None:
    async with asyncio.timeout(BOUND_S):
        process = await WhisperProcess.start(WhisperSettings(folder, threads=1, stall_s=0.05))
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(RecognitionFailed, match=r"it worked for 0\.05 s"):
            await process.hear(tone(1.0))
        assert not process.alive
        await process.close()


async def test_a_model_that_is_damaged_is_said_with_what_to_do(folder: str, tmp_path: Path) -> None:
    copy = tmp_path / "model"
    shutil.copytree(folder, copy)
    with (copy / "model.bin").open("r+b") as file:
        file.truncate(1 << 20)
    recogniser = WhisperRecogniser(WhisperSettings(str(copy)))
    async with asyncio.timeout(BOUND_S):
        with pytest.raises(RecogniserUnavailable, match="could not be loaded") as caught:
            await recogniser.warm()
        assert "damaged" in caught.value.remedy
        recognition = await recogniser.open()
        with pytest.raises(RecogniserUnavailable, match="could not be loaded"):
            await recognition.end_turn(Talk(recognition).turn(tone(1.0)))
        await recogniser.close()


async def test_a_turn_while_the_model_is_still_being_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def start(settings: WhisperSettings) -> WhisperProcess:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    monkeypatch.setattr(WhisperProcess, "start", start)
    recogniser = WhisperRecogniser(WhisperSettings("openai/whisper-tiny", timeout_s=0.01))
    recognition = await recogniser.open()
    with pytest.raises(RecognitionTimeout, match="still being loaded"):
        await recognition.end_turn(Talk(recognition).turn(tone(1.0)))
    await recogniser.close()


async def test_a_model_that_takes_too_long_to_load(folder: str) -> None:
    async with asyncio.timeout(BOUND_S):
        with pytest.raises(RecognitionFailed, match=r"not loaded within 0\.01 s"):
            await WhisperProcess.start(WhisperSettings(folder, load_timeout_s=0.01))


def test_it_ends_with_its_parent(folder: str, tmp_path: Path) -> None:
    """The parent is killed: it closes nothing and says nothing."""
    script = tmp_path / "parent.py"
    script.write_text(
        "import asyncio, os, signal, sys\n"
        "from qwen3tts_agent.recognition.whisper_process import WhisperProcess\n"
        "from qwen3tts_agent.recognition.settings import WhisperSettings\n"
        "async def main():\n"
        "    process = await WhisperProcess.start(WhisperSettings(sys.argv[1], threads=1))\n"
        "    print(process.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, str(script), folder],
        capture_output=True,  # both pipes end only when the last process that has them does
        timeout=BOUND_S,
        env=environment,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    # Its standard error is a pipe of its own: look whether it is still there.
    status = Path(f"/proc/{int(done.stdout)}/stat")
    for _ in range(1000):
        if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        os.sched_yield()
        subprocess.run(["/bin/true"], check=True)
    pytest.fail("it lives on")
