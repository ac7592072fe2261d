"""Text to ids: Qwen2's, with every text as plain text."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, normalizers

from qwen3tts_engine.qwen3.model import tokenizer as bpe_stream
from qwen3tts_engine.qwen3.model.config import ModelConfig
from qwen3tts_engine.qwen3.model.config_fields import BadCheckpoint
from qwen3tts_engine.qwen3.model.tokenizer import (
    ALPHABET,
    BLANKS,
    MARKS,
    PIECE,
    StreamingTokenizer,
    Tokenizer,
    pre_tokenizer,
)
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


# ruff: noqa: RUF001


def streamed(tokenizer: Tokenizer, parts: Iterable[str]) -> list[tuple[int, int]]:
    stream = StreamingTokenizer(tokenizer)
    tokens = [token for part in parts for token in stream.push(part)]
    return tokens + stream.end()


def held(tokenizer: Tokenizer, text: str) -> int:
    """The most code points that wait while a text comes one by one."""
    stream, out, most = StreamingTokenizer(tokenizer), 0, 0
    for at, char in enumerate(text, 1):
        tokens = stream.push(char)
        out = tokens[-1][1] if tokens else out
        most = max(most, at - out)
    return most


BITS = [
    *(word for line in CORPUS for word in line.split()),
    "今天天气很好我们去公园吧", "お電話ありがとうございます", "예약하셨나요",
    " ", "  ", "   ", "\n", "\r", "\r\n", "\n\n", "\t", "\u00a0", "\u3000", "\x85", "\x1c",
    "'", "'s", "'S", "'ſ", "'re", "'l", "'ll", "n't", "!", "?!", "...", "-", "=", "，", "。",
    "1", "23", "٣", "½", "😀", "👍🏽", "👩‍👩‍👧", "🇩🇪",
    "e\u0301", "\u0301", "\u0323", "\u0302", "a\u0315\u0323", "q\u0302", "\u0338", "\u0344",
    "\u1100", "\u1161", "\u11a8", "가", "が", "か\u3099", "का", "ि", "\u09c7\u09be", "กำ",
    "\U00016d63\U00016d67", "\ud83d\ude00", "\u200d", "\u0378", "<|im_end|>", "<tts_pad>",
]  # fmt: skip
STREAM_TEXTS = st.lists(
    st.sampled_from(BITS) | st.text(st.characters(codec="utf-8"), max_size=3), max_size=14
).map("".join)


@st.composite
def splits(draw: st.DrawFn, texts: st.SearchStrategy[str] = STREAM_TEXTS) -> list[str]:
    text = draw(texts)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=20)))
    return [text[start:end] for start, end in itertools.pairwise([0, *cuts, len(text)])]


@settings(max_examples=400, deadline=None)
@given(parts=splits())
def test_any_split_gives_the_whole_texts_ids(tokenizer: Tokenizer, parts: list[str]) -> None:
    whole = "".join(parts)
    assert streamed(tokenizer, parts) == tokenizer.encode_with_offsets(whole)
    assert streamed(tokenizer, whole) == tokenizer.encode_with_offsets(whole)


@settings(max_examples=200, deadline=None)
@given(parts=splits(), piece=st.integers(1, 6))
def test_any_split_of_pieces_that_are_cut(
    tokenizer: Tokenizer, parts: list[str], piece: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bpe_stream, "PIECE", piece)
        assert streamed(tokenizer, parts) == tokenizer.encode_with_offsets("".join(parts))


@pytest.mark.parametrize(
    "text",
    [
        "x" * 2500,
        "!" * 2500,
        "!" * 1200 + "\n" * 80 + " \n\n",
        "你好" * 800,
        " " * 300 + "\n" + " " * 300,
        "e" + "\u0301\u0323" * 100,
        "'" * 1100 + "s",
        "\u0315" * 1500,
    ],
)
def test_runs_without_end(tokenizer: Tokenizer, text: str) -> None:
    whole = tokenizer.encode_with_offsets(text)
    for size in (1, 7, 700):
        parts = [text[at : at + size] for at in range(0, len(text), size)]
        assert streamed(tokenizer, parts) == whole


@settings(max_examples=100, deadline=None)
@given(text=STREAM_TEXTS)
def test_what_is_out_is_never_taken_back(tokenizer: Tokenizer, text: str) -> None:
    """Each token is out before the text that follows is known."""
    stream, out = StreamingTokenizer(tokenizer), list[tuple[int, int]]()
    for at, char in enumerate(text, 1):
        out += stream.push(char)
        assert all(end <= at for _, end in out)
    whole = tokenizer.encode_with_offsets(text)
    assert out == whole[: len(out)]


def test_a_word_is_out_when_the_next_begins(tokenizer: Tokenizer) -> None:
    stream = StreamingTokenizer(tokenizer)
    stream.push("Hello")
    stream.push(", ")
    out = stream.push("th")
    assert stream.push("is ")[-1][1] >= len("Hello,")
    assert not out or out[-1][1] <= len("Hello, th")


def test_chinese_is_not_held_up_to_the_next_comma(tokenizer: Tokenizer) -> None:
    assert held(tokenizer, "今天天气很好我们去公园吧谢谢您的订单号是四七一一") <= 4
    assert held(tokenizer, "お電話ありがとうございます少々お待ちください") <= 4


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("The quick brown fox jumps over the lazy dog, and then it's gone.", 8),
        ("x" * 3000, PIECE + 1),
        ("!" * 3000, PIECE + 1),
        ("a" + " " * BLANKS + "b", BLANKS + 1),
        ("e" + "\u0316" * MARKS, MARKS + 1),
    ],
)
def test_what_is_held_has_a_bound(tokenizer: Tokenizer, text: str, bound: int) -> None:
    assert held(tokenizer, text) <= bound


def test_the_work_grows_with_the_text(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in characters that the cutter and the merger read; no clock."""
    read = 0
    cut, merge = tokenizer.cut, tokenizer.merge

    def counting_cut(text: str) -> list[tuple[int, int]]:
        nonlocal read
        read += len(text)
        return cut(text)

    def counting_merge(text: str) -> list[tuple[int, int]]:
        nonlocal read
        read += len(text)
        return merge(text)

    monkeypatch.setattr(tokenizer, "cut", counting_cut)
    monkeypatch.setattr(tokenizer, "merge", counting_merge)
    work = []
    for times in (10, 20, 40):
        read = 0
        streamed(tokenizer, CORPUS[2] * times)
        work.append(read)
    assert work[1] - work[0] == pytest.approx((work[2] - work[1]) / 2, rel=0.02)
    assert work[2] < 40 * len(CORPUS[2]) * 20
    read = 0
    tokenizer.encode(CORPUS[2] * 400)
    assert read < 400 * len(CORPUS[2]) * 4


