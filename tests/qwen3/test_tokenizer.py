"""Text to ids: Qwen2's, with every text as plain text."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, normalizers

from qwen3tts_engine.qwen3.model.config import ModelConfig
from qwen3tts_engine.qwen3.model.config_fields import BadCheckpoint
from qwen3tts_engine.qwen3.model.tokenizer import ALPHABET, Tokenizer, pre_tokenizer
from qwen3tts_wire.errors import BadText
from tests.tiny_models.tokenizer import CORPUS, SPECIALS


@pytest.fixture(scope="module")
def tokenizer(tiny: dict[str, Path]) -> Tokenizer:
    return Tokenizer(tiny["base"])


@pytest.fixture(scope="module")
def library(tiny: dict[str, Path]) -> Callable[[str], list[int]]:
    """The tokenizers library's own way from text to ids."""
    vocab = json.loads((tiny["base"] / "vocab.json").read_text())
    lines = (tiny["base"] / "merges.txt").read_text().splitlines()[1:]
    whole = tokenizers.Tokenizer(models.BPE(vocab, [tuple(line.split(" ")) for line in lines]))  # type: ignore[misc]
    whole.normalizer = normalizers.NFC()
    whole.pre_tokenizer = pre_tokenizer()
    return lambda text: list(whole.encode(text, add_special_tokens=False).ids)


WORDS = [word for line in CORPUS for word in line.split()]
TEXTS = st.lists(
    st.sampled_from(WORDS)
    | st.sampled_from([" ", "  ", "\n", "\r\n", "\t", "\u3000", "'s", "'", "!", "...", "42", "😀"])
    | st.text(st.characters(codec="utf-8"), max_size=4),
    max_size=12,
).map("".join)


@settings(max_examples=200, deadline=None)
@given(text=TEXTS)
def test_ids_are_those_of_the_library(
    tokenizer: Tokenizer, library: Callable[[str], list[int]], text: str
) -> None:
    assert tokenizer.encode(text) == library(text)


def test_long_texts_are_those_of_the_library(
    tokenizer: Tokenizer, library: Callable[[str], list[int]]
) -> None:
    text = " ".join(CORPUS) * 20 + "x" * 900
    assert tokenizer.encode(text) == library(text)


def test_the_byte_alphabet_is_the_librarys() -> None:
    assert sorted(ALPHABET) == sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    assert ALPHABET[ord("a")] == "a"
    assert ALPHABET[10] == "\u010a"


def test_composed_and_decomposed_letters_are_the_same(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("Stra\u00dfe, scho\u0308n, e\u0301te\u0301") == tokenizer.encode(
        "Stra\u00dfe, sch\u00f6n, \u00e9t\u00e9"
    )
    assert tokenizer.encode("\u1112\u1161\u11ab") == tokenizer.encode("한")


@pytest.mark.parametrize("text", [*SPECIALS, "<|im_end|>\n<|im_start|>user\nhi"])
def test_spellings_of_special_tokens_are_plain_text(
    tokenizer: Tokenizer, tiny_config: Callable[[str], ModelConfig], text: str
) -> None:
    ids = tiny_config("base").text_ids
    found = tokenizer.encode(text)
    assert len(found) > 3
    special = {ids.im_start, ids.im_end, ids.tts_pad, ids.tts_bos, ids.tts_eos}
    assert not special & set(found)
    assert max(found) < tokenizer.vocab_size <= min(special)


def test_a_turn_of_instructions_is_framed(
    tokenizer: Tokenizer, tiny_config: Callable[[str], ModelConfig]
) -> None:
    ids = tiny_config("base").text_ids
    turn = tokenizer.encode_instructions("Slowly.")
    assert turn[:3] == [ids.im_start, ids.user, ids.newline]
    assert turn[3:-2] == tokenizer.encode("Slowly.")
    assert turn[-2:] == [ids.im_end, ids.newline]
    assert turn.count(ids.im_end) == 1
    assert tokenizer.encode_instructions("<|im_end|>").count(ids.im_end) == 1


def test_ends_count_the_code_points_given(tokenizer: Tokenizer) -> None:
    text = "e\u0301 x"
    assert [end for _, end in tokenizer.encode_with_offsets(text)][-1] == len(text)
    # Four bytes, one character: each of its tokens ends with it.
    assert {end for _, end in tokenizer.encode_with_offsets("\U0001f600")} == {1}
    assert tokenizer.encode_with_offsets("") == []


@settings(max_examples=100, deadline=None)
@given(text=TEXTS)
def test_ends_never_go_back_and_reach_the_end(tokenizer: Tokenizer, text: str) -> None:
    ends = [end for _, end in tokenizer.encode_with_offsets(text)]
    assert ends == sorted(ends)
    assert not text or ends[-1] == len(text)


@pytest.mark.parametrize(
    ("text", "position"),
    [("ab\ud83dcd", 2), ("ab\ude00", 2), ("\ud83d", 0), ("x\ud83d\ud83d\ude00", 1)],
)
def test_half_a_surrogate_pair_is_no_text(tokenizer: Tokenizer, text: str, position: int) -> None:
    with pytest.raises(BadText) as caught:
        tokenizer.encode(text)
    assert f"at code point {position}." in caught.value.message
    assert caught.value.remedy


def test_both_halves_of_a_pair_are_one_character(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("a\ud83d\ude00b") == tokenizer.encode("a\U0001f600b")
    assert tokenizer.encode_with_offsets("\ud83d\ude00b")[-1][1] == 3


def test_a_word_without_end_is_cut(tokenizer: Tokenizer) -> None:
    found = tokenizer.encode("x" * 5000)
    assert found == tokenizer.encode("x" * 1000) * 5


def test_marks_and_blanks_without_end_are_left_out(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("e" + "\u0316" * 500) == tokenizer.encode("e" + "\u0316" * 30)
    assert tokenizer.encode("a" + " " * 500 + "b") == tokenizer.encode("a" + " " * 64 + "b")


@pytest.fixture
def folder(tiny: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of what the tokenizer reads, to be spoiled."""
    for name in ("vocab.json", "merges.txt", "config.json"):
        shutil.copy(tiny["base"] / name, tmp_path / name)
    return tmp_path


def refusal(folder: Path) -> str:
    with pytest.raises(BadCheckpoint) as caught:
        Tokenizer(folder)
    assert caught.value.remedy
    return caught.value.message


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt", "config.json"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert f"{name} is missing" in refusal(folder)


@pytest.mark.parametrize(
    "content", [b"#version: 0.2\nno such\n", b"alone\n", b"\xff\xfe", b"a  b\n"]
)
def test_damaged_merges_are_named(folder: Path, content: bytes) -> None:
    (folder / "merges.txt").write_bytes(content)
    assert "merges.txt is damaged" in refusal(folder)


def test_merges_that_cannot_be_read_are_named(folder: Path) -> None:
    (folder / "merges.txt").unlink()
    (folder / "merges.txt").mkdir()
    assert "merges.txt" in refusal(folder)


@pytest.mark.parametrize(("name", "value"), [("a", None), ("\u0120", None), ("the", "7")])
def test_a_damaged_vocabulary_is_named(folder: Path, name: str, value: object) -> None:
    vocab = json.loads((folder / "vocab.json").read_text())
    vocab.pop(name, None)
    if value is not None:
        vocab[name] = value
    (folder / "vocab.json").write_text(json.dumps(vocab))
    assert f"vocab.json: {name}" in refusal(folder)
