"""One utterance as a waterfall of text: each stage a bar on one time axis (pure)."""

from __future__ import annotations

from itertools import pairwise

from qwen3tts_speech.latency import Mark, UtteranceRecord

NAME_WIDTH = 20
TIME_WIDTH = 11
ORDER = {str(mark): place for place, mark in enumerate(Mark)}
"""Of moments at the same time, the earlier one on the line comes first."""


def waterfall(record: UtteranceRecord, width: int = 100) -> list[str]:
    """Lines of at most ``width`` columns: what each moment waited for, and how long.

    A bar reaches from the moment before to the moment it is named after. The axis ends with the
    first sound: what follows takes as long as the speech does, and has times only. Moments are in
    order of time; marks of the server may be off by ``clock_error_ms``.
    """
    marks = sorted(record.marks.items(), key=lambda item: (item[1], ORDER.get(item[0], 0)))
    if not marks:
        return ["This utterance has no marks."]
    origin = marks[0][1]
    end = record.marks.get(Mark.FIRST_AUDIBLE_WIRE, marks[-1][1])
    total_ms = (end - origin) * 1000
    bar = max(10, width - NAME_WIDTH - 2 * TIME_WIDTH - 2)
    per_ms = bar / total_ms if total_ms >= 0.001 else 0.0  # damaged logs hold any number
    lines = [f"{'at ms':>{TIME_WIDTH}}{'took ms':>{TIME_WIDTH}}"]
    lines[0] = " " * NAME_WIDTH + lines[0]
    lines.append(_line(marks[0][0], 0.0, None, "│"))
    for (_, before), (name, at) in pairwise(marks):
        start_ms, at_ms = (before - origin) * 1000, (at - origin) * 1000
        shape = ""
        if at <= end:
            start, stop = int(start_ms * per_ms), int(at_ms * per_ms)
            shape = " " * min(start, bar - 1) + ("█" * (stop - start) or "▏")
        lines.append(_line(name, at_ms, at_ms - start_ms, shape))
    return lines


def _line(name: str, at_ms: float, took_ms: float | None, shape: str) -> str:
    took = "" if took_ms is None else f"{took_ms:.1f}"
    return f"{name:<{NAME_WIDTH}}{at_ms:>{TIME_WIDTH}.1f}{took:>{TIME_WIDTH}}  {shape}".rstrip()
