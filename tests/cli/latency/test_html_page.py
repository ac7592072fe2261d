from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_cli.latency.columns import Columns, columns_of
from qwen3tts_cli.latency.html import PlotlyMissing, write_page
from qwen3tts_cli.latency.html.page import page
from qwen3tts_cli.latency.reading import find_logs, read_columns
from qwen3tts_cli.latency.tables import percentile
from qwen3tts_cli.output.markup import script_json, text
from qwen3tts_speech.latency import Mark, UtteranceRecord
from tests.cli.latency.pages import HOSTILE, Read, hostile_records, made, read
from tests.cli.latency.synthetic import Made, made_log
from tests.conftest import require_package


@pytest.fixture(autouse=True, scope="module")
def plotly() -> None:
    require_package("plotly", "pip install 'mr_qwen3tts[plots]'")


def test_the_page_says_how_long_and_which_hop() -> None:
    columns = made(slower_ms=200, gap_share=0.1)
    shown = read(columns, title="Tuesday")
    first = columns.first_sound_ms
    median = percentile(first[np.isfinite(first)], 50)
    assert f"First sound after {median:.0f}\u202fms" in shown.text
    assert "The longest hop is engine: first samples" in shown.text
    assert "Tuesday" in shown.text
    assert "200 utterances · 20 calls" in shown.text
    assert f"{columns.longest_gap_ms.max():.0f}\u202fms" in shown.text


def test_every_hop_and_headline_has_its_percentiles() -> None:
    columns = made()
    shown = read(columns)
    for marks in ("first_delta → request_sent", "slot → first_pcm", "queued → first_frame_wire"):
        assert marks in shown.text
    values = columns.between_ms(Mark.SLOT, Mark.FIRST_PCM)
    values = values[np.isfinite(values)]
    assert f"{percentile(values, 95):.0f}" in shown.text
    names = list(shown.data["quantities"])
    assert "first delta → first sound" in names
    assert "interrupted → silence" in names


