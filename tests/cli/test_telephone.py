"""The phone of `call` and `answer`: what the file says, and over it the options."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from qwen3tts_cli import call
from qwen3tts_cli.calls import answering
from qwen3tts_cli.calls.phone import (
    Telephone,
    local_address,
    parsed_codecs,
    parsed_headers,
    read_config,
    requires_tls,
)
from qwen3tts_cli.main import run
from qwen3tts_cli.options.common import Srtp
from qwen3tts_cli.options.speech import SpeechOptions
from qwen3tts_phone.phone import PhoneSettings
from qwen3tts_phone.settings.file import config_from
from qwen3tts_phone.settings.sections import PhoneConfig
from qwen3tts_settings.entries import BadConfiguration, from_yaml

FILE = """
listen: {host: 127.0.0.1, port: 5070, max_calls: 9}
accounts:
  - {name: office, registrar: "sip:127.0.0.1:5080", user: "200"}
  - {name: home, registrar: "sip:127.0.0.1:5081", user: "300"}
media: {codecs: [PCMA], srtp: off}
speech: {server: "ws://127.0.0.1:1/v1/speech", voice: tone, speed: 1.5}
"""


def config(text: str = FILE) -> PhoneConfig:
    return config_from(from_yaml(text, "phone.yaml"), {})


def telephone(**changes: object) -> Telephone:
    options: dict[str, object] = {
        "host": None,
        "port": None,
        "user": None,
        "password_env": "NONE",
        "registrar": None,
        "record": None,
        "latency_log": None,
        "speech_options": SpeechOptions(),
    }
    return Telephone(**{**options, **changes})  # type: ignore[arg-type]


def settings(**changes: object) -> PhoneSettings:
    return telephone(**changes).settings("ws://x")


def test_the_phone_is_as_its_file_says() -> None:
    found = settings(config=config())
    assert found.sip is not None
    assert (found.sip.port, found.sip.max_calls) == (5070, 9)
    assert [each.register for each in found.accounts] == [True, True]
    assert (found.codecs, found.srtp, found.voice) == (("PCMA",), "off", "tone")
    assert found.options == {"speed": 1.5}


def test_options_win_over_the_file(tmp_path: Path) -> None:
    found = settings(
        config=config(),
        host="127.0.0.2",
        port=5099,
        codecs="g722, PCMU",
        srtp=Srtp.REQUIRE,
        speech_options=SpeechOptions(voice="other", seed=7),
        record=tmp_path / "x.wav",
        call_log=tmp_path / "calls.jsonl",
    )
    assert found.sip is not None
    assert (found.sip.hosts, found.sip.port) == (("127.0.0.2",), 5099)
    assert found.codecs == ("G722", "PCMU")
    assert (found.srtp, found.voice) == ("require", "other")
    assert found.options == {"speed": 1.5, "seed": 7}
    assert found.record_path == tmp_path / "x.wav"
    assert found.records is not None
    assert found.records.log == tmp_path / "calls.jsonl"


def test_a_call_leaves_the_ports_and_the_other_accounts_to_the_phone_that_answers() -> None:
    found = settings(config=config(), calling=True, account="home")
    assert found.sip is not None
    assert found.sip.port == 0
    assert [(each.name, each.register) for each in found.accounts] == [
        ("office", False),
        ("home", True),
    ]
    first = settings(config=config(), calling=True)
    assert [each.register for each in first.accounts] == [True, False]
    asked = settings(config=config(), calling=True, port=5099)
    assert asked.sip is not None
    assert asked.sip.port == 5099


def test_the_speech_server_is_that_of_the_command_line_or_of_the_file() -> None:
    assert telephone().server_url(None) is None
    assert telephone(config=config()).server_url(None) == "ws://127.0.0.1:1/v1/speech"
    assert telephone(config=config()).server_url("ws://y") == "ws://y"


def test_without_a_file_tls_is_there_where_the_address_asks_for_it() -> None:
    plain, secure = settings(), settings(secure=True)
    assert plain.sip is not None
    assert secure.sip is not None
    assert plain.sip.tls is None
    assert "tls" in secure.sip.enabled
    assert requires_tls("sips:a@b", None)
    assert requires_tls(None, "sip:b;transport=TLS")
    assert not requires_tls("sip:tls@b", None)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"account": "office"}, "--account needs --config"),
        ({"registrar": "sip:pbx.test"}, "--registrar needs --user"),
        ({"config": config(), "registrar": "sip:x", "user": "a"}, "conflict with --config"),
        ({"config": config(), "account": "ofice"}, "it has office, home"),
        ({"call_log": Path("/nowhere/x")}, "--call-log"),
    ],
)
def test_options_that_cannot_be_are_told_before_the_call(
    changes: dict[str, object], told: str
) -> None:
    with pytest.raises(typer.BadParameter, match=told):
        telephone(**changes).check()


def test_headers_are_names_and_values() -> None:
    assert parsed_headers(None) == {}
    assert parsed_headers(["X-Case: 7", "X-Note:a: b "]) == {"X-Case": "7", "X-Note": "a: b"}
    for wrong in ("X-Case", ": 7", "X Case: 7", "X-Case: a\r\nVia: b"):
        with pytest.raises(typer.BadParameter, match="NAME: VALUE"):
            parsed_headers([wrong])


def test_codecs_are_told_by_the_names_that_there_are() -> None:
    assert parsed_codecs("opus,pcma") == ("opus", "PCMA")
    for wrong in ("G729", "", " , "):
        with pytest.raises(typer.BadParameter, match="--codecs"):
            parsed_codecs(wrong)


def test_no_file_is_no_configuration(tmp_path: Path) -> None:
    assert read_config(None) is None
    with pytest.raises(BadConfiguration):
        read_config(tmp_path / "none.yaml")


@pytest.mark.parametrize("command", [["call", "100"], ["answer"], ["doctor"]])
def test_a_wrong_file_is_told_by_every_command_before_anything_happens(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "phone.yaml"
    file.write_text("listen:\n  prot: 5060\n", "utf-8")
    words = [] if command == ["doctor"] else ["--say", "Hello."]
    code = run([*command, "--config", str(file), *words])
    shown = capsys.readouterr()
    assert code == (1 if command == ["doctor"] else 2)
    assert f"listen.prot is unknown ({file}:2)" in shown.out + shown.err
    assert "Did you mean port" in shown.out + shown.err


def test_doctor_looks_at_a_file_and_says_what_is_probably_not_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "phone.yaml"
    file.write_text(
        "listen: {port: 0}\nrecords: {audio: kept, audio_keep_days: 3}\n".replace(
            "kept", str(tmp_path / "kept")
        ),
        "utf-8",
    )
    assert run(["doctor", "--config", str(file)]) == 0
    out = capsys.readouterr().out
    assert f"settings: {file}: no accounts, no trunks, codecs PCMU, PCMA" in out
    assert f"without a notice ({file}:2)" in out
    assert "free for UDP and TCP" in out
    assert "RTP ports" in out


def test_doctor_checks_the_turn_detectors_file_that_a_phones_file_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "phone.yaml"
    file.write_text(f"listen: {{port: 0}}\nhearing: {{smart_turn: {tmp_path / 'turn.onnx'}}}\n")
    assert run(["doctor", "--config", str(file)]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert f"fail turn detector: Smart Turn's file {tmp_path / 'turn.onnx'} cannot be read" in out
    assert "sha256" in out


def test_the_password_comes_from_the_environment_and_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SIP_PASSWORD", "secret")
    made = settings(registrar="sip:pbx.test", user="200", password_env="SIP_PASSWORD")
    assert [each.password for each in made.accounts] == ["secret"]
    assert "secret" not in repr(made)


@pytest.mark.parametrize("option", ["record", "latency_log"])
def test_a_file_that_cannot_be_written_is_known_before_the_call(
    option: str, tmp_path: Path
) -> None:
    telephone(**{option: tmp_path / "new.wav"}).check()
    with pytest.raises(typer.BadParameter, match="there is no folder"):
        telephone(**{option: tmp_path / "nowhere" / "new.wav"}).check()


def test_an_address_is_checked_before_the_call() -> None:
    assert call.host_of("sip:bob@pbx.test:5070") == "pbx.test"
    assert call.host_of("sip:[::1]") == "::1"
    with pytest.raises(typer.BadParameter, match="sip:USER@HOST"):
        call.host_of("bob")


def test_a_phone_on_all_addresses_is_shown_with_one_that_can_be_dialled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answering, "local_address", lambda: "198.51.100.7")
    bound = "sip:agent@127.0.0.1:5060"
    assert answering.shown_uri(bound, "127.0.0.1") == bound
    assert answering.shown_uri(bound, "0.0.0.0") == "sip:agent@198.51.100.7:5060"


def test_a_call_leaves_from_the_address_that_leads_there() -> None:
    assert local_address("127.0.0.1") == "127.0.0.1"
    assert local_address("nowhere.invalid") == "127.0.0.1"
