"""The phone's file of settings: read whole, checked whole, refused by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qwen3tts_phone.detection.settings import ListenSettings, listen_preset
from qwen3tts_phone.errors import BadCertificate
from qwen3tts_phone.phone import PhoneSettings
from qwen3tts_phone.settings.file import config_from, load_phone_config, read_phone_config
from qwen3tts_phone.settings.sections import PhoneConfig
from qwen3tts_phone.sip.core.settings import SipSettings
from qwen3tts_phone.streams.settings import StreamSettings
from qwen3tts_settings.entries import BadConfiguration, from_yaml
from tests.sip.certificates import DAY, Authority

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "configs" / "phone.yaml"


def config(text: str, env: dict[str, str] | None = None) -> PhoneConfig:
    return config_from(from_yaml(text, "phone.yaml"), env or {})


def refused(text: str) -> BadConfiguration:
    with pytest.raises(BadConfiguration) as error:
        config(text)
    return error.value


def remarks(text: str, env: dict[str, str] | None = None) -> str:
    return "\n".join(map(str, config(text, env).remarks))


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for phone.example.test, and its key."""
    made = Authority(tmp_path).sign("phone", "phone.example.test")
    return made.certificate, made.key


# --- what a file says is what the phone does ---


@pytest.mark.parametrize("text", ["", "# nothing\n", "listen:\n", "media: {}\n"])
def test_what_is_not_said_is_as_the_code_has_it(text: str) -> None:
    found = config(text).settings()
    plain = PhoneSettings()
    for name in ("codecs", "ptime_ms", "srtp", "comfort_noise", "rtp_ports", "accounts", "voice"):
        assert getattr(found, name) == getattr(plain, name), name


@pytest.mark.parametrize(("text", "port"), [("", 5060), ("listen: {port: 0}", 0)])
def test_a_phone_is_where_phones_are_called_unless_its_file_says_otherwise(
    text: str, port: int
) -> None:
    assert config(text).listen.port == port


def test_every_section_reaches_the_phone(tmp_path: Path) -> None:
    text = f"""
listen: {{host: ["127.0.0.1", "::1"], port: 5070, user: desk, max_calls: 7, nat: learn}}
accounts:
  - {{name: office, registrar: "sip:pbx.test", user: "200", password_env: OFFICE}}
trunks:
  - {{name: carrier, server: "sip:198.51.100.20"}}
require_registration: false
media:
  codecs: [pcma, G722]
  ptime_ms: 30
  srtp: require
  comfort_noise: off
  dtmf: info
  rtp_ports: [20000, 20099]
  jitter_max_s: 0.1
  vanished_s: 0
speech: {{server: "ws://127.0.0.1:1/v1/speech", voice: tone, language: de, speed: 1.5, seed: 7}}
safety:
  transfers: ask
  gate: {{deny: [192.0.2.0/24], quiet: true}}
  guard: {{allowed: ["+49*"], max_minutes: 5}}
records: {{log: {tmp_path}/calls.jsonl, audio: {tmp_path}/audio, consent: tone}}
outbound: {{retry: {{attempts: 2, waits_s: [60], causes: [busy]}}}}
"""
    path = tmp_path / "phone.yaml"
    path.write_text(text, "utf-8")
    found = load_phone_config(path, {"OFFICE": "secret"})
    assert found.sip is not None
    assert (found.sip.hosts, found.sip.port) == (("127.0.0.1", "::1"), 5070)
    assert (found.sip.user, found.sip.max_calls, found.sip.nat) == ("desk", 7, "learn")
    assert [(each.name, each.register) for each in found.accounts] == [
        ("office", True),
        ("carrier", False),
    ]
    assert found.accounts[0].password == "secret"
    assert not found.require_registration
    assert (found.ptime_ms, found.srtp, found.comfort_noise) == (30, "require", "off")
    assert [each.lower() for each in found.codecs] == ["pcma", "g722"]
    assert (found.dtmf, found.rtp_ports, found.jitter_max_s) == ("info", (20000, 20099), 0.1)
    assert found.vanished_s == 0.0
    assert found.server_url == "ws://127.0.0.1:1/v1/speech"
    assert (found.voice, found.language) == ("tone", "de")
    assert found.options == {"speed": 1.5, "seed": 7}
    assert found.transfers == "ask"
    assert found.gate is not None
    assert found.gate.quiet
    assert found.guard is not None
    assert found.guard.allowed == ("+49*",)
    assert found.records is not None
    assert found.records.log == tmp_path / "calls.jsonl"
    assert "secret" not in repr(found)
    retry = read_phone_config(path, {"OFFICE": "secret"}).outbound.retry
    assert retry is not None
    assert retry.attempts == 2