def test_nothing_is_loaded_and_only_the_pages_own_scripts_run() -> None:
    shown = read(made())
    for tag, attributes in shown.tags:
        assert not {"src", "href", "srcset", "action"} & set(attributes), tag
        assert tag not in ("link", "iframe", "object", "base", "form")
        assert not [name for name in attributes if name.startswith("on")]
    (policy,) = [
        attributes["content"] or ""
        for tag, attributes in shown.tags
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert "default-src 'none'" in policy
    assert "script-src 'unsafe" not in policy
    hashes = set(re.findall(r"'sha256-([^']+)'", policy))
    run = [script for attributes, script in shown.scripts if "type" not in attributes]
    assert len(run) == 2
    assert {
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in run
    } == hashes


def test_the_styles_load_nothing() -> None:
    made_page = page(made(utterances=20))
    style = made_page[made_page.index("<style>") : made_page.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_hostile_names_stay_names() -> None:
    calm = read(made(utterances=60, calls=10))
    shown = read(columns_of(hostile_records()), title=HOSTILE[0], with_text=True)
    assert len(shown.scripts) == len(calm.scripts) == 3
    added = {tag for tag, _ in shown.tags} - {tag for tag, _ in calm.tags}
    assert not added
    assert not [tag for tag, _ in shown.tags if tag in ("img", "a")]
    named = {each["id"] for each in shown.data["utterances"]}
    assert any(name.startswith(HOSTILE[0]) for name in named)
    assert HOSTILE[1] in shown.text
    # The plots' library reads tags and templates in its labels: no name of a log is in them.
    plots = json.dumps(shown.data["plots"])
    assert "alert" not in plots
    assert "example.org" not in plots


@given(st.text())
def test_any_text_is_one_piece_of_text(value: str) -> None:
    shown = Read(f'<p title="{text(value)}">{text(value)}</p>')
    printable = "".join(
        char if char.isprintable() or char == "\u202f" else "\ufffd" for char in value
    )
    assert [tag for tag, _ in shown.tags] == ["p"]
    assert shown.text == shown.tags[0][1]["title"] == printable


@given(st.recursive(st.text() | st.floats() | st.none(), lambda inner: st.lists(inner)))
def test_any_data_is_json_that_ends_no_script(value: object) -> None:
    made_json = script_json(value)
    assert not set("<>&\u2028\u2029") & set(made_json)
    json.loads(made_json, parse_constant=pytest.fail)


def test_words_are_on_the_page_only_when_asked_for() -> None:
    columns = made(text="My number is secret.")
    assert "secret" not in page(columns)
    assert "My number is secret." in page(columns, with_text=True)
    silent = made()
    assert "text" not in read(silent, with_text=True).data["utterances"][0]


def test_the_utterances_shown_are_the_slowest_those_with_gaps_typical_ones_and_some() -> None:
    columns = made(gap_share=0.1, failed_share=0.1)
    shown = read(columns).data["utterances"]
    groups = dict.fromkeys(each["group"] for each in shown)
    assert list(groups) == [
        "Slowest to sound",
        "Longest gaps",
        "Without a sound",
        "Typical",
        "By chance",
    ]
    slowest = float(np.nanmax(columns.first_sound_ms))
    assert shown[0]["total"] == pytest.approx(slowest, rel=1e-3)
    assert len({each["id"] for each in shown}) == len(shown)
    hops = shown[0]["hops"]
    assert all(hop["to"] == after["from"] for hop, after in pairwise(hops))
    crossing = [hop for hop in hops if hop["server"][0] != hop["server"][1]]
    assert [hop["side"] for hop in crossing] == ["network", "network"]
    assert shown[0]["clock"] == pytest.approx(0.4)


def test_two_sets_are_shown_beside_each_other() -> None:
    before, after = made(utterances=600, calls=60), made(1, utterances=600, calls=60, slower_ms=-30)
    shown = read(after, before=before)
    assert "The first sound comes faster by" in shown.text
    assert "The hop that moved most is engine: first samples" in shown.text
    assert "Typical, before" in shown.text
    assert "Slowest 5\u202f%, after" in shown.text
    assert "forest" in shown.data["plots"]
    assert all(len(lines) == 2 for lines in shown.data["quantities"].values())


def test_what_cannot_be_told_is_not_plotted() -> None:
    shown = read(made(), before=made(calls=2))
    assert "inconclusive" in shown.text
    assert "Only 2 calls before" in shown.text
    assert "forest" not in shown.data["plots"]


def test_the_same_logs_give_the_same_page() -> None:
    assert page(made(), before=made(1)) == page(made(), before=made(1))


@pytest.mark.parametrize("with_before", [False, True])
def test_the_figures_are_plotlys(with_before: bool) -> None:
    graph_objects = require_package("plotly.graph_objects", "pip install 'mr_qwen3tts[plots]'")
    before = made(1, utterances=600, calls=60, slower_ms=50) if with_before else None
    plots = read(made(utterances=600, calls=60), before=before).data["plots"]
    assert set(plots) == {"course", "spread"} | ({"forest"} if with_before else set())
    for figure in plots.values():
        plain = json.loads(re.sub(r'"@[a-z-]+"', '"#123456"', json.dumps(figure)))
        graph_objects.Figure(plain)  # raises for what the library does not know


def test_colours_of_the_plots_are_colours_of_the_theme() -> None:
    made_page = page(made(1, utterances=600, calls=60), before=made(utterances=600, calls=60))
    names = set(re.findall(r'"@([a-z-]+)"', made_page))
    assert {"server", "accent", "grid"} <= names
    for name in names:
        assert f"--{name}:" in made_page


def test_a_page_does_not_grow_with_its_log() -> None:
    sizes = [
        len(page(_many(count), before=_many(count, seed=1)).encode()) for count in (2_000, 20_000)
    ]
    library = len(page(columns_of([])).encode())
    assert sizes[1] < sizes[0] * 1.02
    assert sizes[1] - library < 400_000


def _many(count: int, seed: int = 0) -> Columns:
    some = made(seed, utterances=500, calls=50, text="word " * 1000)
    rng = np.random.default_rng(seed)
    return some.select(rng.integers(0, len(some), count))


def nothing() -> Columns:
    return columns_of([])


def without_marks() -> Columns:
    return columns_of(UtteranceRecord(call_id="a", context=str(number)) for number in range(5))


def only_failed() -> Columns:
    return made(failed_share=1.0)


def one_utterance() -> Columns:
    return made(utterances=1, calls=1)


def backwards() -> Columns:
    records = []
    for number in range(20):
        record = UtteranceRecord("call", str(number), started_unix_s=-(10.0**number))
        for place, mark in enumerate(Mark):
            record.mark(mark, 1e6 - place)
        record.clock_error_ms = -5.0
        records.append(record)
    return columns_of(records)


def far_away() -> Columns:
    """The largest numbers that a log may hold."""
    records = []
    for number in range(20):
        record = UtteranceRecord("call", str(number), started_unix_s=1e15 * (-1) ** number)
        for mark, at in zip(Mark, (0.0, -1e12, 1e12, 1e-9) * 6, strict=False):
            record.mark(mark, at)
        record.starvations, record.longest_gap_ms = 10**15, 1e15
        record.clock_error_ms = 1e15
        records.append(record)
    return columns_of(records)


@pytest.mark.parametrize(
    "columns", [nothing, without_marks, only_failed, one_utterance, backwards, far_away]
)
@pytest.mark.parametrize("as_before", [False, True])
def test_odd_logs_make_a_page_without_a_number_that_is_none(
    columns: Callable[[], Columns], as_before: bool
) -> None:
    odd, even = columns(), made()
    shown = read(even, before=odd) if as_before else read(odd, before=even)
    for each in (shown, read(odd)):
        assert "nan" not in each.text.lower().replace("finance", "")
        assert " inf" not in each.text.lower()
        assert "Traceback" not in each.text
        json.dumps(each.data, allow_nan=False)


def test_less_than_no_time_is_told() -> None:
    assert "have a negative duration" in read(backwards()).text
    assert "have a negative duration" not in read(made()).text


def test_damage_in_the_logs_is_told(tmp_path: Path) -> None:
    log = made_log(tmp_path / "<b>.jsonl", Made(20))
    log.write_bytes(log.read_bytes() + b'{"half": \n\xff\xfe\n')
    shown = read(read_columns(find_logs([log]).files))
    assert "2 of 22 lines are no utterances" in shown.text
    assert "<b>.jsonl, line 21: not JSON" in shown.text


def test_a_log_that_changed_meanwhile_is_told(tmp_path: Path) -> None:
    log = made_log(tmp_path / "log.jsonl", Made(20))
    columns = read_columns(find_logs([log]).files)
    log.write_bytes(b"{}\n")
    shown = read(columns)
    assert "could not be read again" in shown.text
    assert shown.data["utterances"] == []
    assert not [tag for tag, attributes in shown.tags if attributes.get("id") == "chooser"]


def test_the_file_is_written_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "page.html"
    size = write_page(made(), target, title="first")
    assert target.stat().st_size == size
    assert target.stat().st_mode & 0o777 == 0o600
    old = target.read_bytes()

    def fails(part: str, target: Path) -> None:
        raise OSError(28, "No space left on device", part)

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match=r"No space.*page\.html"):
        write_page(made(), target, title="second")
    assert target.read_bytes() == old
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_that_is_not_there_is_an_error_that_names_the_page(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"No such file.*none/page\.html"):
        write_page(made(utterances=5), tmp_path / "none" / "page.html")


def test_without_the_library_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "plotly"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(PlotlyMissing, match="plotly") as told:
        write_page(made(utterances=5), tmp_path / "page.html")
    assert "mr_qwen3tts[plots]" in told.value.remedy
    assert not list(tmp_path.iterdir())


def test_the_clocks_uncertainty_is_shown() -> None:
    shown = read(made(clock_error_ms=3.25))
    assert "±3.2" in shown.text or "±3.3" in shown.text
    assert "uncertain between clocks" in shown.text
    assert "uncertain between clocks" not in read(without_marks()).text


def test_no_number_is_rounded_up_to_all() -> None:
    columns = made(gap_share=0.0)
    assert "100\u202f%" in read(columns).text
    columns.starvations[0] = 1
    shown = read(columns.select(np.arange(len(columns)).repeat(1))).text
    assert "99.49" in shown or "99.50" in shown


def test_the_parts_of_the_page_are_named_for_readers_of_screens() -> None:
    shown = read(made(), before=made(1))
    ids = {attributes["id"] for _, attributes in shown.tags if "id" in attributes}
    for tag, attributes in shown.tags:
        if tag == "section":
            assert attributes.get("aria-label") or attributes.get("aria-labelledby") in ids
        for name in ("aria-controls", "aria-labelledby"):
            assert attributes.get(name) is None or attributes[name] in ids
    assert ("html", {"lang": "en"}) in shown.tags


def test_where_the_way_begins_is_said_in_words_and_not_by_the_name_of_a_mark() -> None:
    shown = read(made(utterances=40))
    assert "from the request for text to the first sound" in shown.text
    assert "from text_in" not in shown.text
    nothing_heard = read(made(utterances=5, failed_share=1.0))
    assert "Hop by hop, as far as the utterances came." in nothing_heard.text
    assert "the hops add up" not in nothing_heard.text
