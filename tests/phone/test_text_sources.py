from __future__ import annotations

import asyncio
import os
import pty
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.call.text_sources import (
    Utf8Reader,
    from_file,
    from_stdin,
    from_text,
    scripted,
    tokens,
)
from qwen3tts_wire.errors import BadText, LimitExceeded
from tests.fakes import FakeClock, settle


async def all_of(deltas: AsyncIterator[str]) -> list[str]:
    return [delta async for delta in deltas]


async def test_a_text_is_one_delta() -> None:
    assert await all_of(from_text("Good morning.")) == ["Good morning."]


@pytest.mark.parametrize("text", ["", " \n\t"])
async def test_a_text_without_words_is_refused(text: str) -> None:
    with pytest.raises(BadText, match="empty"):
        await all_of(from_text(text))
    with pytest.raises(BadText, match="empty"):
        await all_of(scripted(text, FakeClock()))


async def test_halves_of_characters_are_joined_and_lone_ones_replaced() -> None:
    assert await all_of(from_text("a\ud83d\ude00b\ud83d")) == ["a😀b\ufffd"]


async def test_a_file_comes_in_pieces_and_whole(tmp_path: Path) -> None:
    text = "Grüße, 世界! " * 3000
    path = tmp_path / "letter.txt"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    pieces = await all_of(from_file(path))
    assert len(pieces) > 5
    assert "".join(pieces) == text


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "is empty"),
        (b"hello\xff", "see byte 5"),
        (b"ab\xe2\x82", "see byte 2"),
        (b"x" * 5000 + b"\0", "see byte 5000"),
        ("hello".encode("utf-16"), "UTF-16"),
        (b"\x7fELF\x02\x01\x01\x00", "see byte 7"),
    ],
)
async def test_a_file_that_is_no_text_is_refused_with_the_place(
    tmp_path: Path, data: bytes, what: str
) -> None:
    path = tmp_path / "letter.txt"
    path.write_bytes(data)
    with pytest.raises(BadText, match=what):
        await all_of(from_file(path))


async def test_a_file_too_long_is_refused_before_a_word_is_said(tmp_path: Path) -> None:
    path = tmp_path / "huge.txt"
    with path.open("wb") as file:
        file.truncate(10**10)
    with pytest.raises(LimitExceeded, match="1000 characters"):
        await anext(from_file(path, max_chars=1000))


async def test_the_bound_counts_characters(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("ab" * 600, "utf-8")
    with pytest.raises(LimitExceeded):
        await all_of(from_file(path, max_chars=1000))


async def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadText, match="not a regular file"):
        await all_of(from_file(tmp_path / "pipe"))


async def test_what_is_piped_in_is_handed_over_while_it_comes() -> None:
    reading, writing = os.pipe()
    words = from_stdin(reading)
    try:
        os.write(writing, "Grü".encode()[:-1])
        assert await anext(words) == "Gr"
        waiting = asyncio.ensure_future(anext(words))
        await settle()
        assert not waiting.done()
        os.write(writing, "ü".encode()[1:] + b"!")
        assert await waiting == "ü!"
        os.close(writing)
        assert await all_of(words) == []
    finally:
        os.close(reading)


async def test_a_character_cut_off_at_the_end_is_refused() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"a\xe2\x82")
    os.close(writing)
    try:
        words = from_stdin(reading)
        assert await anext(words) == "a"
        with pytest.raises(BadText, match="see byte 1"):
            await anext(words)
    finally:
        os.close(reading)


async def test_a_file_as_standard_input_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_bytes(b"x" * 5000)
    fd = os.open(path, os.O_RDONLY)
    try:
        assert len("".join(await all_of(from_stdin(fd)))) == 5000
    finally:
        os.close(fd)


async def test_a_terminal_hands_over_lines_and_with_by_key_each_key() -> None:
    ours, theirs = pty.openpty()
    try:
        lines = from_stdin(theirs)
        os.write(ours, b"hello\n")
        assert await anext(lines) == "hello\n"
        keys = from_stdin(theirs, by_key=True)
        first = asyncio.ensure_future(anext(keys))
        await settle()
        os.write(ours, b"h")
        assert await first == "h"
        os.write(ours, b"i\x04ignored")
        assert await anext(keys) == "i"
        assert await all_of(keys) == []
    finally:
        os.close(ours)
        os.close(theirs)


@given(st.text(), st.lists(st.integers(0, 60), max_size=6))
def test_text_is_the_same_however_its_bytes_were_cut(text: str, cuts: list[int]) -> None:
    text = text.replace("\0", "").removeprefix("\ufeff")
    data = text.encode()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    reader = Utf8Reader("it")
    parts = [reader.push(data[a:b]) for a, b in pairwise(edges)]
    assert "".join(parts) + reader.push(b"", final=True) == text


@given(st.lists(st.binary(max_size=20), max_size=10))
def test_bytes_are_text_or_a_typed_error(pieces: list[bytes]) -> None:
    reader = Utf8Reader("it")
    whole = b"".join(pieces)
    try:
        text = "".join(reader.push(piece) for piece in pieces) + reader.push(b"", final=True)
    except BadText:
        assert b"\0" in whole or "\ufffd" in whole.decode("utf-8", "replace")
    else:
        assert text.encode() == whole.removeprefix(b"\xef\xbb\xbf")


@given(st.text())
def test_tokens_joined_are_the_text(text: str) -> None:
    assert "".join(tokens(text)) == text


async def test_a_script_is_written_token_by_token_on_a_grid() -> None:
    clock = FakeClock(100.0)
    came: list[tuple[float, str]] = []

    async def listen() -> None:
        async for token in scripted("Good morning, Bob.", clock, ms_per_token=20):
            came.append((round(clock.now() - 100.0, 6), token))

    listening = asyncio.ensure_future(listen())
    await clock.advance(1.0)
    await listening
    assert came == [
        (0.02, "Good"),
        (0.04, " mornin"),
        (0.06, "g"),
        (0.08, ","),
        (0.1, " Bob"),
        (0.12, "."),
    ]
