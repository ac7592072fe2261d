"""The tables of settings in docs/agent.md, made of the code: run as a script it writes them.

python -m tests.agent.agent_tables
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from qwen3tts_agent import AgentSettings, ChatSettings
from qwen3tts_phone import ListenSettings
from tests.phone.settings_table import BEGIN, END, remarks_of, row

PAGE = Path(__file__).parents[2] / "docs" / "agent.md"
KINDS = (AgentSettings, ListenSettings, ChatSettings)


def table(kind: type) -> str:
    """Every field of a class, with its default and what it says of itself."""
    remarks = remarks_of(kind, file=False)
    rows = []
    for each in dataclasses.fields(kind):
        if each.default_factory is not dataclasses.MISSING:
            default = repr(each.default_factory())
        else:
            default = "" if each.default is dataclasses.MISSING else repr(each.default)
        rows.append(row(each.name, default or "(needed)", remarks[each.name]))
    return f"| setting | default | |\n|---|---|---|\n{''.join(rows)}"


def written(page: str) -> str:
    """The page with the tables of today between its marks."""
    for kind in KINDS:
        before, mark, rest = page.partition(BEGIN.format(kind.__name__))
        assert mark, kind
        page = f"{before}{mark}\n{table(kind)}{END}{rest.partition(END)[2]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
