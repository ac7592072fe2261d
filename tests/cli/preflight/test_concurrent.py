"""Checks before a call run side by side, and each is reported once."""

from __future__ import annotations

import asyncio

import pytest

from qwen3tts_agent.chat.client import ModelRefused, ModelUnavailable
from qwen3tts_cli.doctor.preflight import PreflightChecks
from qwen3tts_wire.errors import ConnectionLost, SpeechError, UnknownVoice


async def found(words: str) -> str:
    return words


async def fails(error: BaseException) -> str:
    raise error


DOWN = ModelUnavailable("the model is not there.", remedy="Start it.")
WRONG = ModelRefused("the key is wrong.", remedy="Check it.")


async def test_each_finding_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    async with PreflightChecks() as ready:
        ready.start("Language model", found("tiny is ready."))
        ready.start("Recogniser", found("whisper is ready."))
        await ready.finish()
        await ready.finish()
    told = capsys.readouterr().err.splitlines()
    assert told == [
        "Checking language model and recogniser …",
        "Language model: tiny is ready.",
        "Recogniser: whisper is ready.",
    ]


async def test_nothing_to_check_is_nothing_to_tell(capsys: pytest.CaptureFixture[str]) -> None:
    async with PreflightChecks() as ready:
        await ready.finish()
    assert capsys.readouterr().err == ""


async def test_they_run_at_the_same_time() -> None:
    first, second = asyncio.Event(), asyncio.Event()

    async def one() -> str:
        first.set()
        await second.wait()
        return "."

    async def other() -> str:
        second.set()
        await first.wait()
        return "."

    async with asyncio.timeout(20), PreflightChecks() as ready:
        ready.start("One", one())
        ready.start("Other", other())
        await ready.finish()


async def test_the_first_failure_is_raised_and_the_others_are_told_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with PreflightChecks() as ready:
        ready.start("Language model", fails(DOWN))
        ready.start("Recogniser", fails(WRONG))
        with pytest.raises(ModelUnavailable):
            await ready.finish()
    told = capsys.readouterr().err
    assert "not there" not in told, "whoever runs the command tells it"
    assert told.count("The key is wrong.") == told.count("Check it.") == 1


async def test_a_service_goes_on_where_a_failure_may_pass(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with PreflightChecks(goes_on=True) as ready:
        ready.start("Language model", fails(DOWN))
        await ready.finish()
    told = capsys.readouterr().err
    assert "Language model: not ready. The model is not there. Start it.\n" in told
    async with PreflightChecks(goes_on=True) as ready:
        ready.start("Language model", fails(WRONG))
        with pytest.raises(ModelRefused):
            await ready.finish()


async def test_where_the_start_fails_the_checks_errors_are_told_beside_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with PreflightChecks() as ready:
        ready.start("Language model", fails(DOWN))
        ready.start("Recogniser", found("whisper is ready."))
        with pytest.raises(UnknownVoice):
            await ready.run_step(fails(UnknownVoice("there is no such voice.")))
    told = capsys.readouterr().err
    assert told.count("Language model: not ready. The model is not there. Start it.") == 1
    assert "no such voice" not in told


async def test_a_step_that_works_gives_its_result() -> None:
    async with PreflightChecks() as ready:
        ready.start("Language model", fails(DOWN))
        assert await ready.run_step(found("url")) == "url"
        await asyncio.sleep(0)


async def test_the_end_of_the_command_ends_what_is_checked() -> None:
    ended = asyncio.Event()

    async def hangs() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    async def command() -> None:
        async with PreflightChecks() as ready:
            ready.start("Language model", hangs())
            await ready.finish()

    running = asyncio.create_task(command())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.is_set()


async def test_a_defect_is_no_finding() -> None:
    async with PreflightChecks(goes_on=True) as ready:
        ready.start("Language model", fails(ZeroDivisionError()))
        with pytest.raises(ZeroDivisionError):
            await ready.finish()
    error: SpeechError = ConnectionLost("x")
    assert error.retryable


async def test_what_is_optional_is_reported_and_named_where_it_fails(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with PreflightChecks() as ready:
        ready.start("Recogniser", fails(WRONG), optional=True)
        ready.start("Language model", found("tiny is ready."))
        assert await ready.finish() == {"Recogniser"}
    told = capsys.readouterr().err
    assert "Recogniser: not ready. The key is wrong. Check it." in told
    assert "Error" not in told
