"""The documentation names what the code has."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from qwen3tts_server.dialects.runvnc.messages import KINDS
from qwen3tts_server.settings import RunvncSettings

DOCS = Path(__file__).parents[3] / "docs" / "dialects" / "runvnc.md"


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_message_and_field_is_documented(kind: str) -> None:
    row = next(
        line for line in DOCS.read_text("utf-8").splitlines() if line.startswith(f"| `{kind}` |")
    )
    if kind == "generate":
        assert "the same" in row
        return
    for field in fields(KINDS[kind]):
        assert f"`{field.name}`" in row


def test_every_setting_is_documented() -> None:
    text = DOCS.read_text("utf-8")
    for field in fields(RunvncSettings):
        assert field.name in text
