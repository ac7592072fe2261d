"""Scenarios in YAML: what is taken, and the errors of what is not."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_rehearsal.scenario import (
    Scenario,
    Step,
    Wait,
    read_scenario,
    read_scenarios,
    recording_path,
    recordings_of,
    scenario_of,
)
from qwen3tts_settings.entries import BadConfiguration, Entry, entry_of, from_yaml

CONFIGS = Path(__file__).resolve().parents[2] / "configs" / "scenarios"
WHOLE = """\
name: table
about: A table for two.
language: de
voice: espeak:de+f3
seed: 7
line: {codec: G722, loss: 2.5, burst: 3, jitter_ms: 40, noise: street, snr_db: 12, level_dbfs: -30}
steps:
  - wait: quiet
  - say: I would like
  - hesitate: 0.8
  - wav: two.wav
  - wait: {until: quiet, words: "which day", quiet_s: 1, limit_s: 9}
  - barge_in: {say: "Stop!", after_s: 0.5}
  - backchannel: {wav: mhm.wav}
  - wait: 2
  - keys: "12#"
  - silence: 3
  - hang_up: true
expect:
  response_s: 2
  heard:
    - contains: seven
    - digits: "741"
  keys: ""
  hang_up: {by: caller, after_s: 3}
  webhook:
    - path: /book
      where: {people: 2, name.first: Ann}
