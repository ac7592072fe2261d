"""Write the Mermaid diagrams of docs/design.md from the tables in the code.

python docs/diagrams.py [--check]: each block between ``<!-- diagram: NAME -->`` and
``<!-- end -->`` is replaced.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "design.md"
IMPORT_ROOTS = ("", "server", "pacer", "codecs", "phone", "cli")
BLOCK = re.compile(r"(<!-- diagram: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def _word(value: Enum | str) -> str:
    return (value if isinstance(value, str) else value.name).lower()


def state_diagram(
    transitions: Mapping[Any, Any], *, first: Enum | None = None, loops: bool = False
) -> str:
    """Return a state diagram of a table (state, event) -> state or (state, actions).

    Events between the same two states share an arrow; ``loops`` also draws events that leave the
    state as it is.
    """
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, event), after in transitions.items():
        after = after[0] if isinstance(after, tuple) else after
        if loops or after is not state:
            arrows.setdefault((_word(state), _word(after)), []).append(_word(event))
    lines = ["stateDiagram-v2"]
    if first is not None:
        lines.append(f"    [*] --> {_word(first)}")
    lines += [
        f"    {begin} --> {end}: {', '.join(events)}"
        for (begin, end), events in arrows.items()
        if events
    ]
    return "\n".join(lines)


def line_diagram(chain: Iterable[Enum], server: frozenset[Any]) -> str:
    """Return the way from text to the first audible frame, one node a mark of the latency log."""
    lines = ["flowchart LR"]
    before = None
    for mark in chain:
        shape = "([{}])" if mark in server else "[{}]"
        lines.append(f"    {mark.name}{shape.format(mark.name.lower().replace('_', ' '))}")
        if before is not None:
            lines.append(f"    {before} --> {mark.name}")
        before = mark.name
    return "\n".join(lines)


def package_diagram(may_import: Mapping[str, set[str]]) -> str:
    """Return which package imports which, without what follows from the others."""

    def reached(name: str) -> set[str]:
        others = may_import[name] - {name}
        return others.union(*(reached(each) for each in others))

    lines = ["flowchart TD"]
    for package in may_import:
        others = may_import[package] - {package}
        indirect = set[str]().union(*(reached(each) for each in others))
        lines += [f"    {package} --> {other}" for other in sorted(others - indirect)]
    return "\n".join(lines)


def diagrams() -> dict[str, Callable[[], str]]:
    """Return the diagrams by name."""
    from qwen3tts_agent import turn_taking
    from qwen3tts_cli.latency import stages
    from qwen3tts_engine.qwen3.engine import jobs
    from qwen3tts_pacer import states as pacer
    from qwen3tts_phone.sip.call import state as call
    from qwen3tts_phone.sip.transaction import state_machine as transaction
    from tests.test_layout import MAY_IMPORT

    kinds = transaction.TransactionKind
    return {
        "line": lambda: line_diagram(stages.CHAIN, stages.OF_SERVER),
        "packages": lambda: package_diagram(MAY_IMPORT),
        "pacer": lambda: state_diagram(pacer.TRANSITIONS, first=pacer.State.IDLE),
        "generation": lambda: state_diagram(jobs.TRANSITIONS, first=jobs.JobState.OPENING),
        "invite_client": lambda: state_diagram(
            transaction.TRANSITIONS[kinds.INVITE_CLIENT],
            first=transaction.INITIAL_STATES[kinds.INVITE_CLIENT],
        ),
        "invite_server": lambda: state_diagram(
            transaction.TRANSITIONS[kinds.INVITE_SERVER],
            first=transaction.INITIAL_STATES[kinds.INVITE_SERVER],
        ),
        "call": lambda: state_diagram(call.CALL_TRANSITIONS),
        "turns": lambda: state_diagram(turn_taking.TRANSITIONS, first=turn_taking.Phase.WAITING),
    }


def page(text: str) -> str:
    """Return the page with its diagrams made from the code.

    Raises:
        KeyError: the page names a diagram that does not exist.
    """
    known = diagrams()

    def block(found: re.Match[str]) -> str:
        return f"{found[1]}```mermaid\n{known[found[2]]()}\n```\n{found[3]}"

    return BLOCK.sub(block, text)


def main() -> int:
    """Write the page; with ``--check`` compare it."""
    sys.path[:0] = [str(ROOT / folder) for folder in IMPORT_ROOTS]
    text = PAGE.read_text(encoding="utf-8")
    if "--check" in sys.argv[1:]:
        return int(page(text) != text)
    PAGE.write_text(page(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
