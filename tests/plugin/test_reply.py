from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mr_qwen3tts.reply import MAX_CHARS, Deltas, Reply, cut, heard_chars, left_s
from qwen3tts_text.plain_text import PlainText


class Said:
    """Utterances that keep their words and are heard as far as a test says."""

    def __init__(self) -> None:
        self.begun: list[Deltas] = []
        self.heard: list[int] = []
        """Characters of each that were heard."""

    def begin(self, deltas: Deltas) -> Any:
        number = len(self.begun)
        self.begun.append(deltas)
        self.heard.append(0)

        def outcome() -> Any:
            text, heard = self.texts[number], self.heard[number]
            return SimpleNamespace(heard=text[:heard], remaining=text[heard:])

        return SimpleNamespace(outcome=outcome)

    @property
    def texts(self) -> list[str]:
        return ["".join(each._pieces) for each in self.begun]


def reply_of(said: Said, *, plain: bool = True) -> Reply:
    return Reply("a", None, said.begin, None, plain=PlainText() if plain else None)  # type: ignore[arg-type]


async def test_deltas_are_given_as_they_come_and_end() -> None:
    deltas = Deltas()
    taken: list[str] = []

    async def take() -> None:
        async for piece in deltas:
            taken.append(piece)

    taking = asyncio.create_task(take())
    for pieces in (["Good ", "morning. "], ["", "How "]):
        for piece in pieces:
            deltas.push(piece)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert taken == ["Good morning. ", "How "]
    deltas.end()
    deltas.push("are")
    await taking
    assert taken == ["Good morning. ", "How "], "what comes after the end is for nobody"


@given(words=st.text("ab. !?\n。", max_size=400), room=st.integers(1, 60))
def test_a_text_is_cut_into_pieces_that_fit_and_are_the_whole(words: str, room: int) -> None:
    pieces, rest = [], words
    while rest:
        piece, rest = cut(rest, room)
        assert 0 < len(piece) <= room
        pieces.append(piece)
    assert "".join(pieces) == words


def test_a_text_is_cut_between_sentences_where_there_are_some() -> None:
    assert cut("One two. Three four.", 14) == ("One two. ", "Three four.")
    assert cut("One two three four", 9) == ("One two ", "three four")
    assert cut("x" * 10, 4) == ("xxxx", "xxxxxx")
    assert cut("short", MAX_CHARS) == ("short", "")


def test_white_space_alone_begins_nothing() -> None:
    said = Said()
    reply = reply_of(said, plain=False)
    reply.finish("  \n ")
    assert reply.silent
    assert reply.complete


def test_after_a_pause_the_words_go_on_in_another_utterance() -> None:
    said = Said()
    reply = reply_of(said)
    reply.update("Good morning. How are")
    reply.pause()
    reply.finish("Good morning. How are you?")
    assert [each.strip() for each in said.texts] == ["Good morning. How", "are you?"]
    assert all(each.ended for each in said.begun)


TEXT = "Good **morning**. How are you?"


@pytest.mark.parametrize(
    ("heard", "of_the_text"),
    [
        ("", ""),
        ("Good", "Good"),
        ("Good morning", "Good **morning"),
        ("Good morning. How", "Good **morning**. How"),
        ("Good morning. How are you?", TEXT),
    ],
)
def test_what_was_heard_is_told_in_the_models_own_characters(heard: str, of_the_text: str) -> None:
    said = Said()
    reply = reply_of(said)
    reply.finish(TEXT)
    assert said.texts == ["Good morning. How are you?"]
    said.heard = [len(heard)]
    assert TEXT[: heard_chars(reply)] == of_the_text


def test_a_text_that_was_heard_to_its_end_is_heard_whole_whatever_was_taken_out() -> None:
    text = "See [our page](http://example.org/a/long/address) for more."
    said = Said()
    reply = reply_of(said)
    reply.finish(text)
    said.heard = [len(said.texts[0])]
    assert heard_chars(reply) == len(text)


@given(heard=st.lists(st.integers(0, 30), min_size=2, max_size=2).map(sorted))
def test_more_that_is_heard_is_never_less(heard: list[int]) -> None:
    said = Said()
    reply = reply_of(said)
    reply.finish(TEXT)
    counts = []
    for count in heard:
        said.heard = [count]
        counts.append(heard_chars(reply))
    assert counts == sorted(counts)


def test_what_is_left_to_be_heard_is_never_negative() -> None:
    def utterance(queued: int | None, position: int) -> Any:
        return SimpleNamespace(record=SimpleNamespace(generated_samples=queued), position=position)

    assert left_s(utterance(24_000, 12_000)) == 0.5
    assert left_s(utterance(None, 0)) == 0
    assert left_s(utterance(100, 200)) == 0
