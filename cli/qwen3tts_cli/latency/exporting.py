"""Exports of utterances: page, trace, spans, log lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO

from qwen3tts_cli.latency.choices import LogKind
from qwen3tts_cli.latency.columns import Columns
from qwen3tts_cli.latency.options import Exports
from qwen3tts_cli.output.exits import MissingExtra
from qwen3tts_wire.errors import BadRequest

if TYPE_CHECKING:
    from qwen3tts_cli.latency.comparison import Comparison
    from qwen3tts_cli.latency.reading import LogFile


Export = Callable[[], str]
"""Writes the export; returns the note to print."""


def refuse_overwriting(wanted: Exports, logs: Iterable[LogFile]) -> None:
    """Raise BadRequest if an output is one of the logs, or named twice."""
    files = {"--html": wanted.html, "--perfetto": wanted.perfetto}
    named = {option: path.resolve() for option, path in files.items() if path is not None}
    read = {log.path.resolve() for log in logs if not log.is_input}
    for option, path in named.items():
        same = any(path.exists() and log.exists() and path.samefile(log) for log in read)
        if same and path.is_file():
            raise BadRequest(
                f"{option} would overwrite {path.name}, which is one of the logs.",
                remedy="Name another file to write.",
            )
    if len(named) > 1 and len(set(named.values())) == 1:
        raise BadRequest(
            "--html and --perfetto name the same file.", remedy="Name two files to write."
        )


def exports(
    columns: Columns,
    before: Columns | None,
    comparison: Comparison | None,
    wanted: Exports,
    with_text: bool,
) -> Iterator[tuple[str, Export]]:
    if (page := wanted.html) is not None:
        yield str(page), lambda: _page(columns, before, comparison, wanted, with_text)
    if (trace := wanted.perfetto) is not None:
        yield str(trace), lambda: _trace(columns, wanted, with_text)
    if (url := wanted.otel) is not None:
        yield "spans", lambda: _spans(columns, url, with_text)


def _page(
    columns: Columns,
    before: Columns | None,
    comparison: Comparison | None,
    wanted: Exports,
    with_text: bool,
) -> str:
    from qwen3tts_cli.latency.html import PlotlyMissing, write_page

    assert wanted.html is not None
    try:
        size = write_page(
            columns,
            wanted.html,
            before=before,
            comparison=comparison,
            title=wanted.title,
            with_text=with_text,
        )
    except PlotlyMissing as missing:
        raise MissingExtra(str(missing), remedy=missing.remedy) from None
    return f"{wanted.html} ({size / 1e6:.1f} MB): open it in a browser."


def _trace(columns: Columns, wanted: Exports, with_text: bool) -> str:
    from qwen3tts_cli.latency.perfetto import write_trace

    assert wanted.perfetto is not None
    size = write_trace(columns.records(), wanted.perfetto, with_text=with_text)
    message = (
        f"{wanted.perfetto} ({size.utterances} utterances of {size.calls} calls):"
        " open it at https://ui.perfetto.dev, which sends it nowhere."
    )
    if size.left_out:
        message += f" {size.left_out} without a mark or a valid time are omitted."
    return message


def _spans(columns: Columns, url: str, with_text: bool) -> str:
    from qwen3tts_speech.record_sinks import export_records

    sent = export_records(columns.records(), url, with_text=with_text)
    return f"{sent} utterances were sent to the collector."


def print_lines(columns: Columns, kind: LogKind, stream: TextIO, *, with_text: bool) -> None:
    if kind is LogKind.OURS:
        for record in columns.records():
            stream.write(record.to_json(include_text=with_text) + "\n")
        return
    from qwen3tts_cli.output.console import note
    from qwen3tts_speech.e2e_lines import E2eWriter

    writer = E2eWriter(stream)
    for record in columns.records():
        writer.append(record if with_text else replace(record, text=None))
    if writer.left_out:
        note(f"{writer.left_out} utterances without sound have no lines for mr_sip.")
