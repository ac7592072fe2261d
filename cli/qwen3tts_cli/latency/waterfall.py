"""One utterance as a waterfall of text: each stage a bar on one time axis (pure)."""

from __future__ import annotations

from itertools import pairwise

from qwen3tts_cli.latency.order import disorder
from qwen3tts_cli.latency.stages import OF_SERVER, crosses_clocks
from qwen3tts_speech.latency import Mark, UtteranceRecord

NAME_WIDTH = 20
TIME_WIDTH = 11
ORDER = {str(mark): place for place, mark in enumerate(Mark)}
"""Of moments at the same time, the earlier one on the line comes first."""


def waterfall(record: UtteranceRecord, width: int = 100) -> list[str]:
    """Lines of at most ``width`` columns: what each moment waited for, and how long.

    A bar reaches from the moment before to the moment it is named after. The axis ends with the
    first sound: what follows takes as long as the speech does, and has times only. Moments are in
    order of time. A time from one machine's clock to the other's has its uncertainty behind it.
    """
    marks = sorted(record.marks.items(), key=lambda item: (item[1], ORDER.get(item[0], 0)))
    if not marks:
        return ["This utterance has no marks."]
    origin = marks[0][1]
    end = record.marks.get(Mark.FIRST_AUDIBLE_WIRE, marks[-1][1])
    total_ms = (end - origin) * 1000
    error = f"{record.clock_error_ms:.1f}" if record.clock_error_ms else ""
    uncertain = bool(error) and any(
        crosses_clocks(first, last) for (first, _), (last, _) in pairwise(marks)
    )
    error_width = max(len(error) + 2, 5) if uncertain else 0
    bar = max(10, width - NAME_WIDTH - 2 * TIME_WIDTH - error_width - 2)
    per_ms = bar / total_ms if total_ms >= 0.001 else 0.0  # damaged logs hold any number
    heading = f"{'at ms':>{TIME_WIDTH}}{'took ms':>{TIME_WIDTH}}{' ± ms' if uncertain else ''}"
    lines = [" " * NAME_WIDTH + heading]
    lines.append(_line(marks[0][0], 0.0, "", " " * error_width, "│"))
    for (earlier, before), (name, at) in pairwise(marks):
        start_ms, at_ms = (before - origin) * 1000, (at - origin) * 1000
        shape = ""
        if at <= end:
            start, stop = int(start_ms * per_ms), int(at_ms * per_ms)
            shape = " " * min(start, bar - 1) + ("█" * (stop - start) or "▏")
        known = f" ±{error}" if uncertain and crosses_clocks(earlier, name) else ""
        took = f"{at_ms - start_ms:.1f}"
        lines.append(_line(name, at_ms, took, f"{known:<{error_width}}", shape))
    return lines


def remarks(record: UtteranceRecord) -> list[str]:
    """What must be known to read its waterfall."""
    told = [f"Out of order: {each}." for each in disorder(record)]
    if record.clock_error_ms and OF_SERVER.intersection(record.marks):
        told.append(
            f"The server's moments are known to ± {record.clock_error_ms:.1f} ms"
            " against ours; between two of them they are exact."
        )
    if record.starvations:
        times = "once" if record.starvations == 1 else f"{record.starvations} times"
        told.append(
            f"It ran dry {times}, {record.starved_ms:.1f} ms in all,"
            f" {record.longest_gap_ms:.1f} ms at the longest."
        )
    return told


def _line(name: str, at_ms: float, took: str, known: str, shape: str) -> str:
    times = f"{at_ms:>{TIME_WIDTH}.1f}{took:>{TIME_WIDTH}}"
    return f"{name:<{NAME_WIDTH}}{times}{known}  {shape}".rstrip()
