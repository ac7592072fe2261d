"""Payload formats."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwen3tts_codecs import (
    CODECS,
    L16,
    PCMA,
    PCMU,
    BadSamples,
    Payload,
    UnknownPayload,
    UnsupportedPtime,
    UnsupportedRate,
    l16,
    payload_by_name,
    payload_by_type,
    slin,
)
from qwen3tts_phone.media.types import SILENCE


@pytest.mark.parametrize(
    ("payload", "name", "payload_type", "silence", "frame"),
    [
        (PCMU, "PCMU", 0, b"\xff", 160),
        (PCMA, "PCMA", 8, b"\xd5", 160),
        (l16(16000, 118), "L16", 118, b"\0\0", 640),
        (L16, "L16", 11, b"\0\0", 1764),
    ],
)
def test_a_format_is_what_rfc_3551_says(
    payload: Payload, name: str, payload_type: int, silence: bytes, frame: int
) -> None:
    assert (payload.name, payload.payload_type) == (name, payload_type)
    assert payload.silence == silence
    assert payload.frame_bytes(20) == frame
    assert payload.silent_frame(20) == silence * (frame // payload.sample_bytes)
    assert payload.clock_hz == payload.sample_hz
    assert payload.encode(np.zeros(3, np.int16)) == silence * 3


@pytest.mark.parametrize("ptime", [10, 20, 30, 40, 50, 60])
def test_frames_of_8_khz_are_8_bytes_a_millisecond(ptime: int) -> None:
    assert PCMU.frame_bytes(ptime) == PCMA.frame_bytes(ptime) == 8 * ptime


@pytest.mark.parametrize("ptime", [0, 9, 61, -20, 20.0, "20", None, True])
def test_a_ptime_out_of_bounds_is_refused(ptime: Any) -> None:
    with pytest.raises(UnsupportedPtime, match="ptime"):
        PCMU.frame_bytes(ptime)


def test_a_frame_that_is_not_whole_samples_is_refused() -> None:
    assert l16(22050, 100).frame_samples(20) == 441
    with pytest.raises(UnsupportedPtime, match="take 20 ms"):
        l16(22050, 100).frame_samples(10)


def test_linear_samples_go_in_network_order() -> None:
    pcm = np.array([1, -2, 32767, -32768], np.int16)
    assert L16.encode(pcm) == b"\x00\x01\xff\xfe\x7f\xff\x80\x00"
    assert L16.decode(L16.encode(pcm)).tolist() == pcm.tolist()
    assert L16.decode(L16.encode(pcm)).dtype == np.int16


def test_wrong_linear_samples_are_refused() -> None:
    with pytest.raises(BadSamples, match="3 bytes"):
        L16.decode(b"abc")
    with pytest.raises(BadSamples, match="L16"):
        L16.encode(np.zeros(3, np.float32))


def test_formats_are_found_by_name_and_by_type() -> None:
    assert payload_by_name("pcmu") is PCMU
    assert payload_by_name("PCMA") is PCMA
    assert payload_by_type(0) is PCMU
    assert payload_by_type(8) is PCMA
    assert payload_by_type(11) is L16


def test_an_unknown_format_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(UnknownPayload, match=r"'G729'.*PCMU, PCMA"):
        payload_by_name("G729")
    with pytest.raises(UnknownPayload, match=r"18.*\[0, 8, 9, 11\]"):
        payload_by_type(18)
    with pytest.raises(UnknownPayload, match="96 to 127"):
        l16(16000, 11)
    with pytest.raises(UnsupportedRate, match="sample_hz"):
        l16(100, 96)


def test_linear_samples_of_streams_are_low_byte_first() -> None:
    payload = slin(24_000)
    pcm = np.array([1, -2, 32767, -32768], np.int16)
    assert payload.encode(pcm) == b"\x01\x00\xfe\xff\xff\x7f\x00\x80"
    assert payload.decode(payload.encode(pcm)).tolist() == pcm.tolist()
    assert payload.frame_bytes(20) == 960
    assert payload != l16(24_000, 127)
    with pytest.raises(BadSamples):
        payload.decode(b"abc")
    with pytest.raises(UnsupportedRate):
        slin(100)


ROOT = Path(__file__).parents[2]

AMR_WB = '''
"""AMR-WB, as a stub: its frames have the right sizes, and nothing of the sound."""

import numpy as np

from qwen3tts_codecs.payload import CodecRating, CodecSpec, Payload

FRAME = bytes([0xF0, 0x44]) + bytes(60)  # RFC 4867: request, table of contents, 23.85 kbit/s


class Encoder:
    delay_samples = 80

    def __init__(self, frame_samples):
        self.frame_samples = frame_samples

    def encode(self, pcm):
        return FRAME


class Decoder:
    def decode(self, data):
        return np.zeros(320, np.int16)


AMR_WB = Payload(
    "AMR-WB",
    112,
    16_000,
    16_000,
    0,
    b"",
    lambda pcm: FRAME,
    lambda data: Decoder().decode(data),
    make_encoder=Encoder,
    make_decoder=Decoder,
    make_silence=lambda ptime_ms: FRAME,
    ptimes_ms=(20,),
)
SPECS = (
    CodecSpec(
        AMR_WB,
        fmtp="octet-align=1",
        configured=lambda payload, fmtp: payload,
        rating=CodecRating(1.0, 13.0, 5.0),
        aliases=("amr-wb",),
    ),
)
'''

LEARNT = """
import asyncio, tempfile
from pathlib import Path