max_seconds: 60
"""


def read(text: str) -> Scenario:
    return scenario_of(from_yaml(text, "t.yaml"), "t")


def test_a_scenario_with_everything_is_read() -> None:
    scenario = read(WHOLE)
    assert scenario.name == "table"
    assert scenario.line.burst == 3.0
    kinds = [step.kind for step in scenario.steps]
    assert kinds[:6] == ["wait", "say", "hesitate", "wav", "wait", "barge_in"]
    assert kinds[6:] == ["backchannel", "silence", "keys", "silence", "hang_up"]
    assert scenario.steps[4].wait == Wait(words="which day", quiet_s=1.0, limit_s=9.0)
    assert scenario.steps[0].wait == Wait()
    assert scenario.steps[7].silence == 2.0
    assert scenario.expect.keys == ""
    assert scenario.expect.webhook[0].where == {"people": 2, "name.first": "Ann"}
    assert [str(each) for each in recordings_of(scenario)] == ["two.wav", "mhm.wav"]


@pytest.mark.parametrize(
    ("written", "instead", "message", "remedy"),
    [
        ("hesitate: 0.8", "hesitat: 0.8", r"steps\[2\]\.hesitat is unknown .*:10", "hesitate?"),
        ("hesitate: 0.8", "hesitate: 99", r"hesitate=99\.0 must be from 0\.05 to 10", "there"),
        ("- hesitate: 0.8", "- silence: 1\n  - hesitate: 0.8", r"steps\[3\]: hesitate stands", ""),
        ("codec: G722", "codec: MP3", "codec must be any or PCMU", "there"),
        ("loss: 2.5", "loss: 51", r"loss=51\.0 must be from 0 to 50 percent .*:6", "there"),
        ("noise: street", "noise: rain", "noise must be none or white", "there"),
        ("until: quiet", "until: later", r"wait\.until must be quiet or speech", "there"),
        ("- wait: quiet", "- wait: later", r"steps\[0\]\.wait\.until must be quiet .*:8", "there"),
        ("which day", "((", "no regular expression", "there"),
        ('"12#"', "12", r"steps\[8\]\.keys must be a text, not 12 .*:16", "quotes"),
        ('"12#"', '"1x"', r"keys='1x' must be keys", "there"),
        ('say: "Stop!", after', "after", "say and wav: one of them", "there"),
        (
            "- silence: 3",
            "- silence: 3\n    say: yes please",
            "this one has say and silence",
            "there",
        ),
        ("- silence: 3", "- hang_up: true", "hang_up is the last step", "there"),
        ("- silence: 3", "- {}", "this one has none", "there"),
        ("- wait: 2", "- wait: 2000", r"silence=2000\.0 must be", "there"),
        ("by: caller", "by: me", "must be agent or caller, not 'me'", "there"),
        ('digits: "741"', 'digits: "74-1"', "must be digits", "there"),
        ("contains: seven", "contains: a\n      excludes: b", "just one of them", "there"),
        ("path: /book", "path: book", "must begin with a slash", "there"),
        ("name: table", "name: a/b", "name='a/b' must be a name of letters", "there"),
        ("language: de", "language: German", "must be a language", "there"),
        ("max_seconds: 60", "max_seconds: 0", "max_seconds=0", "there"),
        ("steps:", "caller: {model: http://x/v1, persona: Ann}\nsteps:", "steps and caller", ""),
    ],
)
def test_what_is_wrong_is_named_with_its_line(
    written: str, instead: str, message: str, remedy: str
) -> None:
    assert written in WHOLE
    with pytest.raises(BadConfiguration) as error:
        read(WHOLE.replace(written, instead, 1))
    assert re.search(message, error.value.message), error.value.message
    assert "t.yaml:" in error.value.message
    assert remedy in error.value.remedy


def test_a_scenario_without_steps_is_none() -> None:
    with pytest.raises(BadConfiguration, match="steps and caller: one of them is needed"):
        read("name: x")


def test_a_file_gives_its_name_and_paths_are_relative_to_it(tmp_path: Path) -> None:
    file = tmp_path / "my call.yaml"
    file.write_text("steps: [{wav: a/b.wav}]")
    with pytest.raises(BadConfiguration, match=r"recording a/b\.wav is not there"):
        read_scenario(file)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.wav").write_bytes(b"")
    assert read_scenario(file).name == "my_call"
    assert recording_path(file, Path("a/b.wav")) == tmp_path / "a" / "b.wav"
    assert recording_path(file, Path("/x.wav")) == Path("/x.wav")


@pytest.mark.parametrize(
    ("stem", "name"), [("übung", "übung"), ("_a b", "_a_b"), ("-x", "_x"), ("n" * 80, "n" * 64)]
)
def test_any_file_name_makes_a_name(tmp_path: Path, stem: str, name: str) -> None:
    file = tmp_path / f"{stem}.yaml"
    file.write_text("steps: [{say: hello}]\n")
    assert read_scenario(file).name == name


def test_folders_are_read_in_order_and_names_are_distinct(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", "note.txt"):
        (tmp_path / name).write_text("steps: [{say: hello}]")
    found = read_scenarios([tmp_path])
    assert [(each.name, file.name) for each, file in found] == [("a", "a.yml"), ("b", "b.yaml")]
    with pytest.raises(BadConfiguration, match="Two scenarios are called a"):
        read_scenarios([tmp_path, tmp_path / "a.yml"])


def test_an_empty_folder_and_a_missing_file_are_errors(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match="has no scenario") as error:
        read_scenarios([tmp_path])
    assert "configs/scenarios" in error.value.remedy
    with pytest.raises(BadConfiguration, match="No such file"):
        read_scenarios([tmp_path / "none.yaml"])


@pytest.mark.parametrize("file", sorted(CONFIGS.rglob("*.yaml")), ids=lambda file: file.stem)
def test_the_examples_are_valid(file: Path) -> None:
    scenario = read_scenario(file)
    assert scenario.about
    assert scenario.name == file.stem


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
names = st.sampled_from(["name", "steps", "line", "expect", "caller", "seed", "voice", "about"])


@given(st.dictionaries(names | st.text(max_size=5), values, max_size=5))
def test_any_content_is_a_scenario_or_a_configuration_error(content: dict[str, object]) -> None:
    entry = entry_of(content, "f:1")
    with contextlib.suppress(BadConfiguration):
        assert isinstance(scenario_of(Entry(entry.value, "f:1"), "x"), Scenario)


def test_a_step_made_by_a_program_is_checked_as_well() -> None:
    with pytest.raises(ValueError, match="just one of"):
        Step(say="a", keys="1")
    with pytest.raises(ValueError, match="silence"):
        Step(silence=-1.0)
