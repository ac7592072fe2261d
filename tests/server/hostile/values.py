"""What a field may hold that should not."""

from __future__ import annotations

import json
from collections.abc import Iterator

ABSENT = object()

VALUES: dict[str, str] = {
    "null": "null",
    "true": "true",
    "false": "false",
    "zero": "0",
    "minus one": "-1",
    "minus nought": "-0.0",
    "half": "0.5",
    "huge": "1e308",
    "beyond floats": "1e999",
    "minus beyond floats": "-1e999",
    "NaN": "NaN",
    "Infinity": "-Infinity",
    "64 bits": str(1 << 63),
    "a thousand digits": "9" * 1000,
    "a hundred thousand digits": "9" * 100_000,
    "empty": '""',
    "blank": '" "',
    "NUL": '"a\\u0000b"',
    "line break": '"a\\r\\nX-Evil: 1"',
    "half a surrogate": '"\\ud800"',
    "halves in the wrong order": '"\\ude00\\ud83d"',
    "not a character": '"\\uffff"',
    "bidi override": '"\\u202e\\u2066"',
    "path": '"../../../../etc/passwd"',
    "format string": '"%s%n{0.__class__}${jndi:ldap://127.0.0.1/}"',
    "long": json.dumps("x" * 5000),
    "longer": json.dumps("x " * 60_000),
    "list": "[]",
    "list of itself": '["x"]',
    "object": "{}",
    "object of itself": '{"id":{"id":{}}}',
    "prototype": '{"__proto__":{"a":1},"__class__":"x"}',
    "deep": "[" * 500 + "]" * 500,
    "deeper": "[" * 50_000 + "]" * 50_000,
    "wide": "[" + "0," * 10_000 + "0]",
}
"""JSON, by a name for it."""


def messages(
    kind: str, fields: dict[str, object], names: list[str], *, names_too: bool = True
) -> Iterator[tuple[str, str]]:
    """What it is, and its JSON: a good message with one field missing, of another value, or there
    twice; and, ``names_too``, with one that is unknown."""
    good = {"type": kind, **fields}
    yield "good", json.dumps(good)
    for name in ["type", *names]:
        rest = {each: value for each, value in good.items() if each != name}
        yield f"{kind}: no {name}", json.dumps(rest)
        for what, value in VALUES.items():
            yield f"{kind}: {name} is {what}", _with(rest, name, value)
        twice = json.dumps(good.get(name, "x"))
        yield f"{kind}: {name} twice", _with({**good, name: good.get(name, "y")}, name, twice)
    if not names_too:
        return
    yield f"{kind}: unknown field", json.dumps({**good, "no_such_field": 1})
    yield f"{kind}: NUL in a name", json.dumps({**good, "a\0b": 1})
    yield f"{kind}: half a surrogate in a name", json.dumps({**good, "\ud800": 1})
    yield f"{kind}: long name", json.dumps({**good, "x" * 50_000: 1})


def _with(fields: dict[str, object], name: str, value: str) -> str:
    parts = [f"{json.dumps(each)}:{json.dumps(of)}" for each, of in fields.items()]
    return "{" + ",".join([*parts, f"{json.dumps(name)}:{value}"]) + "}"
