"""`answer --line`: where calls are taken from."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from qwen3tts_cli.calls.lines import NAMES, LineOptions, Ports
from qwen3tts_cli.main import run
from qwen3tts_cli.output.exits import ExitCode
from qwen3tts_phone.phone import PhoneSettings
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_phone.streams.carriers import CARRIERS
from qwen3tts_phone.streams.settings import StreamSettings
from tests.e2e.test_outage import wav


def lines(*named: str, **options: object) -> LineOptions:
    return LineOptions(line=list(named) or None, **options)  # type: ignore[arg-type]


def streaming(*named: str, **options: object) -> StreamSettings:
    made = lines(*named, **options).stream_settings(PhoneSettings(), lines(*named).ports(None))
    assert made is not None
    return made


def test_every_kind_of_stream_can_be_named() -> None:
    assert set(NAMES) - {"sip"} <= set(CARRIERS)
    assert set(CARRIERS) - set(NAMES) == {"chan_websocket"}  # the same as asterisk


def test_sip_alone_is_the_line_if_nothing_is_said() -> None:
    assert lines().kinds == ("sip",)
    assert lines().stream_settings(PhoneSettings(), Ports()) is None


def test_the_port_is_that_of_the_line_named_first() -> None:
    assert lines().ports(5070) == Ports(sip=5070)
    assert lines("audiosocket", "sip").ports(9020) == Ports(tcp=9020)
    assert lines("telnyx", "sip:5061").ports(8443) == Ports(sip=5061, web=8443)


def test_each_kind_of_listener_has_a_usual_port() -> None:
    assert lines("sip", "audiosocket", "twilio").ports(None) == Ports(None, 9019, 8080)


def test_streams_over_websockets_share_one_port() -> None:
    assert lines("twilio:8443", "vonage").ports(None).web == 8443


PEM = Path("x.pem")


@pytest.mark.parametrize(
    ("chosen", "what"),
    [
        (lines("twillio"), "do you mean twilio"),
        (lines("pots"), "is not one of sip, audiosocket"),
        (lines("twilio:x"), "a port is a number"),
        (lines("twilio:70000"), "a port is a number"),
        (lines(""), "is not one of"),
        (lines("audiosocket:8080", "twilio"), "cannot share the port 8080"),
        (lines(certificate=PEM), "--certificate is for media streams"),
        (lines(stream_allow=["10.0.0.0/8"]), "--stream-allow is for media streams"),
        (lines("twilio", certificate_key=PEM), "--certificate-key needs"),
        (lines("audiosocket", certificate=PEM), "AudioSocket has no encryption"),
        (lines(stream_insecure=True), "--stream-insecure"),
    ],
)
def test_options_that_cannot_be_are_refused(chosen: LineOptions, what: str) -> None:
    with pytest.raises(typer.BadParameter, match=what):
        chosen.check()


@pytest.mark.parametrize(
    ("named", "port", "what"),
    [
        (("twilio:8443", "vonage:8444"), None, "share one port"),
        (("twilio:8080",), 9000, "contradict"),
    ],
)
def test_ports_that_contradict_each_other_are_refused(
    named: tuple[str, ...], port: int | None, what: str
) -> None:
    with pytest.raises(typer.BadParameter, match=what):
        lines(*named).ports(port)


def test_a_certificate_is_for_the_streams_that_have_tls() -> None:
    lines("audiosocket", "twilio", certificate=PEM).check()


def test_a_network_that_is_none_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match=r"10\.0\.0\.0/40"):
        streaming("twilio", stream_allow=["10.0.0.0/40"])


def test_a_carrier_without_a_key_is_served_only_where_that_is_said() -> None:
    assert not streaming("twilio").insecure
    assert streaming("twilio", stream_insecure=True).insecure


def test_streams_speak_and_are_recorded_as_the_phone_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAM_TOKEN", " s3cret\n")
    phone = PhoneSettings(
        host="0.0.0.0",
        server_url="ws://speech.test/v1/speech",
        voice="alba",
        language="en",
        options={"speed": 1.2},
        record_path=tmp_path / "calls.wav",
        latency_log=tmp_path / "calls.jsonl",
        records=RecordSettings(log=tmp_path / "records.jsonl"),
        unavailable_file=wav(tmp_path / "sorry.wav"),
    )
    chosen = lines("twilio:8443", "audiosocket", stream_token_env="STREAM_TOKEN")
    made = chosen.stream_settings(phone, chosen.ports(None))
    assert made is not None
    assert (made.kinds, made.host) == (("twilio", "audiosocket"), "0.0.0.0")
    assert (made.port, made.audiosocket_port) == (8443, 9019)
    assert (made.voice, made.language, made.options) == ("alba", "en", {"speed": 1.2})
    assert made.server_url == phone.server_url
    assert (made.record_path, made.latency_log) == (phone.record_path, phone.latency_log)
    assert made.records == phone.records
    assert made.unavailable_file == phone.unavailable_file
    assert made.token == "s3cret"
    assert "s3cret" not in repr(made)


def test_options_of_sip_need_such_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["answer", "--say", "Hello.", "--line", "twilio", "--user", "200", "--srtp", "off"]
    assert run(arguments) == ExitCode.USAGE
    assert "--user and --srtp" in capsys.readouterr().err
