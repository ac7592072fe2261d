"""The tables of settings in docs/phone.md, made of the code: run as a script it writes them.

python -m tests.phone.settings_table
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
import types
from collections.abc import Iterator
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from qwen3tts_phone.diagnosis.findings import CODES
from qwen3tts_phone.records.fields import FIELDS
from qwen3tts_phone.settings.accounts import KEYS, KINDS
from qwen3tts_phone.settings.file import PORT, SECTIONS
from qwen3tts_phone.settings.sections import PhoneConfig
from qwen3tts_phone.sip.core.account import Account
from qwen3tts_phone.sip.core.settings import SipSettings
from qwen3tts_settings.constraints import is_secret

PAGE = Path(__file__).parents[2] / "docs" / "phone.md"
BEGIN, END = "<!-- settings: {} -->", "<!-- end -->"
FINDINGS = "<!-- findings -->"
RECORD = "<!-- record -->"
UNSAID = ("listen.gate", "media.process.learnt")
"""Fields that are no settings of a file: one stands elsewhere, one is what a process remembers."""
ELSEWHERE = {
    "password_env": "Variable of the environment that holds the password.",
    "password_file": "File that holds the password, and nothing else; chmod 600.",
    "server": "The trunk's server: `sip:host[:port][;transport=tcp]` or `sips:host`.",
    "key_password_env": "Variable of the environment that holds the password of the keys.",
    "key_password_file": "File that holds it, and nothing else.",
}
"""What a file has in place of a field of the code."""


def as_yaml(text: str) -> str:
    """A remark of the code, in the words of the file."""
    text = text.replace("``", "`").replace('`("', '`["').replace('")`', '"]`')
    text = text.replace("register=False", "register: false")
    return re.sub(r"\bFalse\b", "false", re.sub(r"\bNone\b", "left out", text))


@cache
def remarks_of(kind: type, *, file: bool = True) -> dict[str, str]:
    """The docstring beneath each field of a class; empty where there is none.

    ``file``: in the words of a YAML file; else in those of Python.
    """
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    name = ""
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
            found[name] = ""
        elif name and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = " ".join(str(node.value.value).split())
            found[name] = as_yaml(text) if file else text.replace("``", "`")
            name = ""
        else:
            name = ""
    return found


def inner(kind: Any) -> type | None:
    """The dataclass that a field holds, alone, optional or several times; None for other fields."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return kind
    if get_origin(kind) in (Union, types.UnionType, tuple):
        found = [inner(each) for each in get_args(kind)]
        return next((each for each in found if each is not None), None)
    return None


def shown(value: Any) -> str:
    """A default as YAML has it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, (set, frozenset)):
        return f"[{', '.join(sorted(map(shown, value)))}]"
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, str):
        return value or '""'
    return f"{value:g}" if isinstance(value, float) else str(value)


def default_of(each: dataclasses.Field[Any]) -> Any:
    if each.default is not dataclasses.MISSING:
        return each.default
    assert each.default_factory is not dataclasses.MISSING, each.name
    return each.default_factory()


def tables(kind: type, path: str) -> Iterator[tuple[str, str]]:
    """Path and rows of a section, then those of the sections in it."""
    rows, beneath = [], []
    hints, remarks = get_type_hints(kind), remarks_of(kind)
    for each in dataclasses.fields(kind):
        if not each.init or f"{path}.{each.name}" in UNSAID:
            continue
        within = inner(hints[each.name])
        if is_secret(each):
            names = (f"{each.name}_env", f"{each.name}_file")
            rows += [(name, "", ELSEWHERE[name]) for name in names]
        elif within is not None:
            several = get_origin(hints[each.name]) is tuple
            beneath.append((within, f"{path}.{each.name}" + ("[]" if several else "")))
        elif each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING:
            rows.append((each.name, "(needed)", remarks[each.name]))
        else:
            rows.append((each.name, shown(default_of(each)), remarks[each.name]))
    if rows:
        yield path, "".join(row(*cells) for cells in rows)
    for within, further in beneath:
        yield from tables(within, further)


def row(name: str, default: str, meaning: str) -> str:
    cell = f"`{default}`" if default and default != "(needed)" else default
    return f"| `{name}` | {cell} | {meaning.replace('|', chr(92) + '|')} |\n"


def all_tables() -> dict[str, str]:
    """Every section's rows by its path."""
    hints = get_type_hints(PhoneConfig)
    found: dict[str, str] = {}
    for name in SECTIONS:
        if name in KINDS:
            path = f"{name}[]"
            own = dict(tables(Account, path))[path].splitlines(keepends=True)
            if name == "trunks":
                own = [line.replace("(needed)", '`""`') for line in own]
            kept = [line for line in own if line.split("`")[1] in KEYS[name]]
            server = [row("server", "(needed)", ELSEWHERE["server"])] if name == "trunks" else []
            found[path] = "".join(server + kept)
            continue
        kind = inner(hints[name])
        if kind is not None:
            found |= dict(tables(kind, name))
    port = row("port", "{}", remarks_of(SipSettings)["port"])
    found["listen"] = found["listen"].replace(port.format(0), port.format(PORT))
    return found


def written(page: str) -> str:
    """The page with the tables of today between its marks."""
    made = {
        BEGIN.format(path): f"| setting | default | |\n|---|---|---|\n{rows}"
        for path, rows in all_tables().items()
    }
    codes = "".join(f"| `{code}` | {words} |\n" for code, words in CODES.items())
    made[FINDINGS] = f"| code | |\n|---|---|\n{codes}"
    parts = "".join(f"| `{name}` | {words} |\n" for name, words in FIELDS.items())
    made[RECORD] = f"| field | |\n|---|---|\n{parts}"
    for begin, table in made.items():
        before, mark, rest = page.partition(begin)
        if mark:
            page = f"{before}{begin}\n{table}{END}{rest.partition(END)[2]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
