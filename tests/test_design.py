"""docs/design.md: its diagrams are those of the tables in the code, and it stays short."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
MOST_WORDS = 2500


def test_the_diagrams_are_those_of_the_code() -> None:
    diagrams = runpy.run_path(str(ROOT / "docs" / "diagrams.py"))
    assert set(re.findall(r"<!-- diagram: (\w+) -->", PAGE)) == set(diagrams["diagrams"]())
    assert diagrams["page"](PAGE) == PAGE


def test_the_page_is_short() -> None:
    assert len(PAGE.split()) <= MOST_WORDS


def test_what_the_page_links_to_is_there() -> None:
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", PAGE):
        assert (ROOT / "docs" / link).exists(), link
