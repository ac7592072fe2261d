"""Write README.md beside this file from the newest result of each benchmark and aims.toml.

python benchmarks/results/table.py [--check]
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE / "README.md"
HEAD = """\
# Measured

The newest result of each benchmark, written by `python benchmarks/results/table.py` from the JSON
files beside this page; explanations and aims are in `aims.toml`. Each section is measured by its
script with `--json FILE`, on 2 cores of a shared virtual machine whose own stalls reach 5 to 20 ms;
the JSON files hold all rows, with peers and limits. A figure in **bold** misses its aim.
"""


def newest() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the newest record of each result file name, with its path below this folder."""
    found = {}
    for path in sorted(HERE.glob("*/*.json")):
        found[path.stem] = (
            path.relative_to(HERE).as_posix(),
            json.loads(path.read_text(encoding="utf-8")),
        )
    return dict(sorted(found.items()))


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _missed(value: Any, aim: str) -> bool:
    bound = float(aim.split()[1])
    return bool(value > bound if aim.startswith("≤") else value < bound)


def section(name: str, place: str, record: dict[str, Any], about: dict[str, Any]) -> str:
    """Return the part of the page about one result file."""
    quick = ", a `--quick` run" if record["quick"] else ""
    script = record["benchmark"]
    lines = [
        f"\n## {name}\n",
        f"{about['about']} `benchmarks/{script}.py`{quick}, {record['date'][:10]}, commit "
        f"{record['commit']}; [all rows]({place}).\n",
        "| figure | measured | aim |",
        "|---|---|---|",
    ]
    aims = about.get("aims", {})
    for key, value in record["figures"].items():
        aim = aims.get(key, "")
        shown = _number(value)
        lines.append(
            f"| `{key}` | {f'**{shown}**' if aim and _missed(value, aim) else shown} | {aim} |"
        )
    if note := about.get("note"):
        lines.append(f"\n{note.strip()}")
    return "\n".join(lines) + "\n"


def page() -> str:
    """Return the whole page.

    Raises:
        KeyError: a result file has no entry in aims.toml.
    """
    about = tomllib.loads((HERE / "aims.toml").read_text(encoding="utf-8"))
    found = newest()
    parts = [section(name, *found[name], about[name]) for name in found]
    return HEAD + "".join(parts)


def main() -> int:
    """Write the page; with ``--check`` compare it."""
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
