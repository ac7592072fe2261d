"""G.711, over all 65536 samples and all 256 code words."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_codecs import (
    ALAW_SILENCE,
    ULAW_SILENCE,
    BadSamples,
    Pcm,
    decode_alaw,
    decode_ulaw,
    encode_alaw,
    encode_ulaw,
)

SAMPLES = np.arange(-32768, 32768)
PCM = SAMPLES.astype(np.int16)
CODES = bytes(range(256))

laws = pytest.mark.parametrize(
    ("encode", "decode"),
    [
        pytest.param(encode_ulaw, decode_ulaw, id="mu-law"),
        pytest.param(encode_alaw, decode_alaw, id="A-law"),
    ],
)


def itu_ulaw(sample: int) -> int:
    """The rule of ulaw_compress in the ITU-T software tool library (G.191), 14 bits of 16."""
    magnitude = min(((~sample if sample < 0 else sample) >> 2) + 33, 0x1FFF)
    segment = magnitude.bit_length() - 5
    word = (8 - segment) << 4 | (0xF - (magnitude >> segment & 0xF))
    return word | (0x80 if sample >= 0 else 0)


def itu_alaw(sample: int) -> int:
    """The rule of alaw_compress in the same library, 12 bits of 16."""
    magnitude = (~sample if sample < 0 else sample) >> 4
    if magnitude > 15:
        exponent = magnitude.bit_length() - 4
        magnitude = (magnitude >> (exponent - 1)) - 16 + (exponent << 4)
    return (magnitude | (0x80 if sample >= 0 else 0)) ^ 0x55


def error(codes: bytes, decode: Callable[[bytes], Pcm]) -> NDArray[np.int64]:
    """How far each sample's level is from the sample."""
    away: NDArray[np.int64] = np.abs(decode(codes).astype(np.int64) - SAMPLES)
    return away


def nearest(decode: Callable[[bytes], Pcm]) -> NDArray[np.int64]:
    """How far the nearest level is from each sample."""
    levels = decode(CODES).astype(np.int64)
    away: NDArray[np.int64] = np.abs(levels[None, :] - SAMPLES[:, None]).min(axis=1)
    return away


def differences(one: bytes, other: bytes) -> int:
    return sum(left != right for left, right in zip(one, other, strict=True))


@laws
def test_every_sample_becomes_the_nearest_level(
    encode: Callable[[Pcm], bytes], decode: Callable[[bytes], Pcm]
) -> None:
    assert np.array_equal(error(encode(PCM), decode), nearest(decode))


@laws
def test_the_sign_is_one_bit(
    encode: Callable[[Pcm], bytes], decode: Callable[[bytes], Pcm]
) -> None:
    above = np.arange(1, 32768).astype(np.int16)
    assert bytes(code ^ 0x80 for code in encode(above)) == encode(-above)
    assert encode(np.array([-32768], np.int16)) == encode(np.array([-32767], np.int16))
    assert np.array_equal(decode(bytes(code ^ 0x80 for code in CODES)), -decode(CODES))


def test_every_code_word_comes_back() -> None:
    assert encode_alaw(decode_alaw(CODES)) == CODES
    # Mu-law has two zeros, and a sample has one: 0x7F, minus zero, comes back as plus zero.
    assert encode_ulaw(decode_ulaw(CODES)) == CODES.replace(b"\x7f", b"\xff")


def test_a_minus_too_small_for_a_level_keeps_its_sign() -> None:
    assert encode_ulaw(np.array([-3, -1, 0, 1, 3], np.int16)) == b"\x7f\x7f\xff\xff\xff"
    assert encode_alaw(np.array([-3, -1, 0, 1, 3], np.int16)) == b"\x55\x55\xd5\xd5\xd5"


@laws
def test_louder_never_becomes_quieter(
    encode: Callable[[Pcm], bytes], decode: Callable[[bytes], Pcm]
) -> None:
    assert np.all(np.diff(decode(encode(PCM)).astype(int)) >= 0)


