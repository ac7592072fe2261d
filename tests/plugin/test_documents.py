"""What docs/mindroot.md says of the settings is what they are."""

from __future__ import annotations

import re
from pathlib import Path

from mr_qwen3tts.settings import _sources
from mr_qwen3tts.variables import OLDER

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "mindroot.md"


def written(default: object) -> str:
    """A default as the page writes it: as one would set it."""
    if default is None or default in ((), frozenset(), (0, 0)):
        return "none"
    if isinstance(default, bool):
        return "`1`" if default else "`0`"
    if isinstance(default, float):
        return f"`{default:g}`"
    if isinstance(default, tuple):
        return f"`{','.join(map(str, default))}`"
    if isinstance(default, frozenset):
        return ", ".join(f"`{name}`" for name in sorted(default))
    return f"`{default}`"


def allowed(wanted: str) -> str:
    """What a rule asks for, without the words of a request."""
    return wanted.removeprefix("Write ").replace("It looks like", "such as").removesuffix(".")


def test_the_table_of_settings_has_each_variable_its_default_and_its_bounds() -> None:
    rows = [
        tuple(cell.strip() for cell in line.strip("|").split("|")[:3])
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if re.match(r"\| `MR_\w+` \|[^|]+\|[^|]+\|[^|]+\|$", line)
    ]
    expected = [
        (f"`{each.variable}`", written(each.default), allowed(each.rule.wanted))
        for each in _sources().values()
    ]
    assert rows == expected


def test_every_variable_of_the_older_plugin_is_told_of() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert not {name for name in OLDER if f"`{name}`" not in page}
