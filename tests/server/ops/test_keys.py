"""API keys from settings and from a file."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from qwen3tts_server.keys import LOOK_AGAIN_S, MAX_FILE_BYTES, ApiKeys
from qwen3tts_wire.errors import BadRequest


def file_of(folder: Path, text: str, name: str = "keys") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


class Clock:
    def __init__(self) -> None:
        self.now = 5.0

    def __call__(self) -> float:
        return self.now


def test_keys_of_the_settings_and_of_the_file_are_taken(tmp_path: Path) -> None:
    file = file_of(tmp_path, "# ours\n\n  alpha  \nbeta\t# the plugin's\r\nde#lta\n")
    keys = ApiKeys(["gamma"], file)
    assert keys.required
    assert all(map(keys.accepts, ("alpha", "beta", "gamma", "de#lta")))
    assert not any(
        map(keys.accepts, ("", "# ours", "alph", "de", "beta#", "alphaa", "ALPHA", "\ud800", "ä"))
    )


def test_without_keys_none_is_required() -> None:
    assert not ApiKeys().required


@pytest.mark.parametrize("text", ["", "# only a remark\n", "a b\n", "ä\n", "x\n" * MAX_FILE_BYTES])
def test_a_file_that_holds_no_keys_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadRequest) as error:
        ApiKeys((), file_of(tmp_path, text))
    assert error.value.remedy


@pytest.mark.parametrize("name", ["missing", "."])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadRequest, match="cannot be read"):
        ApiKeys((), tmp_path / name)


def test_a_changed_file_is_read_again_after_a_while(tmp_path: Path) -> None:
    clock = Clock()
    file = file_of(tmp_path, "first-key")
    keys = ApiKeys((), file, clock=clock)
    file_of(tmp_path, "new-key")
    assert keys.accepts("first-key")
    clock.now += LOOK_AGAIN_S
    assert keys.accepts("new-key")
    assert not keys.accepts("first-key")


@pytest.mark.parametrize("text", ["", "not good at all", None])
def test_a_file_that_became_useless_leaves_the_keys_as_they_are(
    tmp_path: Path, text: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    file = file_of(tmp_path, "first-key")
    keys = ApiKeys((), file, clock=clock)
    if text is None:
        os.remove(file)
    else:
        file_of(tmp_path, text)
    clock.now += LOOK_AGAIN_S
    with caplog.at_level(logging.DEBUG):
        assert keys.accepts("first-key")
        keys.reload()
    assert keys.accepts("first-key")
    assert "The keys stay as they are" in caplog.text
    assert "first-key" not in caplog.text


def test_without_a_file_there_is_nothing_to_read_again() -> None:
    keys = ApiKeys(["a"])
    keys.reload()
    assert keys.accepts("a")
