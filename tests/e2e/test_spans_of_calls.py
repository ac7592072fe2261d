"""A call over SIP as a collector of OpenTelemetry sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone import Phone
from qwen3tts_server.run import running_server
from qwen3tts_speech.latency import read_log
from tests.speech.collector import collecting

pytestmark = pytest.mark.network


def attributes(span: Any) -> dict[str, Any]:
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes
    }


async def test_a_call_is_one_trace_beside_its_log(tmp_path: Path) -> None:
    log = tmp_path / "calls.jsonl"
    with collecting() as collector:
        async with (
            running_server(EmbeddedEngine()) as server,
            Phone(server_url=server.url, latency_log=log, otel=collector.url) as ours,
            Phone(server_url=server.url) as theirs,
        ):
            call = await ours.dial(theirs.uri)
            far = await anext(aiter(theirs))
            await far.answer()
            await call.answered()
            await call.say("Good morning.")
            await call.hangup()
            await far.ended()
    records = list(read_log(log))
    spans = collector.spans()
    (whole,) = (each for each in spans if each.name == "call")
    (utterance,) = (each for each in spans if each.name == "utterance")
    assert utterance.parent_span_id == whole.span_id
    said = attributes(whole)
    assert said["qwen3tts.call.line"] == "sip"
    assert (said["qwen3tts.call.direction"], said["qwen3tts.call.ended_by"]) == ("out", "local")
    assert ours.uri not in str(said)
    assert attributes(utterance)["qwen3tts.call.id"] == records[0].call_id
    took_s = (utterance.end_time_unix_nano - utterance.start_time_unix_nano) / 1e9
    marks = records[0].marks.values()
    assert took_s == pytest.approx(max(marks) - min(marks), abs=1e-4)
    assert whole.start_time_unix_nano <= utterance.start_time_unix_nano
    assert utterance.end_time_unix_nano <= whole.end_time_unix_nano