def test_the_section_hearing_has_a_preset_that_its_single_figures_override() -> None:
    assert config("").hearing is None
    assert config("hearing:").hearing is None
    assert config("hearing: {}").hearing == ListenSettings()
    found = config("hearing: {preset: patient, pause_ms: 1000}").hearing
    assert found == listen_preset("patient", pause_ms=1000)
    assert config("hearing: {max_keys: 8}").hearing == ListenSettings(max_keys=8)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "hearing:\n  preset: hasty",
            "hearing.preset must be one of menu, talk, patient (phone.yaml:2)",
        ),
        ("hearing:\n  preset: [talk]", "hearing.preset must be one of"),
        ("hearing:\n  pause: 300", "hearing.pause"),
        ("hearing:\n  preset: menu\n  notice_ms: 500", "notice_ms=500 is above pause_ms=400"),
        ("hearing: 3", "must be a section"),
    ],
)
def test_a_section_hearing_that_cannot_be_is_told(text: str, told: str) -> None:
    assert told in str(refused(text))


def test_the_file_that_comes_along_is_good_with_and_without_its_remarks(tmp_path: Path) -> None:
    text = EXAMPLE.read_text("utf-8")
    config(text)
    head, _, body = text.partition("\nlisten:\n")
    assert head.count("\n") > 3
    lines = []
    for line in body.splitlines():
        taken_in = re.fullmatch(r"#(\w+:)", line)
        lines.append(taken_in[1] if taken_in else re.sub(r"^#", " ", line))
    everything = "listen:\n" + "\n".join(lines)
    (tmp_path / "password").write_text("p", "utf-8")
    (tmp_path / "password").chmod(0o600)
    everything = everything.replace("/etc/mr-qwen3tts/provider.password", f"{tmp_path}/password")
    everything = re.sub(r"/var/\w+/mr-qwen3tts/[\w.]+", f"{tmp_path}/kept", everything, count=1)
    everything = re.sub(r"/var/\w+/mr-qwen3tts/[\w.]+", f"{tmp_path}/audio", everything)
    # What would be there: the files of a certificate are tried below.
    everything = re.sub(r"^ +(certificate|key|ca): .*\n", "", everything, flags=re.M)
    found = config(everything, {"OFFICE_PASSWORD": "p"})
    assert {each.name for each in found.accounts} == {"office", "provider", "carrier"}
    assert found.listen.tls is not None
    assert found.safety.gate.users
    assert found.safety.guard.allowed
    assert found.outbound.retry is not None
    assert found.records.audio is not None


# --- what is wrong is told by name and line ---


@pytest.mark.parametrize(
    ("text", "told", "hint"),
    [
        ("listn: {}", "The setting listn is unknown (phone.yaml:1)", "listen"),
        ("listen:\n  prot: 5060", "listen.prot is unknown (phone.yaml:2)", "port"),
        ("media:\n  codec: [PCMU]", "media.codec is unknown (phone.yaml:2)", "codecs"),
        ("safety:\n  gard: {}", "safety.gard is unknown (phone.yaml:2)", "guard"),
        ("safety:\n  guard:\n    allow: [x]", "safety.guard.allow is unknown", "allowed"),
        ("records:\n  audo: x", "records.audo is unknown (phone.yaml:2)", "audio"),
        ("listen:\n  tls:\n    cert: x", "listen.tls.cert is unknown (phone.yaml:3)", "cert"),
        ("outbound:\n  retry:\n    tries: 3", "outbound.retry.tries is unknown", ""),
    ],
)
def test_a_wrong_key_is_told_with_its_line_and_the_right_one(
    text: str, told: str, hint: str
) -> None:
    error = refused(text)
    assert told in error.message
    assert hint in error.remedy


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("listen: {port: 70000}", "port=70000"),
        ("listen: {port: x}", "listen.port must be a whole number"),
        ("listen: {transports: [sctp]}", "transports"),
        ("listen: {transports: [udp, tls]}", "tls needs the tls settings"),
        ("listen: 5", "listen must be a section"),
        ("listen: {tls: {key_password: x}}", "key_password is a secret"),
        ("media: {codecs: []}", "media.codecs is empty"),
        ("media: {codecs: [PCMU, G729]}", "'G729' is no codec of ours (phone.yaml:1)"),
        ("media: {ptime_ms: 25}", "media.ptime_ms=25"),
        ("media: {codecs: [opus], ptime_ms: 30}", "opus"),
        ("media: {jitter_max_s: 3}", "jitter_max_s=3"),
        ("media: {silent_s: 0}", "vanished_s needs"),
        ("listen: {host: nowhere.test}", "is not an IP address"),
        ("listen: {gate: {}}", "listen.gate is unknown"),
        ("media: {srtp: maybe}", "media.srtp must be off or accept or require"),
        ("media: {rtp_ports: [20000]}", "media.rtp_ports must be a list of 2"),
        ("media: {rtp_ports: [20001, 20000]}", "no range of ports"),
        ("media: {rtp_ports: [5000, 6000]}\nlisten: {port: 5060}", "holds the SIP port 5060"),
        ("safety: {gate: {deny: [nowhere]}}", "deny: 'nowhere'"),
        ("safety: {guard: {max_minutes: -1}}", "max_minutes=-1"),
        ("safety: {transfers: perhaps}", "safety.transfers must be"),
        ("records: {consent: shout}", "consent='shout'"),
        ("records: {log: /nonexistent/x}", "records.log: /nonexistent/x cannot be written"),
        ("records: {audio: /etc/hostname}", "is no folder"),
        ("speech: {speed: 9}", "speed=9"),
        ("outbound: {retry: {attempts: 0}}", "attempts=0"),
    ],
)
def test_a_value_that_cannot_be_is_told_with_its_place(text: str, told: str) -> None:
    error = refused(text)
    assert told in error.message
    assert "phone.yaml:" in error.message
    assert error.remedy


