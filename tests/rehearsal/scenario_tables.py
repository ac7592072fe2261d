"""The tables of scenarios in docs/rehearsal.md, made of the code: run as a script it writes them.

python -m tests.rehearsal.scenario_tables
"""

from __future__ import annotations

import re
from pathlib import Path

from qwen3tts_rehearsal.scenario import (
    Ending,
    Expect,
    LineSettings,
    Over,
    Persona,
    Scenario,
    Step,
    Wait,
    Webhook,
    Words,
)
from tests.agent.agent_tables import table
from tests.phone.settings_table import BEGIN, END

PAGE = Path(__file__).parents[2] / "docs" / "rehearsal.md"
KINDS = {
    Scenario: "A scenario",
    LineSettings: "`line`",
    Step: "A step: one of",
    Wait: "`wait`",
    Over: "`barge_in`, `backchannel`",
    Persona: "`caller`",
    Expect: "`expect`",
    Words: "One of `heard`: one of",
    Ending: "`hang_up` of `expect`",
    Webhook: "One of `webhook`",
}


def short(kind: type) -> str:
    """The table of a class; the defaults of sections have tables of their own."""
    return re.sub(r"`(?:Expect|LineSettings)\([^|]*\)`", "", table(kind))


def written(page: str) -> str:
    """The page with the tables of today between its marks."""
    for kind in KINDS:
        before, mark, rest = page.partition(BEGIN.format(kind.__name__))
        assert mark, kind
        page = f"{before}{mark}\n{short(kind)}{END}{rest.partition(END)[2]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
