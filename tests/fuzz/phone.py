"""The phone's settings file, call records, tones, and the softphone's page."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import numpy as np

from qwen3tts_phone.audio.answering import AnsweringMachineDetector
from qwen3tts_phone.audio.tones import ToneDetector
from qwen3tts_phone.diagnosis.diagnose import diagnose
from qwen3tts_phone.diagnosis.findings import CODES
from qwen3tts_phone.errors import BadCertificate
from qwen3tts_phone.facts import CallFacts, EndFacts
from qwen3tts_phone.records.log import read_records
from qwen3tts_phone.records.record import CallRecord
from qwen3tts_phone.records.store import party_in_name
from qwen3tts_phone.sdp.addresses import address_scope, same_address
from qwen3tts_phone.settings.file import config_from
from qwen3tts_phone.softphone.access import AllowedHosts, bearer_token
from qwen3tts_phone.softphone.messages import (
    MAX_TYPED_CHARS,
    PAGE_MESSAGES,
    Error,
    Type,
    encoded,
    read_page,
)
from qwen3tts_settings.entries import BadConfiguration, from_yaml
from qwen3tts_wire.errors import SpeechError
from qwen3tts_wire.fields import DecodeError
from tests.fuzz.target import Target

SECRET = "the-one-password-of-all"


def run_phone_config(data: bytes) -> None:
    """The bytes are a file; whatever it says is taken, or refused by a named error."""
    text = data.decode("utf-8", "replace")
    with contextlib.suppress(BadCertificate):
        refused: list[BadConfiguration] = []
        try:
            found = config_from(from_yaml(text, "f"), {"P": SECRET})
            assert SECRET not in f"{found!r} {found.settings()!r}"
        except BadConfiguration as error:
            refused.append(error)
        for each in refused:
            assert each.message
            assert each.remedy
            assert SECRET not in f"{each} {each.remedy}"


RATES = (8000, 16_000, 24_000, 48_000)

_NAME = re.compile(r"(?:-[A-Za-z0-9+_-]{1,32})?")


def run_call_log(data: bytes) -> None:
    reader = read_records(io.BytesIO(data))
    records = list(reader)
    for record in records:
        assert CallRecord.from_json(record.to_json()) == record
        assert isinstance(record.id + record.outcome + record.diagnosis, str)
    assert len(records) + reader.damaged <= reader.lines <= data.count(b"\n") + 1


def run_call_tones(data: bytes) -> None:
    """The first byte chooses the rate and how the sound is cut."""
    choice = data[0] if data else 0
    sound = np.frombuffer(data[1 : len(data) - (len(data) - 1) % 2 if data else 0], "<i2")
    rate = RATES[choice % 4]
    step = 1 + choice * 7
    machine, tones = AnsweringMachineDetector(rate), ToneDetector(rate)
    for at in range(0, len(sound), step):
        part = sound[at : at + step].astype(np.int16)
        machine.push(part)
        for tone in tones.push(part):
            assert 0 <= tone.began_s <= tone.at_s <= len(sound) / rate + 0.01


def run_facts(data: bytes) -> None:
    """Text of the far end, in every place where a record or a diagnosis has some."""
    text = data.decode("utf-8", "surrogateescape")
    facts = CallFacts(
        call_id=text,
        remote_uri=text,
        identity=text,
        user_agent=text,
        end=EndFacts(by="remote", status=300 + len(data) % 400, reason=text),
    )
    facts.media.codec = text[:9]
    facts.media.local, facts.media.remote = (text, 1), (text[::-1], 2)
    facts.media.peer_host = text[1:]
    line = CallRecord.of(facts).to_json()
    assert line.isascii()
    assert "\n" not in line
    CallRecord.from_json(line)
    assert {each.code for each in diagnose(facts)} <= set(CODES)
    address_scope(text)
    same_address(text, text[1:])
    name = party_in_name(text)
    assert _NAME.fullmatch(name)
    assert Path(f"x{name}.wav").name == f"x{name}.wav"


_RECORD = CallRecord.of(CallFacts(call_id="a", end=EndFacts(by="local"))).to_json().encode()

_SINE = np.rint(8000 * np.sin(np.arange(1200) * 0.7)).astype("<i2").tobytes()

HOSTS = (AllowedHosts("127.0.0.1", ["box.local"]), AllowedHosts("0.0.0.0"))


def run_softphone_page(data: bytes) -> None:
    """One text message."""
    read = read_page(data.decode("utf-8", "replace"))
    if isinstance(read, DecodeError):
        assert isinstance(read.error, SpeechError)
        told = Error(read.error.code, read.error.message, read.error.remedy, read.type or "")
        encoded(told).encode()
        return
    assert PAGE_MESSAGES[read.type] is type(read)
    if isinstance(read, Type):
        assert len(read.text) <= MAX_TYPED_CHARS
    text = encoded(read)
    text.encode()
    again = read_page(text)
    assert not isinstance(again, DecodeError)
    assert read_page(encoded(again)) == again


def run_softphone_access(data: bytes) -> None:
    """Two lines: the Host and the Origin of a request; the first also as an Authorization."""
    host, _, origin = data.decode("latin-1").partition("\n")
    bearer_token(host)
    for hosts in HOSTS:
        if hosts.same_origin(origin, host, "http"):
            assert origin.startswith("http://")
        assert not hosts.admits(f"{host}.evil.example")
        assert not hosts.same_origin(f"{origin}.evil.example", host, "http")
    if HOSTS[0].admits(host):
        assert host.lower().startswith(("127.", "localhost", "box.local", "["))


TARGETS = {
    "phone_config": Target(
        run_phone_config,
        "A phone's settings are read, or refused by a named error with a remedy and no password.",
        (
            b"listen: {host: 0.0.0.0, port: 5060, transports: [udp, tcp], tls: {}}\n",
            b"accounts:\n - {name: a, registrar: 'sips:h', user: '1', password_env: P}\n",
            b"trunks:\n - {name: b, server: 'sip:h', allowed_sources: [192.0.2.0/24]}\n",
            b"media: {codecs: [PCMU], srtp: off, rtp_ports: [20000, 20099]}\n",
            b"safety: {gate: {allow: []}, guard: {allowed: ['+49']}, transfers: ask}\n",
            b"outbound: {retry: {attempts: 2, waits_s: [60]}}\nrequire_registration: false\n",
        ),
        (b"accounts", b"trunks", b"listen", b"media", b"registrar", b"server", b": ", b"- ", b"!!"),
        # PyYAML takes a time in proportion to the square of how deep brackets are nested.
        max_bytes=1024,
        hard=(
            b"accounts: [{password: the-one-password-of-all}]",
            b"accounts: [{registrar: nowhere at all, user: a, password_env: P}]",
            b"accounts: [{registrar: 'sip:h', user: a, password_env: P, password_file: /x}]",
            b"accounts: [{registrar: 'sip:h', user: a, password_file: /nonexistent/x}]",
            b"accounts: [{registrar: 'sip:h', user: a, password_env: [P]}]",
            b"accounts: [{registrar: 'sip:h:99999', user: a}]",
            b"accounts: [{registrar: 'sip:[::1', user: a}]",
            b"accounts: [{registrar: 'tel:+1', user: a}]",
            b"accounts: [{registrar: 'sip:h;transport=carrier-pigeon', user: a}]",
            b"accounts: {a: b}\ntrunks: 5\n",
            b"trunks: [{server: 'sip:h', registrar: 'sip:h'}]",
            b"trunks: [{server: 'sip:h', register: true}]",
            b"trunks: [{server: 5}]",
            b"listen: {host: []}",
            b"listen: {host: nowhere.invalid}",
            b"listen: {host: ['::', '0.0.0.0']}",
            b"listen: {gate: {}}",
            b"listen: {tls: {certificate: /nonexistent}}",
            b"listen: {tls: {key_password_env: P}}",
            b"listen: {tls: {key_password: the-one-password-of-all}}",
            b"listen: {listeners: [{port: 5060}, {port: 5060}]}",
            b"listen: {dns: {nameservers: [x]}}",
            b"listen: {timers: {t1: .nan}}",
            b"media: {rtp_ports: [1, 99999999999999999999]}",
            b"media: {ptime_ms: -20}",
            b"media: {codecs: ['']}",
            b"media: {codecs: [opus, OPUS, PCMU, pcmu]}",
            b"records: {log: ''}",
            b'records: {log: "\\0"}',
            b"records: {audio: /dev/null/x}",
            b"speech: {latency_log: " + b"x" * 300 + b"}",
            b'listen: {tls: {ca: "\\0"}}',
            b"listen: {tls: {ca: /dev/zero}}",
            b"accounts: [{registrar: 'sip:h', user: a, password_file: /dev/zero}]",
            b"outbound: {retry: {causes: [answered]}}",
            b"outbound: {retry: {waits_by_cause: [[busy, 5]]}}",
            b"safety: {gate: {allow: [a]}}",
            b"safety: {guard: {country: x}}",
            b"\xff\xfe",
            b"a: &a {b: *a}",
            b"listen: !!python/name:os.system\n",
        ),
    ),
    "call_log": Target(
        run_call_log,
        "A log of calls is read line by line; a damaged line is counted.",
        (_RECORD, _RECORD + b"\n" + _RECORD[:40]),
        words=(b'"record":1', b'"id":', b'"started":', b'"direction":', b"null", b"\n", b"NaN"),
        hard=(
            b"[" * 4000,
            b'{"record":1,"id":"","direction":"","started":"2026-01-01T00:00:00Z"}\n\n\xff\n{}',
            b'{"record":1e999}',
            b'{"record":1,"id":"a","direction":"in","started":"yesterday"}',
            b'{"record":1,"id":"\\ud800","direction":"in","started":"2026-01-01","outcome":{}}',
            b'{"record":1,"id":"a","direction":"in","started":"2026-01-01","x":NaN}',
            b'{"record":1,"id":"a","direction":"in","started":"2026-01-01","x":-1e999}',
            b'{"record":' + b"1" * 3000 + b"}",
        ),
    ),
    "call_tones": Target(
        run_call_tones,
        "Any sound is a tone or none, a person, a machine or undecided.",
        (b"\x00" + _SINE, b"\x0b" + _SINE + bytes(1600)),
        hard=(b"", b"\x01", b"\xff\x00", b"\x00" + b"\x00\x80" * 2000),
    ),
    "call_facts": Target(
        run_facts,
        "Whatever name the far end gives, the record is one line and file names are harmless.",
        (b"sip:alice@192.0.2.1", b"10.0.0.1", b'"A" <sip:+15550100@pbx.example;user=phone>;tag=x'),
        words=(b"../", b"\x00", b"<sip:", b"@", b"[::1]", b"%", b"\r\n"),
        hard=(b"", b"\xff\xfe", b"::ffff:1.2.3.4%", b"sip:" + b"a" * 4000, b"fe80::%" * 3),
    ),
    "softphone_page": Target(
        run_softphone_page,
        "Any text is a message that can be written and read again, or a typed fault.",
        (
            b'{"type":"hello","token":"abc","resume":"s1"}',
            b'{"type":"call","sdp":"v=0\\r\\n","codec":"opus","record":true,"barge_in":false}',
            b'{"type":"dial","sdp":"v=0","uri":"sip:bob@192.0.2.7"}',
            b'{"type":"type","utterance":3,"text":"Good \\ud83d"}',
            b'{"type":"report","rtt_ms":1.5,"lost":0,"received":400}',
            b'{"type":"key","digit":"#"}',
            b'{"type":"ping","time":-1e3}',
        ),
        (
            *(f'"{name}"'.encode() for name in PAGE_MESSAGES),
            *(b'"sdp":', b'"utterance":', b"true", b"null", b"1e999", b"\\ud800"),
        ),
        hard=(
            b"",
            b"[" * 4000,
            b'{"type":"type","utterance":1e99,"text":""}',
            b'{"type":"type","utterance":true,"text":""}',
            b'{"type":"ping","time":1e999}',
            b'{"type":"hello","token":"a","token":"b"}',
            b'{"type":"hello","token":"\\u0000"}',
            b'{"type":{"type":"call"}}',
            b'{"type":"type","utterance":1,"text":"' + b"\\ud83d" * 600 + b'"}',
            b'{"type":"call","sdp":"' + b"a" * 3000 + b'","engine":"' + b"e" * 200 + b'"}',
            b'{"type":"report","rtt_ms":-0.0,"lost":1e12,"concealed":1e13}',
            '{"type":"listen","sdp":"v=0","call_id":"\u202e\u2028"}'.encode(),
            b"\xed\xa0\x80",
        ),
    ),
    "softphone_access": Target(
        run_softphone_access,
        "Any Host and Origin are admitted or not; a foreign name never leads to this machine.",
        (b"127.0.0.1:8780\nhttp://127.0.0.1:8780", b"[::1]:80\nhttps://[::1]", b"Bearer abc\nnull"),
        (b"localhost", b"http://", b"https://", b"[::", b"]", b"@", b":99999", b"box.local"),
        max_bytes=400,
        hard=(
            b"[\nhttp://[",
            b"[::1\nhttp://[::1%25eth0]",
            b"127.0.0.1:port\nhttp://127.0.0.1:port",
            b"localhost.\nhttp://user@localhost.",
            b"\xb2.\xb2\nhttp://\xe2\x84\x80.example",
            b"127.0.0.1#@evil.example\nhttp://127.0.0.1#@evil.example",
            b"0x7f.1\nhttp://0x7f.1",
            b"//evil.example\n////",
        ),
    ),
}