def test_two_listeners_on_one_port_are_told_with_both_lines() -> None:
    error = refused("""
listen:
  listeners:
    - {host: 0.0.0.0, port: 5060}
    - {host: 192.0.2.1, port: 5060}
""")
    assert "UDP at 0.0.0.0 (phone.yaml:4) and UDP at 192.0.2.1 (phone.yaml:5)" in error.message
    assert "both want port 5060" in error.message


def test_listeners_of_two_addresses_may_have_one_port() -> None:
    found = config("""
listen:
  listeners:
    - {host: 0.0.0.0, port: 5060}
    - {host: "::", port: 5060}
""")
    assert len(found.listen.listening()) == 2


def test_tls_and_tcp_cannot_have_one_port(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    error = refused(
        f"listen:\n  port: 5061\n  tls: {{certificate: {cert}, key: {key}, port: 5061}}\n"
    )
    assert "both want port 5061" in error.message
    assert "TLS" in error.message


def test_two_accounts_that_are_one_are_told_with_both_lines() -> None:
    error = refused("""
accounts:
  - {name: a, registrar: "sip:pbx.test", user: "200"}
  - {name: b, registrar: "sip:pbx.test", user: "200"}
""")
    assert "'a' (phone.yaml:3) and 'b' (phone.yaml:4) are the same user '200'" in error.message


def test_a_trunk_must_not_have_the_name_of_an_account() -> None:
    error = refused("""
accounts: [{name: a, registrar: "sip:pbx.test", user: "200"}]
trunks: [{name: a, server: "sip:192.0.2.1"}]
""")
    assert "Two accounts have the name 'a'" in error.message


@pytest.mark.parametrize(
    ("registrar", "told"),
    [("sips:pbx.test", "needs TLS"), ("sip:pbx.test;transport=tcp", "needs TCP")],
)
def test_an_account_needs_its_transport(registrar: str, told: str) -> None:
    error = refused(f"""
listen: {{transports: [udp]}}
accounts: [{{name: a, registrar: "{registrar}", user: "200"}}]
""")
    assert told in error.message
    assert "phone.yaml:3" in error.message
    assert "listen" in error.remedy


def test_a_codec_of_an_account_is_checked_too() -> None:
    error = refused("""
accounts:
  - {name: a, registrar: "sip:pbx.test", user: "200", codecs: [PCMX]}
""")
    assert "'PCMX' is no codec of ours (phone.yaml:3)" in error.message
    assert "Did you mean PCMU?" in error.remedy


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match="No such file") as error:
        load_phone_config(tmp_path / "none.yaml")
    assert "configs/phone.yaml" in error.value.remedy


# --- certificates ---


def badly(tls: str) -> BadCertificate:
    with pytest.raises(BadCertificate) as error:
        config(f"listen:\n  tls: {tls}\n")
    assert "phone.yaml:2" in error.value.message
    assert error.value.remedy
    return error.value


