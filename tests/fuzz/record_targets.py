"""Fuzz targets: logs of calls, sound that a detector hears, and what the far end calls itself."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np

from qwen3tts_phone.audio.answering import AnsweringMachineDetector
from qwen3tts_phone.audio.tones import ToneDetector
from qwen3tts_phone.diagnosis.diagnose import diagnose
from qwen3tts_phone.diagnosis.findings import CODES
from qwen3tts_phone.facts import CallFacts, EndFacts
from qwen3tts_phone.records.log import read_records
from qwen3tts_phone.records.record import CallRecord
from qwen3tts_phone.records.store import party_in_name
from qwen3tts_phone.sdp.addresses import address_scope, same_address
from tests.fuzz.target import Target

RATES = (8000, 16_000, 24_000, 48_000)
_NAME = re.compile(r"(?:-[A-Za-z0-9+_-]{1,32})?")


def run_call_log(data: bytes) -> None:
    reader = read_records(io.BytesIO(data))
    for record in reader:
        assert CallRecord.from_json(record.to_json()) == record
        assert isinstance(record.id + record.outcome + record.diagnosis, str)
    assert reader.damaged <= reader.lines <= data.count(b"\n") + 1


def run_hearing(data: bytes) -> None:
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

TARGETS: dict[str, Target] = {
    "call_log": Target(
        run_call_log,
        "A log of calls is read line by line; a damaged line is counted.",
        (_RECORD, _RECORD + b"\n" + _RECORD[:40]),
        words=(b'"record":1', b'"id":', b'"started":', b'"direction":', b"null", b"\n", b"NaN"),
    ),
    "line_sounds": Target(
        run_hearing,
        "Any sound is a tone or none, a person, a machine or nobody.",
        (b"\x00" + _SINE, b"\x0b" + _SINE + bytes(1600)),
    ),
    "call_facts": Target(
        run_facts,
        "Whatever the far end calls itself, the record is one line and file names are harmless.",
        (b"sip:alice@192.0.2.1", b"10.0.0.1", b'"A" <sip:+15550100@pbx.example;user=phone>;tag=x'),
        words=(b"../", b"\x00", b"<sip:", b"@", b"[::1]", b"%", b"\r\n"),
    ),
}
HARD: dict[str, tuple[bytes, ...]] = {
    "call_log": (
        b"[" * 4000,
        b'{"record":1,"id":"","direction":"","started":"2026-01-01T00:00:00Z"}\n\n\xff\n{}',
        b'{"record":1e999}',
        b'{"record":1,"id":"a","direction":"in","started":"yesterday"}',
        b'{"record":1,"id":"\\ud800","direction":"in","started":"2026-01-01","outcome":{}}',
        b'{"record":1,"id":"a","direction":"in","started":"2026-01-01","x":NaN}',
        b'{"record":1,"id":"a","direction":"in","started":"2026-01-01","x":-1e999}',
        b'{"record":' + b"1" * 3000 + b"}",
    ),
    "line_sounds": (b"", b"\x01", b"\xff\x00", b"\x00" + b"\x00\x80" * 2000),
    "call_facts": (b"", b"\xff\xfe", b"::ffff:1.2.3.4%", b"sip:" + b"a" * 4000, b"fe80::%" * 3),
}