import numpy as np
import typer

from qwen3tts_cli.calls.phone import codec_names, parsed_codecs
from qwen3tts_codecs.table import UNRATED, codec_by_alias, rating_of
from qwen3tts_pacer import AudioPacer
from qwen3tts_phone.diagnosis.quality import rate_direction
from qwen3tts_phone.sdp.session import SdpOptions, SdpSession
from qwen3tts_phone.settings.file import read_phone_config
from qwen3tts_phone.settings.phone import PhoneSettings

# SDP: offered with its rtpmap and fmtp, answered, and agreed on by both.
caller = SdpSession("127.0.0.1", 4000, SdpOptions(codecs=("AMR-WB", "PCMU")))
callee = SdpSession("127.0.0.1", 4002, SdpOptions(codecs=("PCMA", "amr-wb")))
offer = caller.offer()
assert "m=audio 4000 RTP/AVP 112 0 " in offer, offer
assert "a=rtpmap:112 AMR-WB/16000\\r\\n" in offer, offer
assert "a=fmtp:112 octet-align=1\\r\\n" in offer, offer
answer, agreed = callee.answer(offer)
assert (agreed.payload_name, agreed.payload_type, agreed.clock_hz) == ("AMR-WB", 112, 16_000)
assert caller.accept(answer).payload_name == "AMR-WB"

# Settings, in code and in a file.
assert PhoneSettings(codecs=("AMR-WB", "PCMU")).codecs == ("AMR-WB", "PCMU")
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "phone.yaml"
    file.write_text("media: {codecs: [AMR-WB, PCMA]}")
    assert read_phone_config(file, {}).media.codecs == ("AMR-WB", "PCMA")
    file.write_text("media: {codecs: [AMR-BW]}")
    try:
        read_phone_config(file, {})
    except Exception as error:
        assert "AMR-WB" in error.remedy, error.remedy

# The E-model, and a carrier's name.
assert rating_of("amr-wb") != UNRATED
assert rate_direction("AMR-WB", loss=0.02).r != rate_direction("G729", loss=0.02).r
assert codec_by_alias("amr-wb").name == "AMR-WB"

# The command line: taken, completed, and named where another one is refused.
assert parsed_codecs("amr-wb,pcmu") == ("AMR-WB", "PCMU")
assert codec_names("PCMU,am") == ["PCMU,AMR-WB"]
try:
    parsed_codecs("EVS")
except typer.BadParameter as error:
    assert "AMR-WB" in str(error), error

# The AudioPacer paces it.
pacer = AudioPacer(codec="AMR-WB")
pacer.push_pcm(np.zeros(2400, np.int16))
pacer.start()
assert len(pacer.due().payload) == 62
print("learnt")
"""


def test_a_codec_is_one_module_and_one_line_of_the_table(tmp_path: Path) -> None:
    package = tmp_path / "codecs/qwen3tts_codecs"
    shutil.copytree(ROOT / "codecs/qwen3tts_codecs", package)
    (package / "amr_wb.py").write_text(AMR_WB)
    table = package / "table.py"
    text = table.read_text()
    assert text.count('    "g722",\n') == 1
    table.write_text(text.replace('    "g722",\n', '    "g722",\n    "amr_wb",\n'))
    path = [tmp_path / "codecs", *(ROOT / name for name in ("pacer", "server", "phone", "cli"))]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\nsys.path[:0] = {[*map(str, path)]}\n{LEARNT}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=tmp_path,
    )
    assert done.stdout == "learnt\n", done.stderr


def test_the_media_process_knows_the_idle_codes_of_g711_as_the_table_does() -> None:
    for name, idle in SILENCE.items():
        assert CODECS[name].payload.silence == idle