def test_a_key_that_does_not_fit_its_certificate_is_told_before_anything_is_bound(
    certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    other = Authority(tmp_path, "another").sign("other", "other.test").key
    error = badly(f"{{certificate: {certificate[0]}, key: {other}}}")
    assert "does not fit the certificate" in error.message


def test_a_certificate_that_has_expired_is_told(tmp_path: Path) -> None:
    old = Authority(tmp_path).sign("old", "phone.example.test", begins=-9 * DAY, ends=-DAY)
    assert "has expired" in badly(f"{{certificate: {old.certificate}, key: {old.key}}}").message


def test_a_certificate_that_is_not_there_is_told() -> None:
    assert "No such file" in badly("{certificate: /nonexistent/cert.pem}").message


def test_the_password_of_a_key_comes_from_a_file_of_its_own(tmp_path: Path) -> None:
    made = Authority(tmp_path).sign("phone", "phone.example.test", password=b"open sesame")
    (tmp_path / "secret").write_text("open sesame\n", "utf-8")
    tls = f"certificate: {made.certificate}, key: {made.key}"
    found = config(f"listen: {{tls: {{{tls}, key_password_file: {tmp_path / 'secret'}}}}}")
    assert found.listen.tls is not None
    assert found.listen.tls.key_password == "open sesame"
    assert "sesame" not in repr(found)
    assert "does not open it" in badly(f"{{{tls}}}").message


def test_a_certificate_for_another_name_is_remarked(certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    text = f"listen:\n  tls: {{certificate: {cert}, key: {key}}}\n  advertised_host: sip.other.test"
    told = remarks(text)
    assert "does not bear the name 'sip.other.test'" in told
    assert "phone.yaml:2" in told
    assert "bear the name" not in remarks(text.replace("sip.other.test", "phone.example.test"))


# --- what is probably not meant ---


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("accounts: [{registrar: 'sip:198.51.100.1', user: a}]", "is on another machine"),
        (
            "listen: {host: 10.0.0.5}\naccounts: [{registrar: 'sip:sip.example.com', user: a}]",
            "Behind NAT",
        ),
        ("listen: {host: 0.0.0.0, advertised_host: 127.0.0.1}", "leads nowhere"),
        (
            "media: {srtp: require}\naccounts: [{registrar: 'sip:127.0.0.1', user: a}]",
            "keys go over plain SIP",
        ),
        ("media: {rtp_ports: [20000, 20009]}", "room for 5 calls"),
        ("records: {audio: /tmp/audio, consent: tone}", "kept for ever"),
        ("records: {audio: /tmp/audio, audio_keep_days: 3}", "without a notice"),
        ("safety: {transfers: accept}", "any number in its place"),
    ],
)
def test_what_is_probably_not_meant_is_remarked(text: str, told: str) -> None:
    assert told in remarks(text)
    assert "phone.yaml:" in remarks(text)


@pytest.mark.parametrize(
    "text",
    [
        "accounts: [{registrar: 'sip:127.0.0.1:5080', user: a}]",
        "listen: {host: 10.0.0.5, nat: learn}\n"
        "accounts: [{registrar: 'sip:sip.example.com', user: a}]",
        "listen: {host: 10.0.0.5, tls: {}}\nmedia: {srtp: require}\n"
        "accounts: [{registrar: 'sips:10.0.0.9', user: a}]",
        "safety: {transfers: accept, guard: {allowed: ['2??']}}",
    ],
)
def test_what_is_meant_is_not_remarked(text: str) -> None:
    assert remarks(text) == ""


def test_a_password_that_others_can_read_is_remarked(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("x", "utf-8")
    file.chmod(0o644)
    text = f"accounts: [{{registrar: 'sip:127.0.0.1', user: a, password_file: {file}}}]"
    assert "can be read by everybody" in remarks(text)
    file.chmod(0o600)
    assert remarks(text) == ""


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("listen: {ring_timeout_s: -3}", "ring_timeout_s"),
        ("listen: {timers: {t1: 0}}", "t1"),
        ("listen: {timers: {t2: -1}}", "t2"),
        ("listen: {timers: {t4: .nan}}", "t4"),
        ("media: {host: foo bar}", "media.host"),
        ("media: {process: {priority: 200}}", "priority"),
        ("media: {rtp_ports: [20001, 20002]}", "rtp_ports"),
        ("speech: {server: 'http://127.0.0.1'}", "speech.server"),
        ("speech: {seed: -1}", "seed"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_its_name(text: str, name: str) -> None:
    error = refused(text)
    assert name.removeprefix("media.").removeprefix("speech.") in error.message
    assert "phone.yaml:1" in error.message
    assert error.remedy


def test_a_log_in_a_folder_that_is_not_there_is_refused_with_the_folder(tmp_path: Path) -> None:
    error = refused(f"records: {{log: {tmp_path}/none/calls.jsonl}}")
    assert f"{tmp_path}/none" in error.message
    assert "mkdir" in error.remedy


def test_the_file_for_callers_without_a_speech_server_is_checked(tmp_path: Path) -> None:
    error = refused(f"speech: {{unavailable_file: {tmp_path / 'sorry.wav'}}}")
    assert "speech: unavailable_file=" in error.message
    assert "cannot be read" in error.message


def test_calls_of_every_line_have_one_default_bound() -> None:
    bounds = {
        PhoneSettings().max_calls,
        PhoneSettings().sip_settings().max_calls,
        SipSettings().max_calls,
        StreamSettings(kinds=("audiosocket",)).max_calls,
        config("listen: {}").settings().max_calls,
    }
    assert bounds == {250}
