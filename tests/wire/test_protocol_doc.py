"""The contract in docs/protocol.md says what the code does, name by name."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from pathlib import Path

import pytest

from qwen3tts_server import connection
from qwen3tts_server.utterance import ENGINE_MARKS
from qwen3tts_wire import errors
from qwen3tts_wire.fields import kinds, write
from qwen3tts_wire.formats import HEADER, AudioFormat
from qwen3tts_wire.messages import (
    CLIENT_MESSAGES,
    FEATURES,
    PROTOCOL,
    SERVER_MESSAGES,
    Limits,
    Sampling,
    VoiceInfo,
    WordInfo,
)
from qwen3tts_wire.states import SERVER, ContextState

TEXT = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")
RECORDS = {each.__name__: each for each in (AudioFormat, Sampling, VoiceInfo, Limits, WordInfo)}
DESCRIBED: dict[str, type] = {**CLIENT_MESSAGES, **SERVER_MESSAGES, **RECORDS}


def section(title: str) -> str:
    """The text from a heading to the next one of its depth or above."""
    match = re.search(rf"^(#+) `?{re.escape(title)}`?\n", TEXT, re.MULTILINE)
    assert match is not None, f"docs/protocol.md has no heading {title}"
    depth = len(match[1])
    rest = TEXT[match.end() :]
    end = re.search(rf"^#{{1,{depth}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def rows(title: str) -> list[list[str]]:
    """The cells of the first table of a section, without its head."""
    lines = section(title).splitlines()
    lines = list(itertools.dropwhile(lambda line: not line.startswith("|"), lines))
    lines = list(itertools.takewhile(lambda line: line.startswith("|"), lines))
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


@pytest.mark.parametrize("title", DESCRIBED)
def test_the_fields_of_every_message_are_the_documented_ones(title: str) -> None:
    of = DESCRIBED[title]
    expected = []
    for field in dataclasses.fields(of):
        kind, required = kinds(of)[field.name]
        if required:
            default = "required"
        elif field.default is None:
            default = "left out"
        else:
            value = (
                field.default_factory()
                if field.default_factory is not dataclasses.MISSING
                else field.default
            )
            default = f"`{json.dumps(write(value))}`"
        expected.append([f"`{field.name}`", kind.describe(), default])
    assert [row[:3] for row in rows(title)] == expected


def test_the_features_are_the_documented_ones() -> None:
    assert tuple(row[0].strip("`") for row in rows("Features")) == FEATURES


def test_every_field_has_a_meaning() -> None:
    for title in DESCRIBED:
        for row in rows(title):
            assert len(row) == 4
            assert row[3].endswith(".")


def test_no_message_is_documented_that_does_not_exist() -> None:
    documented = re.findall(r"^### `(.+)`$", TEXT, re.MULTILINE)
    assert sorted(documented) == sorted(DESCRIBED)


@pytest.mark.parametrize(
    "state", [ContextState.OPEN, ContextState.ENDING, ContextState.DONE], ids=lambda s: s.name
)
def test_what_each_state_allows_is_documented(state: ContextState) -> None:
    (row,) = [row for row in rows("Life of a context") if row[0].startswith(state.name.lower())]
    allowed = {message for known, message in SERVER if known is state}
    documented = [set(re.findall(r"`([\w.]+)`", cell)) for cell in row[1:]]
    assert documented[0] == allowed & CLIENT_MESSAGES.keys()
    assert documented[1] == allowed & SERVER_MESSAGES.keys()


def test_the_error_codes_are_the_documented_ones() -> None:
    known = {"internal_error": False}
    for value in vars(errors).values():
        if isinstance(value, type) and issubclass(value, errors.SpeechError):
            known[value.code] = value.retryable
    documented = {row[0].strip("`"): row[1] == "yes" for row in rows("Error codes")}
    assert documented == known


def test_the_close_codes_in_the_code_are_documented() -> None:
    documented = {int(row[0]) for row in rows("Close codes")}
    root = Path(__file__).parents[2] / "server"
    used = {connection.IDLE, connection.TOO_BIG, connection.RESTART, connection.TRY_AGAIN}
    for path in root.glob("qwen3tts_*/**/*.py"):
        for code in re.findall(
            r"[cC]lose\((?:self\._socket, )?(1\d{3})\b", path.read_text("utf-8")
        ):
            used.add(int(code))
    assert used <= documented


def test_the_marks_in_the_code_are_documented() -> None:
    root = Path(__file__).parents[2] / "server" / "qwen3tts_server"
    used = set()
    for path in root.rglob("*.py"):
        used |= set(re.findall(r"\bmark\(\"(\w+)\"", path.read_text("utf-8")))
    assert {row[0].strip("`") for row in rows("Marks")} == used | set(ENGINE_MARKS)


def test_the_header_is_as_long_as_documented() -> None:
    assert f"A {HEADER.size}-byte little-endian header" in section("Binary messages")
    assert [row[1].strip("`") for row in rows("Binary messages")] == [
        "version",
        "flags",
        "reserved",
        "context_no",
        "offset",
    ]
    assert rows("Binary messages")[-1][0] == "8 to 15"
    assert PROTOCOL in TEXT
