from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_text.surrogates import SurrogateJoiner, WholeCharacters, clean

HIGH, LOW = "\ud83d", "\ude00"
BOTH, ALONE = "\U0001f600", "\ufffd"


def joined(*pieces: str) -> str:
    joiner = SurrogateJoiner()
    return "".join([*(joiner.push(each) for each in pieces), joiner.finish()])


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ([HIGH, LOW], BOTH),
        (["a" + HIGH, "", LOW + "b"], f"a{BOTH}b"),
        ([HIGH], ALONE),
        ([HIGH, "a"], f"{ALONE}a"),
        ([LOW], ALONE),
        ([LOW, HIGH], ALONE + ALONE),
        ([HIGH, HIGH, LOW], ALONE + BOTH),
        ([HIGH + LOW], BOTH),
        (["", ""], ""),
        (["plain"], "plain"),
    ],
)
def test_halves_are_joined_across_pieces_and_what_stays_alone_is_replaced(
    pieces: list[str], text: str
) -> None:
    assert joined(*pieces) == text


@settings(deadline=None)
@given(st.text(st.characters()), st.data())
def test_any_cut_between_utf16_units_gives_the_text_back(text: str, data: st.DataObject) -> None:
    units = text.encode("utf-16-le", "surrogatepass")
    pieces = []
    while units:
        size = 2 * data.draw(st.integers(1, len(units) // 2))
        pieces.append(units[:size].decode("utf-16-le", "surrogatepass"))
        units = units[size:]
    assert joined(*pieces) == clean(text)


@settings(deadline=None)
@given(st.lists(st.text(st.characters(categories=None))))
def test_whatever_comes_the_result_has_a_utf8_form(pieces: list[str]) -> None:
    joined(*pieces).encode("utf-8")


@given(
    st.lists(st.sampled_from([HIGH, LOW, BOTH, "a"]), max_size=30).map("".join), st.integers(1, 5)
)
def test_characters_keep_their_places_however_the_text_is_cut(text: str, size: int) -> None:
    whole = WholeCharacters()
    chars, edges = "", [0]
    for at in range(0, len(text), size):
        more, places = whole.push(text[at : at + size])
        chars += more
        assert places[0] == edges[-1]
        edges += places[1:]
    rest, places = whole.flush()
    chars, edges = chars + rest, edges + places[1:]
    assert chars == clean(text)
    assert edges[-1] == whole.position == len(text)
    for char, first, last in zip(chars, edges, edges[1:], strict=False):
        assert clean(text[first:last]) == char
