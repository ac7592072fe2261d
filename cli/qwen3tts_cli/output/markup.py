"""Escaping of text and data in HTML and JSON (pure)."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Mapping, Sequence

import numpy as np

NARROW_SPACE = "\u202f"
"""Non-breaking, between number and unit."""


NOTHING = "\N{EN DASH}"


def text(value: object) -> str:
    """Escape for tags and quoted attributes; replace unprintable characters."""
    shown = "".join(
        char if char.isprintable() or char == NARROW_SPACE else "\ufffd" for char in str(value)
    )
    return html.escape(shown, quote=True)


def script_json(value: object) -> str:
    """Return JSON safe inside a script element."""
    made = json.dumps(_plain(value), separators=(",", ":"), allow_nan=False)
    # ASCII only already; these three are what HTML looks for inside a script.
    return made.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def content_policy(*scripts: str, more: str = "") -> str:
    """Return a Content-Security-Policy that runs just these scripts and asks for no address.

    ``more``: further directives, each with its semicolon.
    """
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'"
        for each in scripts
    )
    # Plotly sets styles of its own, and draws pictures from blobs.
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline';"
        f" img-src data: blob:; {more}base-uri 'none'; form-action 'none'"
    )


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        return [_plain(each) for each in value.tolist()]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(each) for each in value]
    if isinstance(value, float | np.floating):
        rounded = float(f"{value:.5g}")  # the largest ones round to infinity
        return rounded if math.isfinite(rounded) else None
    return int(value) if isinstance(value, np.integer) else value


def number(value: float) -> str:
    """Format with significant digits: 0.25, 4.2, 83, 1 204."""
    if not math.isfinite(value):
        return NOTHING
    size = abs(value)
    digits = 0 if size >= 99.95 else 1 if size >= 0.995 else 2
    shown = f"{value:,.{digits}f}".replace(",", NARROW_SPACE)
    return "0" if not float(f"{value:.{digits}f}") else shown.replace("-", "\N{MINUS SIGN}")


def signed(value: float) -> str:
    shown = number(value)
    return f"+{shown}" if value > 0 and shown not in ("0", NOTHING) else shown


def ms(value: float) -> str:
    if math.isfinite(value) and abs(value) >= 10_000:
        return f"{number(value / 1000)}{NARROW_SPACE}s"
    return f"{number(value)}{NARROW_SPACE}ms" if math.isfinite(value) else NOTHING


def count(value: int) -> str:
    return f"{value:,}".replace(",", NARROW_SPACE)


def plural(number_of: int, noun: str) -> str:
    return f"{count(number_of)} {noun}{'' if number_of == 1 else 's'}"
