"""Text columns; the first is never cut or wrapped."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, chop_cells

GAP = "  "
NARROWEST = 10
"""Minimum width; below it cells get own lines."""


def columns(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Return lines within ``width`` cells; the first row is the header."""
    natural = [max(cell_len(row[place]) for row in rows) for place in range(len(rows[0]))]
    widths = natural if width is None else _fitting(natural, width)
    if widths is None:
        return _stacked(rows, width or 80)
    return [line for row in rows for line in _row(row, widths)]


def _fitting(natural: Sequence[int], width: int) -> list[int] | None:
    widths = list(natural)
    over = sum(widths) + len(GAP) * (len(widths) - 1) - width
    while over > 0:
        place = max(range(1, len(widths)), key=widths.__getitem__, default=0)
        if place == 0 or widths[place] <= NARROWEST:
            return None
        widths[place] -= 1
        over -= 1
    return widths


def _row(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    cells = [_wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
    lines = []
    for index in range(max(map(len, cells))):
        parts = [
            _padded(cell[index] if index < len(cell) else "", width)
            for cell, width in zip(cells, widths, strict=True)
        ]
        lines.append(GAP.join(parts).rstrip())
    return lines


def _stacked(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    lines = []
    for first, *rest in rows[1:]:
        lines.append(first)
        joined = ", ".join(cell for cell in rest if cell)
        lines += [f"  {line}" for line in _wrapped(joined, max(1, width - 2)) if line]
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(joined) <= width:
            lines[-1] = joined
            continue
        pieces = chop_cells(word, width) or [""]
        lines[-1:] = [*filter(None, lines[-1:]), *pieces]
    return lines


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))
