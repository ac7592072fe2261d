"""Pages of the report for tests, and what stands in them."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

from qwen3tts_cli.latency.columns import Columns, columns_of
from qwen3tts_cli.latency.html.page import page
from qwen3tts_speech.latency import UtteranceRecord
from tests.cli.latency.synthetic import Made, made_records

HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "<!--<script>",
    "&lt;b&gt;\u2028\u202e'`${alert(1)}",
    "%{x}<a href='https://example.org'>",
)
"""Names that a log of somebody else may hold."""


def hostile_records() -> list[UtteranceRecord]:
    """Utterances whose every name wants to be markup."""
    records = list(made_records(Made(utterances=60, calls=10)))
    for place, record in enumerate(records):
        name = HOSTILE[place % len(HOSTILE)]
        record.call_id = f"{name}{place % 10}"
        record.engine = record.voice = record.line = record.codec = record.end_reason = name
        record.context = f"{name}{place}"
        record.text = name
    return records


class Read(HTMLParser):
    """A page taken apart: its text, its scripts, and every address that it names."""

    def __init__(self, made: str) -> None:
        super().__init__(convert_charrefs=True)
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text = ""
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._inside: list[str] = []
        self.feed(made)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
        if tag in ("script", "style"):
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if self._inside[-1:] == ["script"]:
            attributes, before = self.scripts[-1]
            self.scripts[-1] = attributes, before + data
        elif not self._inside:
            self.text += data

    @property
    def data(self) -> Any:
        """What the page's script is given."""
        (found,) = [text for attributes, text in self.scripts if attributes.get("id") == "data"]
        return json.loads(found)


def read(columns: Columns, **how: Any) -> Read:
    """The page of these utterances, taken apart."""
    return Read(page(columns, **how))


def made(seed: int = 0, **how: Any) -> Columns:
    """Utterances made up; see `Made`."""
    return columns_of(made_records(Made(seed=seed, **{"utterances": 200, "calls": 20, **how})))
