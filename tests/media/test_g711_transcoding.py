from __future__ import annotations

import numpy as np
import pytest

from qwen3tts_codecs.g711 import decode_alaw, decode_ulaw
from qwen3tts_pacer import Frame
from qwen3tts_phone.media.outbound import codec_number, table_between, translated

EVERY = bytes(range(256))
DECODE = {"PCMU": decode_ulaw, "PCMA": decode_alaw}


def table(one: str, other: str) -> bytes:
    numbers = codec_number(one), codec_number(other)
    assert numbers[0] is not None
    assert numbers[1] is not None
    found = table_between(numbers[0], numbers[1])
    assert found is not None
    return found


@pytest.mark.parametrize(("one", "other"), [("PCMU", "PCMA"), ("PCMA", "PCMU")])
def test_each_code_word_becomes_the_nearest_one_of_the_other_law(one: str, other: str) -> None:
    levels = DECODE[one](EVERY).astype(int)
    found = DECODE[other](EVERY.translate(table(one, other))).astype(int)
    ladder = DECODE[other](EVERY).astype(int)
    best = np.abs(levels[:, None] - ladder[None, :]).min(axis=1)
    assert np.array_equal(np.abs(found - levels), best)
    assert not np.any(np.sign(levels) * np.sign(found) < 0)


@pytest.mark.parametrize(("one", "other"), [("PCMU", "PCMA"), ("PCMA", "PCMU")])
def test_there_and_back_and_there_again_is_as_once(one: str, other: str) -> None:
    there = EVERY.translate(table(one, other))
    again = there.translate(table(other, one)).translate(table(one, other))
    assert DECODE[other](again).tolist() == DECODE[other](there).tolist()


def test_silence_stays_silence() -> None:
    assert b"\xff".translate(table("PCMU", "PCMA")) == b"\xd5"
    assert abs(int(decode_ulaw(b"\xd5".translate(table("PCMA", "PCMU")))[0])) <= 8


def test_a_frame_is_translated_in_all_its_forms() -> None:
    frame = Frame(b"\xff", None, b"\x7f", 1, 0, 480)
    changed = translated(frame, table("PCMU", "PCMA"))
    assert changed == Frame(b"\xd5", None, b"\x55", 1, 0, 480)


def test_other_codecs_have_no_table() -> None:
    assert codec_number("opus") is None
    assert table_between(1, 1) is None
    assert table_between(3, 1) is None
