"""Text that grows: the ids of the whole text, whatever the split, and early."""

# ruff: noqa: RUF001
from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_engine.qwen3.model import tokenizer as bpe_stream
from qwen3tts_engine.qwen3.model.tokenizer import (
    BLANKS,
    MARKS,
    PIECE,
    StreamingTokenizer,
    Tokenizer,
)
from qwen3tts_wire.errors import BadText
from tests.tiny_models.tokenizer import CORPUS


@pytest.fixture(scope="module")
def tokenizer(tiny: dict[str, Path]) -> Tokenizer:
    return Tokenizer(tiny["base"])


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
TEXTS = st.lists(
    st.sampled_from(BITS) | st.text(st.characters(codec="utf-8"), max_size=3), max_size=14
).map("".join)


@st.composite
def splits(draw: st.DrawFn, texts: st.SearchStrategy[str] = TEXTS) -> list[str]:
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
@given(text=TEXTS)
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
