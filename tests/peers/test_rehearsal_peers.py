"""Rehearsals of agents that are not ours: baresip as the agent, SIPp, and nothing at all."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_phone.media.types import Impairment
from qwen3tts_phone.phone import Phone, PhoneSettings
from qwen3tts_rehearsal.rehearsal import Rehearsal, RehearsalParts, plan
from qwen3tts_rehearsal.results import CallResult
from qwen3tts_rehearsal.scenario import LineSettings, scenario_of
from qwen3tts_rehearsal.sip_line import SipLine, media_settings
from qwen3tts_rehearsal.sounds import SoundBook
from qwen3tts_settings.entries import from_yaml
from qwen3tts_speech.link import SpeechLink
from tests.peers.baresip_runner import baresip
from tests.peers.sipp_runner import free_port, sipp
from tests.rehearsal.callers import LoudDetector, tone

pytestmark = pytest.mark.network

TALK = """
steps:
  - wait: {until: quiet, quiet_s: 0.6}
  - say: hello
  - keys: "42"
  - wait: {until: quiet, quiet_s: 0.6, limit_s: 6}
  - hang_up: true
expect:
  first_response_s: 2
  gaps: 0
  codec: PCMU
  hang_up: {by: caller}
"""


async def synthesise(text: str, voice: str, language: str) -> tuple[NDArray[np.int16], int]:
    return tone(0.5), 8000


@contextlib.asynccontextmanager
async def callers() -> AsyncIterator[Phone]:
    async with Phone(PhoneSettings(), link=SpeechLink("ws://127.0.0.1:1/"), announce=None) as phone:
        yield phone


async def rehearsed(phone: Phone, uri: str, text: str = TALK, answer_s: float = 10.0) -> CallResult:
    line = SipLine(phone, uri, answer_s=answer_s)
    parts = RehearsalParts(line, SoundBook(synthesise), detector=LoudDetector)
    scenario = scenario_of(from_yaml(text, "t"), "t")
    result = await Rehearsal(parts, plan([(scenario, Path("t.yaml"))])).run()
    return result.calls[0]


SPEECH = (
    *(np.zeros(4000, np.int16), tone(1.0)),
    *(np.zeros(24_000, np.int16), tone(0.8), np.zeros(80_000, np.int16)),
)
"""Two stretches, and silence to the end."""


@pytest.mark.usefixtures("need_baresip")
@pytest.mark.parametrize("line", ["", "line: {loss: 2, jitter_ms: 30}\n"])
async def test_an_agent_of_another_make_is_rehearsed(tmp_path: Path, line: str) -> None:
    async with baresip(tmp_path, speech=np.concatenate(SPEECH)) as peer, callers() as phone:
        result = await rehearsed(phone, peer.uri, line + TALK)
        heard = peer.recording("dec")
        pressed = [each for each in peer.events if each.get("type") == "CALL_DTMF_START"]
    assert result.error == ""
    assert result.passed, [each for each in result.verdicts if not each.passed]
    assert [span.side for span in result.spans] == ["agent", "caller", "caller", "agent"]
    assert "".join(str(each["param"]) for each in pressed) == "42"
    assert int(np.abs(heard.astype(np.int32)).max()) > 1000, "it heard the caller"


@pytest.mark.usefixtures("need_sipp")
async def test_a_busy_agent_is_an_error_with_its_status(tmp_path: Path) -> None:
    async with sipp("uas_busy", tmp_path) as peer, callers() as phone:
        result = await rehearsed(phone, f"sip:agent@127.0.0.1:{peer.port}")
    assert "486 Busy Here" in result.error


@pytest.mark.usefixtures("need_baresip")
async def test_an_agent_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    async with baresip(tmp_path, answer="manual") as peer, callers() as phone:
        result = await rehearsed(phone, peer.uri, answer_s=1.0)
    assert "did not answer within 1 s" in result.error
    assert "--answer-seconds" in result.error


async def test_no_agent_at_all_is_an_error() -> None:
    async with callers() as phone:
        result = await rehearsed(phone, f"sip:agent@127.0.0.1:{free_port()};transport=tcp")
        assert "127.0.0.1" in result.error
        other = await rehearsed(phone, "sip:agent@nowhere.invalid")
        assert "nowhere.invalid" in other.error


async def test_an_agent_by_tls_without_a_certificate_of_ours_is_an_error() -> None:
    async with callers() as phone:
        result = await rehearsed(phone, f"sips:agent@127.0.0.1:{free_port()}")
        assert result.error
        assert result.duration_s == 0.0


def test_the_settings_of_a_line_are_those_of_a_call() -> None:
    assert media_settings(LineSettings(), 3).impairment is None
    assert media_settings(LineSettings(), 3).codecs is None
    made = media_settings(LineSettings(codec="G722", loss=2.0, burst=3.0, jitter_ms=40), 3)
    assert made.codecs == ("G722",)
    assert made.impairment == Impairment(0.02, 3.0, 0.04, 3)
    spared = media_settings(LineSettings(loss=2.0, impaired="to_agent"), 3)
    assert spared.impairment is not None
    assert not spared.impairment.inbound