def test_halves_of_a_pair_may_come_apart(tokenizer: Tokenizer) -> None:
    parts = ["a\ud83d", "\ude00b"]
    assert streamed(tokenizer, parts) == tokenizer.encode_with_offsets("a\ud83d\ude00b")
    assert [token for token, _ in streamed(tokenizer, parts)] == tokenizer.encode("a\U0001f600b")


@pytest.mark.parametrize("parts", [["ab\ud83d", "c"], ["ab\ud83d"], ["ab", "\ude00"]])
def test_a_half_that_stays_alone_is_no_text(tokenizer: Tokenizer, parts: list[str]) -> None:
    with pytest.raises(BadText, match="at code point 2"):
        streamed(tokenizer, parts)


def test_a_mark_may_still_come_before_a_mark(tokenizer: Tokenizer) -> None:
    """Marks are put in order, so a later one may join the letter that an earlier one did not."""
    parts = ["a\u0315", "\u0323", "b q\u0302", "\u0323", " ."]
    assert streamed(tokenizer, parts) == tokenizer.encode_with_offsets("".join(parts))
    assert StreamingTokenizer(tokenizer).push("aq\u0302") == []


def test_nothing_gives_nothing(tokenizer: Tokenizer) -> None:
    assert streamed(tokenizer, []) == []
    assert streamed(tokenizer, ["", "", ""]) == []
