"""The list of voices, in columns."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from qwen3tts_cli.output.columns import columns
from qwen3tts_cli.voices import listing, speaks
from qwen3tts_wire.formats import FORMATS
from qwen3tts_wire.messages import PROTOCOL, Limits, SessionCreated, VoiceInfo


def session_of(voices: Sequence[VoiceInfo], engine: str = "embedded") -> SessionCreated:
    """A session with these voices."""
    return SessionCreated(
        protocol=PROTOCOL,
        engine=engine,
        model="a model",
        voices=tuple(voices),
        formats=FORMATS,
        limits=Limits(),
        modes=("clause",),
        features=(),
    )


VOICES = (
    VoiceInfo("en_US-joe-medium", "Joe", "en-US", "male"),
    VoiceInfo("ca-va", "Catalan (Valencian)", "ca-valencia", None),
    VoiceInfo("chr-us-qaaa-x-west", "Cherokee", "chr-Qaaa-US-x-west", "male"),
    VoiceInfo("clone:Zoë", "Zoë", "mul", None),
)


@pytest.mark.parametrize("width", [None, 200, 100, 80, 60, 40, 24, 12])
def test_no_width_cuts_an_id(width: int | None) -> None:
    lines = listing(session_of(VOICES), VOICES, width)
    for voice in VOICES:
        (line,) = [each for each in lines if each.split(" ")[0] == voice.id]
        assert line.startswith(voice.id)


def test_a_list_has_name_language_sex_and_engine_in_columns() -> None:
    lines = listing(session_of(VOICES), VOICES, None)
    assert lines[0].split() == ["voice", "name", "language", "sex", "engine"]
    assert lines[1].split() == [
        *("en_US-joe-medium", "Joe", "en-US", "English", "(United", "States)", "male"),
        *("eSpeak", "NG"),
    ]
    assert len({line.index("eSpeak NG") for line in lines[1:]}) == 1
    assert "Valencian" in lines[2]
    assert "Vatican" not in "".join(lines)


@given(
    st.lists(st.lists(st.text("ab é字", max_size=20), min_size=3, max_size=3), min_size=2),
    st.integers(1, 90) | st.none(),
)
def test_no_line_is_wider_than_the_terminal_but_for_an_id(
    rows: list[list[str]], width: int | None
) -> None:
    lines = columns(rows, width)
    longest = max(cell_len(row[0]) for row in rows)
    assert all(cell_len(line) <= max(width or 10_000, longest, 4) for line in lines)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("valencian", True), ("ca", True), ("Catalan", True), ("ca_valencia", True), ("it", False)],
)
def test_a_language_is_found_by_its_tag_and_its_name(wanted: str, found: bool) -> None:
    assert speaks(VOICES[1], wanted) is found
