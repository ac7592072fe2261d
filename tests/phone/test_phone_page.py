"""docs/phone.md says what the code does."""

from __future__ import annotations

import pytest

from qwen3tts_phone.diagnosis.findings import CODES
from qwen3tts_phone.records.fields import FIELDS
from qwen3tts_phone.settings.file import SECTIONS
from tests.phone.settings_table import BEGIN, PAGE, all_tables, written

TEXT = PAGE.read_text("utf-8")


def test_the_tables_of_settings_are_those_of_the_code() -> None:
    assert written(TEXT) == TEXT, "run: python -m tests.phone.settings_table"


@pytest.mark.parametrize("path", list(all_tables()))
def test_every_section_of_settings_has_its_table(path: str) -> None:
    assert BEGIN.format(path) in TEXT


def test_every_section_of_the_file_is_explained() -> None:
    for name in SECTIONS:
        assert f"`{name}`" in TEXT


def test_every_setting_says_what_it_is_for() -> None:
    for path, rows in all_tables().items():
        for line in rows.splitlines():
            name, _, meaning = (cell.strip() for cell in line.strip("|").split(" | ", 2))
            assert meaning.strip(" |"), f"{path}.{name} has no docstring beneath it"


def test_every_finding_is_listed() -> None:
    for code in CODES:
        assert f"\n| `{code}` | " in TEXT, code


def test_every_field_of_a_record_is_listed() -> None:
    for name in FIELDS:
        assert f"\n| `{name}` | " in TEXT, name
