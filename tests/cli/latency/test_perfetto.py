"""The trace for ui.perfetto.dev: what viewers need to nest and name things, and what it holds."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_cli.latency.perfetto import write_trace
from qwen3tts_speech.latency import MARKS, Mark, UtteranceRecord
from tests.cli.latency.synthetic import Made, made_records
from tests.speech.marks import HEARD_WHOLE

Event = dict[str, Any]


def said(context: str = "1", at: float = 50.0, *, call: str = "call-1") -> UtteranceRecord:
    record = UtteranceRecord(
        call_id=call,
        context=context,
        voice="ryan",
        engine="qwen3",
        started_unix_s=1_800_000_000.25 + at - 50,
        clock_error_ms=0.4,
        end_reason="text_end",
        text="a secret",
    )
    for mark, after in HEARD_WHOLE.items():
        record.mark(mark, at + after)
    return record


def written(path: Path, *records: UtteranceRecord, with_text: bool = False) -> list[Event]:
    write_trace(records, path, with_text=with_text)
    return checked(json.loads(path.read_text(encoding="ascii")))


def checked(trace: dict[str, Any]) -> list[Event]:
    """The events, as the Trace Event Format has them: fields by their kinds, slices that nest."""
    assert trace["displayTimeUnit"] in ("ms", "ns")
    events: list[Event] = trace["traceEvents"]
    named, slices = set(), defaultdict(list)
    for event in events:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        match event["ph"]:
            case "M":
                named.add((event["name"], event["pid"], event["tid"]))
                continue
            case "X":
                assert event["dur"] > 0
                slices[event["pid"], event["tid"]].append((event["ts"], -event["dur"]))
            case "i":
                assert event["s"] == "t"
            case "C":
                assert all(isinstance(value, int | float) for value in event["args"].values())
            case kind:
                pytest.fail(f"{kind} is no kind of event that is written")
        assert isinstance(event["ts"], int)
        assert event["ts"] >= 0
        assert ("process_name", event["pid"], 0) in named
        assert event["ph"] == "C" or ("thread_name", event["pid"], event["tid"]) in named
    for track in slices.values():
        open_until: list[int] = []
        for start, minus_length in sorted(track):
            while open_until and open_until[-1] <= start:
                open_until.pop()
            end = start - minus_length
            assert not open_until or end <= open_until[-1], (
                "two slices overlap and neither is in the other"
            )
            open_until.append(end)
    return events


def slices_of(events: list[Event], track: str) -> list[tuple[str, float]]:
    tids = {
        each["tid"] for each in events if each["ph"] == "M" and each["args"].get("name") == track
    }
    return [
        (each["name"], each["dur"] / 1000)
        for each in events
        if each["ph"] == "X" and each["tid"] in tids
    ]


def test_a_call_is_a_process_with_tracks_of_client_and_server(tmp_path: Path) -> None:
    events = written(tmp_path / "t.json", said(), said("2", 60.0), said(call="call-2"))
    names = [each["args"]["name"] for each in events if each["name"] == "process_name"]
    assert names == ["call call-1", "call call-2"]
    assert slices_of(events, "client")[:8] == [
        ("utterance 1", 2200.0),
        ("first words", 50.0),
        ("first request", 2.0),
        ("server and network", 148.0),
        ("turn to speak", 0.4),
        ("pacer", 0.6),
        ("silence before the sound", 20.0),
        ("speaking", 1979.0),
    ]
    assert slices_of(events, "server")[:3] == [
        ("utterance 1", 145.0),
        ("place at the engine", 1.0),
        ("first samples", 144.0),
    ]


def test_the_uncertainty_of_the_servers_clock_stands_at_what_the_server_did(tmp_path: Path) -> None:
    events = written(tmp_path / "t.json", said())
    assert [each["args"] for each in events if each["ph"] == "X" and each["dur"] == 145_000] == [
        {"clock may be off by ms": 0.4}
    ]


def test_utterances_that_overlap_lie_on_tracks_of_their_own(tmp_path: Path) -> None:
    events = written(tmp_path / "t.json", said(), said("2", 51.0), said("3", 52.5))
    assert [name for name, ms in slices_of(events, "client") if ms == 2200] == [
        "utterance 1",
        "utterance 3",
    ]
    assert [name for name, ms in slices_of(events, "client 2") if ms == 2200] == ["utterance 2"]


def test_a_wall_clock_that_was_set_moves_nothing_within_a_call(tmp_path: Path) -> None:
    second = said("2", 60.0)
    second.started_unix_s += 0.7
    events = written(tmp_path / "t.json", said(), second)
    first, other = (
        each["ts"] for each in events if each["name"].startswith("utterance") and each["dur"] > 2e6
    )
    assert other - first == 10_000_000


def test_gaps_and_interruptions_are_instants_and_the_gaps_are_counted(tmp_path: Path) -> None:
    stopped, starved = said(), said("2", 60.0)
    stopped.mark(Mark.INTERRUPTED, 51.0)
    stopped.mark(Mark.SILENT, 51.03)
    starved.starvations, starved.starved_ms, starved.longest_gap_ms = 2, 60.0, 40.0
    events = written(tmp_path / "t.json", stopped, starved)
    assert [(each["name"], each["args"]) for each in events if each["ph"] == "i"] == [
        ("interrupted", {"silent after ms": 30.0}),
        ("gaps in this utterance", {"gaps": 2, "silence ms": 60.0, "longest ms": 40.0}),
    ]
    assert [each["args"] for each in events if each["ph"] == "C"] == [{"gaps": 0}, {"gaps": 2}]


def test_words_are_in_no_trace_unless_they_are_asked_for(tmp_path: Path) -> None:
    written(tmp_path / "without.json", said())
    assert "secret" not in (tmp_path / "without.json").read_text()
    written(tmp_path / "with.json", said(), with_text=True)
    assert "a secret" in (tmp_path / "with.json").read_text()


def test_names_of_a_hostile_log_stay_text(tmp_path: Path) -> None:
    hostile = said(call='"},{"ph":"\ud800\n</script>')
    events = written(tmp_path / "t.json", hostile)
    assert events[0]["args"]["name"] == f"call {hostile.call_id}"


def test_a_name_that_ends_in_gz_is_compressed(tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    size = write_trace(made_records(Made(utterances=30, calls=3)), path)
    events = checked(json.loads(gzip.decompress(path.read_bytes())))
    assert (size.utterances, size.calls, size.events) == (30, 3, len(events))
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_log_without_utterances_is_a_trace_without_events(tmp_path: Path) -> None:
    assert written(tmp_path / "t.json") == []


def test_what_has_no_time_is_left_out_and_counted(tmp_path: Path) -> None:
    wrong = said()
    wrong.started_unix_s = 1e15
    size = write_trace([UtteranceRecord(), wrong, said()], tmp_path / "t.json")
    assert (size.utterances, size.left_out) == (1, 2)


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        write_trace([said()], tmp_path / "nowhere" / "t.json")


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from(sorted(MARKS)), st.floats(-10, 10)),
            st.integers(0, 3),
            st.sampled_from(["a", "b"]),
            st.floats(0, 1e10),
        ),
        max_size=12,
    )
)
def test_whatever_clocks_did_slices_nest(
    tmp_path_factory: pytest.TempPathFactory,
    held: list[tuple[dict[str, float], int, str, float]],
) -> None:
    records = []
    for marks, starvations, call, started in held:
        record = UtteranceRecord(call_id=call, started_unix_s=started, starvations=starvations)
        for mark, at in marks.items():
            record.mark(mark, at)
        records.append(record)
    written(tmp_path_factory.getbasetemp() / "any.json", *records)