def test_known_levels_of_the_recommendation() -> None:
    # ITU-T G.711 tables 2a and 1a, decoder output times 4 and times 8; code words as sent.
    known_ulaw = {0x80: 32124, 0x8F: 16764, 0x9F: 8316, 0xEF: 132, 0xFE: 8, 0xFF: 0, 0x00: -32124}
    known_alaw = {0xAA: 32256, 0xA5: 16896, 0xD5: 8, 0x55: -8, 0x2A: -32256, 0xC5: 264}
    assert {code: int(decode_ulaw(bytes([code]))[0]) for code in known_ulaw} == known_ulaw
    assert {code: int(decode_alaw(bytes([code]))[0]) for code in known_alaw} == known_alaw


def test_silence_is_the_code_word_of_zero() -> None:
    zero = np.zeros(1, np.int16)
    assert encode_ulaw(zero) == bytes([ULAW_SILENCE]) == b"\xff"
    assert encode_alaw(zero) == bytes([ALAW_SILENCE]) == b"\xd5"


def test_the_limits_become_the_outermost_levels() -> None:
    limits = np.array([32767, -32768], np.int16)
    assert decode_ulaw(encode_ulaw(limits)).tolist() == [32124, -32124]
    assert decode_alaw(encode_alaw(limits)).tolist() == [32256, -32256]


@pytest.mark.parametrize(
    ("encode", "decode", "rule", "unlike", "farther"),
    [
        pytest.param(encode_ulaw, decode_ulaw, itu_ulaw, 621, 501, id="mu-law"),
        pytest.param(encode_alaw, decode_alaw, itu_alaw, 619, 498, id="A-law"),
    ],
)
def test_the_itu_tool_takes_a_neighbouring_level_where_it_drops_bits(
    encode: Callable[[Pcm], bytes],
    decode: Callable[[bytes], Pcm],
    rule: Callable[[int], int],
    unlike: int,
    farther: int,
) -> None:
    tool = bytes(rule(int(sample)) for sample in SAMPLES)
    assert differences(encode(PCM), tool) == unlike
    assert int((error(tool, decode) > nearest(decode)).sum()) == farther
    # Never more than one level off, and the sign is the same (but for the two zeros of mu-law).
    levels = np.unique(decode(CODES))
    ours, theirs = decode(encode(PCM)), decode(tool)
    assert np.abs(np.searchsorted(levels, ours) - np.searchsorted(levels, theirs)).max() <= 1


@pytest.fixture
def audioop() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module("audioop")  # audioop-lts from Python 3.13


def test_audioop_decodes_alike(audioop: ModuleType) -> None:
    assert decode_ulaw(CODES).tobytes() == audioop.ulaw2lin(CODES, 2)
    assert decode_alaw(CODES).tobytes() == audioop.alaw2lin(CODES, 2)


def test_audioop_encodes_alike_but_for_the_known_neighbours(audioop: ModuleType) -> None:
    data = PCM.tobytes()
    ulaw, alaw = audioop.lin2ulaw(data, 2), audioop.lin2alaw(data, 2)
    assert differences(encode_ulaw(PCM), ulaw) == 889
    assert differences(encode_alaw(PCM), alaw) == 619
    # In mu-law each of these 889 is farther off than ours; its A-law is the ITU tool's.
    assert int((error(ulaw, decode_ulaw) > nearest(decode_ulaw)).sum()) == 889
    assert alaw == bytes(itu_alaw(int(sample)) for sample in SAMPLES)


@laws
def test_wrong_input_is_refused(
    encode: Callable[[Any], bytes], decode: Callable[[Any], Pcm]
) -> None:
    for pcm in (b"\0\0", [0], np.zeros(3), np.zeros((1, 2), np.int16), np.zeros(3, ">i2")):
        with pytest.raises(BadSamples, match=r"encode_.law"):
            encode(pcm)
    for data in ("text", None, 4, [1, 2]):
        with pytest.raises(BadSamples, match=r"decode_.law"):
            decode(data)


@laws
def test_arrays_with_gaps_and_empty_ones_are_taken(
    encode: Callable[[Pcm], bytes], decode: Callable[[Any], Pcm]
) -> None:
    assert encode(PCM[::3]) == encode(PCM)[::3]
    assert encode(PCM[::-1]) == encode(PCM)[::-1]
    assert encode(PCM[:0]) == b""
    assert decode(b"").tolist() == []
    assert decode(bytearray(CODES)).tolist() == decode(memoryview(CODES)).tolist()
