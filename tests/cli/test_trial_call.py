"""`doctor --call`: a call made to find out what is wrong, over real SIP and RTP."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from qwen3tts_cli.doctor.checks import Check, Level
from qwen3tts_cli.doctor.trial_call import ReceivedAudio, Trial, tone, trial_settings, try_call
from qwen3tts_cli.main import run
from qwen3tts_phone.call.phone_call import PhoneCall
from qwen3tts_phone.phone import Phone, PhoneSettings
from qwen3tts_phone.sdp.session import SdpSession
from qwen3tts_phone.sip import SipEndpoint
from qwen3tts_phone.sip.core.account import Account
from qwen3tts_phone.sip.core.settings import SipSettings
from qwen3tts_speech.link import SpeechLink
from tests.cli.sip_server import Registrar

pytestmark = pytest.mark.network

HERE = PhoneSettings(sip=SipSettings())
TRIAL = Trial("", ring_s=2.0, listen_s=0.3)


@asynccontextmanager
async def phone(settings: PhoneSettings = HERE) -> AsyncIterator[Phone]:
    """A phone that says nothing, so that it needs no speech server."""
    link = SpeechLink("ws://127.0.0.1:9/v1/speech")
    async with asyncio.timeout(60), Phone(settings, link=link) as made:
        yield made
    await link.close()


async def trial(settings: PhoneSettings, tried: Trial) -> dict[str, Check]:
    return {each.name: each async for each in try_call(settings, tried)}


async def first_call(other: Phone) -> PhoneCall:
    async for call in other.incoming():
        return call
    raise AssertionError("the phone was closed")


async def echo(call: PhoneCall) -> None:
    """Answer, and send back what comes."""
    await call.answer()
    async for frame in call.audio():
        await call.play(frame.samples, frame.rate_hz)


async def test_a_good_call_is_said_to_be_good() -> None:
    async with phone() as other:
        answering = asyncio.create_task(first_call(other))
        answering.add_done_callback(
            lambda done: tasks.append(asyncio.create_task(echo(done.result())))
        )
        tasks: list[asyncio.Task[None]] = []
        found = await trial(HERE, replace(TRIAL, target=other.uri))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert found["OPTIONS"].found.startswith("200")
    assert found["call"].found == "answered with PCMU, not encrypted"
    assert "packets sent" in found["sound out"].found
    assert found["sound in"].level is Level.OK
    assert not [each for each in found.values() if each.level is Level.FAIL], found


@pytest.mark.parametrize(
    ("status", "code"), [(486, "busy"), (404, "wrong_number"), (603, "declined")]
)
async def test_a_refusal_is_said_in_words_with_its_remedy(status: int, code: str) -> None:
    async def refuse(other: Phone) -> None:
        await (await first_call(other)).reject(status)

    async with phone() as other:
        refusing = asyncio.create_task(refuse(other))
        found = await trial(HERE, replace(TRIAL, target=other.uri))
        await refusing
    assert found[code].level is Level.FAIL
    assert found[code].remedy
    assert "sound out" not in found


async def test_no_common_codec_is_said() -> None:
    wants = replace(HERE, codecs=("PCMU",))
    async with phone(replace(HERE, codecs=("PCMA",))) as other:
        taking = asyncio.create_task(first_call(other))
        trying = asyncio.create_task(trial(wants, replace(TRIAL, target=other.uri)))
        with pytest.raises(Exception, match="codec"):
            await (await taking).answer()
        found = await trying
    assert found["codec"].level is Level.FAIL
    assert "PCM" in found["codec"].found + found["codec"].remedy


@asynccontextmanager
async def mute(host: str, port: int) -> AsyncIterator[str]:
    """Answers with a description of sound at an address where there is none; its SIP address."""

    async def answer_all() -> None:
        async for call in endpoint.incoming:
            assert call.offer is not None
            await call.answer(SdpSession(host, port).answer(call.offer)[0])

    async with asyncio.timeout(60), SipEndpoint() as endpoint:
        answering = asyncio.create_task(answer_all())
        yield endpoint.uri
        answering.cancel()


async def test_a_phone_that_sends_no_sound_is_said() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf:
        deaf.bind(("127.0.0.1", 0))
        async with mute("127.0.0.1", deaf.getsockname()[1]) as uri:
            found = await trial(HERE, replace(TRIAL, target=uri))
    assert found["call"].level is Level.OK
    assert found["sound in"].level is Level.WARN
    failed = [each for each in found.values() if each.level is Level.FAIL]
    assert {each.name for each in failed} & {"one_way_in", "no_rtp"}
    assert all(each.remedy for each in failed)


async def test_a_private_address_in_the_description_is_said() -> None:
    async with mute("10.255.255.1", 40000) as uri:
        found = await trial(HERE, replace(TRIAL, target=uri))
    shown = {f"{each.found} {each.remedy}" for each in found.values() if each.level is Level.FAIL}
    assert any("10.255.255.1" in each for each in shown), found


async def test_a_phone_that_holds_us_from_the_start_is_said_and_the_call_ends() -> None:
    async def answer_all() -> None:
        async for call in endpoint.incoming:
            assert call.offer is not None
            answer = SdpSession("127.0.0.1", port).answer(call.offer)[0]
            await call.answer(answer.replace("a=sendrecv", "a=inactive"))

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf:
        deaf.bind(("127.0.0.1", 0))
        port = deaf.getsockname()[1]
        async with asyncio.timeout(60), SipEndpoint() as endpoint:
            answering = asyncio.create_task(answer_all())
            found = await trial(HERE, replace(TRIAL, target=endpoint.uri))
            answering.cancel()
    assert "held" in found


async def test_a_server_that_takes_the_call_and_never_rings_is_not_said_to_have_rung() -> None:
    async with phone() as other:
        ringing = asyncio.create_task(first_call(other))
        found = await trial(HERE, replace(TRIAL, target=other.uri))
        ringing.cancel()
    assert found["timeout"].level is Level.FAIL
    assert "never rang" in found["timeout"].found


async def test_a_phone_that_nobody_takes_is_said() -> None:
    async with phone() as other:
        ringing = asyncio.create_task(first_call(other))
        trying = asyncio.create_task(trial(HERE, replace(TRIAL, target=other.uri)))
        call = await ringing
        call.ringing()
        found = await trying
    assert found["no_answer"].level is Level.FAIL


async def test_nothing_at_an_address_is_said() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        found = await trial(HERE, replace(TRIAL, target=f"sip:bob@127.0.0.1:{port};transport=tcp"))
    assert found["OPTIONS"].level is Level.WARN
    assert any(each.level is Level.FAIL and each.remedy for each in found.values())


async def test_a_wrong_password_is_said_with_realm_and_user() -> None:
    async with Registrar(realm="pbx.test", users={"200": "right"}) as server:
        account = Account(f"sip:127.0.0.1:{server.port}", "200", "wrong", name="office")
        settings = replace(HERE, accounts=(account,))
        found = await trial(settings, Trial(None, "office", register=True))
    (failed,) = [each for each in found.values() if each.level is Level.FAIL]
    assert "pbx.test" in failed.found
    assert "200" in failed.found
    assert "wrong" not in f"{failed}".replace("wrong_", "")
    assert failed.remedy


async def test_an_account_is_registered_only_where_that_is_asked_for() -> None:
    async with Registrar(realm="pbx.test", users={"200": "right"}) as server, phone() as other:
        refusing = asyncio.create_task(first_call(other))
        refusing.add_done_callback(lambda done: asyncio.ensure_future(done.result().reject(486)))
        account = Account(f"sip:127.0.0.1:{server.port}", "200", "right", name="office")
        settings = replace(HERE, accounts=(account,))
        await trial(settings, replace(TRIAL, target=other.uri, account="office"))
        assert server.registered == []
        found = await trial(settings, Trial(None, "office", register=True))
    assert found["account office"].level is Level.OK
    assert server.registered == ["200"]


def test_a_trial_leaves_no_record_and_registers_nothing_unasked(tmp_path: Path) -> None:
    account = Account("sip:pbx.test", "200", name="office")
    other = Account("sip:pbx2.test", "200", name="home")
    settings = replace(
        HERE, accounts=(account, other), record_path=tmp_path / "x.wav", latency_log=tmp_path / "l"
    )
    found = trial_settings(settings, Trial("sip:a@b", "office"))
    assert [(each.name, each.register) for each in found.accounts] == [("office", False)]
    assert found.record_path is None
    assert found.latency_log is None
    assert trial_settings(settings, Trial("x", "office", register=True)).accounts == (account,)


def test_the_tone_is_soft_at_its_edges_and_not_loud() -> None:
    made = tone()
    assert abs(int(made[0])) < 50
    assert abs(int(made[-1])) < 50
    assert 3000 < int(abs(made).max()) < 3400


def test_what_was_heard_is_said_in_seconds() -> None:
    hearing = ReceivedAudio()
    assert hearing.check().found == "no audio received"
    hearing.frames, hearing.seconds = 50, 1.0
    assert "silent or very quiet" in hearing.check().found
    hearing.loud_s = 0.5
    assert hearing.check().found == "1.0 s received, 0.5 s of it loud"


def test_the_command_prints_json_and_its_exit_code_says_whether_it_went_well(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "phone.yaml"
    config.write_text("listen: {port: 0}\nsafety: {guard: {denied: ['bob']}}\n", "utf-8")
    target = "sip:bob@127.0.0.1:9;transport=tcp"
    assert run(["doctor", "--config", str(config), "--call", target, "--json"]) == 1
    lines = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert lines["settings"]["level"] == "ok"
    assert lines["not_allowed"]["level"] == "fail"
    assert "bob" in lines["not_allowed"]["found"]
    assert lines["not_allowed"]["remedy"]


async def test_a_registrar_on_the_command_line_is_registered_with() -> None:
    async with Registrar(realm="pbx.test", users={"200": "right"}) as server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "qwen3tts_cli.main", "doctor", "--port", "0"),
            *("--registrar", f"sip:127.0.0.1:{server.port}", "--user", "200"),
            env={
                "PYTHONPATH": ":".join(sys.path),
                "MR_QWEN3TTS_SIP_PASSWORD": "right",
                "COLUMNS": "200",
            },
            stdout=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            shown, _ = await process.communicate()
        assert server.registered == ["200"]
    assert process.returncode == 0
    assert b"registered at 127.0.0.1" in shown
