"""Settings from a file, the environment and the command line."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_server.configuration import (
    Configuration,
    configuration_from,
    load_configuration,
)
from qwen3tts_settings.building import build, plain, without_credentials
from qwen3tts_settings.entries import MAX_FILE_BYTES, BadConfiguration, from_overrides, from_yaml

ROOT = Path(__file__).parents[3]


def written(folder: Path, text: str) -> Path:
    path = folder / "server.yaml"
    path.write_text(text, "utf-8")
    return path


def refused(text: str) -> str:
    with pytest.raises(BadConfiguration) as error:
        configuration_from(from_yaml(text, "server.yaml"))
    return str(error.value)


def test_without_anything_the_defaults_are_used() -> None:
    assert load_configuration(None, {}) == Configuration()


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "server:\n  port: 1\n  host: 0.0.0.0\n  idle_s: 5\n")
    env = {"QWEN3TTS__SERVER__PORT": "2", "QWEN3TTS__SERVER__IDLE_S": "6"}
    found = load_configuration(file, env, ["server.port=3"]).server
    assert (found.host, found.port, found.idle_s) == ("0.0.0.0", 3, 6.0)


def test_the_process_environment_is_read_where_none_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("QWEN3TTS__SERVER__LIMITS__MAX_CONTEXTS", "7")
    assert load_configuration().server.limits.max_contexts == 7


def test_of_two_overrides_the_later_one_wins() -> None:
    assert load_configuration(None, {}, ["server.port=1", "server.port=2"]).server.port == 2


def test_an_unknown_name_is_refused_with_its_line_and_the_near_ones() -> None:
    told = refused("server:\n  host: ::1\n  prot: 80\n")
    assert "server.prot is unknown (server.yaml:3)" in told
    assert "Did you mean port?" in told


def test_an_unknown_name_that_is_near_to_none_names_them_all() -> None:
    assert "Known are: server, engine, starters, logging" in refused("qqqqqq: 1")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("server: {port: eighty}", "server.port must be a whole number, not 'eighty'"),
        ("server: {port: true}", "server.port must be a whole number"),
        ("server: {port: 1.5}", "server.port must be a whole number"),
        ("server: {port: null}", "server.port must be a whole number"),
        ("server: {host: 5}", "server.host must be a text"),
        ("server: {profiler: 1}", "server.profiler must be true or false"),
        ("server: {frame_ms: [1]}", "server.frame_ms must be a number, not a list"),
        ("server: {limits: 5}", "server.limits must be a section"),
        ("server: 5", "server must be a section"),
        ("server: {access: {origins: a}}", "server.access.origins must be a list"),
        ("server: {access: {origins: [5]}}", "server.access.origins[0] must be a text"),
        (
            "engine: {name: other}",
            "engine.name must be auto or piper or embedded or qwen3 or upstream",
        ),
        ("engine: {qwen3: {model: m, slots: x}}", "engine.qwen3.slots must be a whole number"),
        ("engine: {qwen3: {slots: 3}}", "engine.qwen3.model is missing"),
        ("logging: {form: xml}", "logging.form must be text or json"),
    ],
)
def test_a_value_of_another_type_is_refused_by_its_name(text: str, told: str) -> None:
    assert told in refused(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("server:\n  port: 70000\n", "port=70000 must be from 0 to 65535 (server.yaml:2)"),
        ("engine:\n  name: qwen3\n", "needs a checkpoint: qwen3.model"),
        ("engine:\n  name: upstream\n", "needs an address: upstream.url"),
        ("server:\n  access:\n    tls_key: k\n", "tls_key needs tls_cert"),
    ],
)
def test_a_value_that_cannot_be_is_told_with_its_line(text: str, told: str) -> None:
    assert told in refused(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("server: {port: 1, port: 2}", "port is set twice"),
        ("server: [", "server.yaml:1 is not readable"),
        ("- a\n- b\n", "does not hold settings"),
        ("5", "does not hold settings"),
        ("1: 2", "a name of a setting must be a text"),
        ("[a]: 2", "a name of a setting must be a text"),
        ("server: !!python/object/apply:os.system [ls]", "is not readable"),
        ("a: " + "{a: " * 40 + "1" + "}" * 40, "nested too deeply"),
        ("a: &x {b: *x}", "nested too deeply"),
        ("a: 2001-99-99", "not readable"),
    ],
)
def test_what_is_no_yaml_of_settings_is_refused(text: str, told: str) -> None:
    assert told in refused(text)


@pytest.mark.parametrize("text", ["", "# nothing\n", "server:\n", "---\n"])
def test_an_empty_file_or_section_is_the_defaults(text: str) -> None:
    assert configuration_from(from_yaml(text, "f")) == Configuration()


@pytest.mark.parametrize("data", [b"\xff\xfe", b"a: \x80"])
def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "f").write_bytes(data)
    with pytest.raises(BadConfiguration, match="not UTF-8"):
        load_configuration(tmp_path / "f", {})


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(BadConfiguration, match="more than"):
        load_configuration(tmp_path / "f", {})


def test_a_variable_of_the_environment_is_named_when_it_is_wrong() -> None:
    with pytest.raises(BadConfiguration, match="variable QWEN3TTS__SERVER__PROT"):
        load_configuration(None, {"QWEN3TTS__SERVER__PROT": "1"})


@pytest.mark.parametrize("wrong", ["server.port", "=5", "server..port=5", "", "."])
def test_an_override_of_no_form_is_refused(wrong: str) -> None:
    with pytest.raises(BadConfiguration, match="sets nothing"):
        load_configuration(None, {}, [wrong])


# --- secrets ---


def test_keys_come_from_the_environment_and_are_never_shown() -> None:
    found = load_configuration(None, {"QWEN3TTS_API_KEYS": "first-key, second-key\nthird-key"})
    assert found.server.access.api_keys == ("first-key", "second-key", "third-key")
    assert "-key" not in json.dumps(found.resolved())
    assert found.resolved()["server"]["access"]["api_keys"] == "(3 set)"
    assert "-key" not in repr(found)
    assert found.hash() == load_configuration(None, {"QWEN3TTS_API_KEYS": "a b c"}).hash()


def test_keys_in_a_file_of_settings_or_on_the_command_line_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path, "server: {access: {api_keys: [very-secret]}}")
    for path, overrides in ((file, []), (None, ["server.access.api_keys=very-secret"])):
        with pytest.raises(BadConfiguration, match="is a secret") as error:
            load_configuration(path, {}, overrides)
        assert "very-secret" not in str(error.value)


def test_a_key_that_no_header_can_hold_is_refused_without_being_told() -> None:
    with pytest.raises(BadConfiguration) as error:
        load_configuration(None, {"QWEN3TTS_API_KEYS": "Schlüssel"})
    assert "visible ASCII" in str(error.value)
    assert "Schl" not in str(error.value)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://user:pass@host/p?q", "https://***@host/p?q"),
        ("https://host/a@b", "https://host/a@b"),
        ("s3://key@bucket/x", "s3://***@bucket/x"),
        ("http://[::1@", "(an address with credentials)"),
        ("mail@example.org", "mail@example.org"),
    ],
)
def test_addresses_are_shown_without_their_credentials(address: str, shown: str) -> None:
    assert without_credentials(address) == shown


# --- what is resolved ---


def test_the_resolved_settings_are_a_file_that_gives_the_same() -> None:
    overrides = ["engine.name=qwen3", "engine.qwen3.model=m", 'starters.phrases=["a, b", "c"]']
    found = load_configuration(None, {}, overrides)
    again = configuration_from(from_yaml(yaml.safe_dump(found.resolved()), "again"))
    assert again == found
    assert again.hash() == found.hash()


def test_another_setting_gives_another_hash() -> None:
    hashes = {load_configuration(None, {}, [f"server.port={port}"]).hash() for port in range(9)}
    assert len(hashes) == 9
    assert all(len(each) == 12 for each in hashes)


def test_the_file_that_comes_along_is_good_with_and_without_its_remarks() -> None:
    text = (ROOT / "configs" / "server.yaml").read_text("utf-8")
    configuration_from(from_yaml(text, "server.yaml"))
    head, _, body = text.partition("\nserver:\n")
    lines = [" " + line[1:] if line.startswith("#") else line for line in body.splitlines()]
    everything = "server:\n" + "\n".join(lines)
    found = configuration_from(from_yaml(everything, "server.yaml"))
    assert found.engine.settings("qwen3") is not None
    assert found.engine.settings("upstream").url
    assert found.starters.phrases
    assert found.server.access.tls_cert is not None
    assert head.count("\n") > 3


# --- any frozen dataclass ---


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Inner:
    count: Annotated[int, "any"] = 1


@dataclass(frozen=True)
class Sample:
    name: str
    inner: Inner = field(default_factory=Inner)
    maybe: Inner | None = None
    several: tuple[str, ...] = ()
    pair: tuple[int, str] = (1, "a")
    numbers: frozenset[int] = frozenset()
    inners: tuple[Inner, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    kind: Literal["a", "b"] = "a"
    chunk: int | Literal["load"] | None = None
    either: int | str | None = None
    path: Path | None = None
    colour: Colour = Colour.RED
    ratio: float = 1.0
    token: str | None = field(default=None, repr=False)


FULL = """
name: "no"
inner: {count: 2}
maybe: {}
several: [a, "b, c"]
pair: [5, x]
numbers: [3, 1]
inners: [{count: 1}, {}]
names: {a: b}
kind: b
chunk: load
either: 5
path: /tmp/x
colour: red
ratio: 2
"""


def test_all_kinds_of_fields_are_built() -> None:
    found = build(Sample, from_yaml(FULL, "f"))
    assert found == Sample(
        "no",
        Inner(2),
        Inner(),
        ("a", "b, c"),
        (5, "x"),
        frozenset({1, 3}),
        (Inner(1), Inner()),
        {"a": "b"},
        "b",
        "load",
        5,
        Path("/tmp/x"),
        Colour.RED,
        2.0,
    )
    assert isinstance(found.ratio, float)
    assert build(Sample, from_yaml(yaml.safe_dump(plain(found)), "f")) == found


@pytest.mark.parametrize(
    ("override", "name", "value"),
    [
        ("name=yes", "name", "yes"),
        ("name=12", "name", "12"),
        ("name=a=b", "name", "a=b"),
        ("several=a, b", "several", ("a", "b")),
        ("several=[a, 'b, c']", "several", ("a", "b, c")),
        ("several=", "several", ()),
        ("numbers=1,2", "numbers", frozenset({1, 2})),
        ("chunk=4", "chunk", 4),
        ("chunk=load", "chunk", "load"),
        ("chunk=null", "chunk", None),
        ("either=x", "either", "x"),
        ("either=7", "either", 7),
        ("path=/a b", "path", Path("/a b")),
        ("path=null", "path", None),
        ("ratio=3", "ratio", 3.0),
        ("maybe.count=3", "maybe", Inner(3)),
        ("maybe={count: 4}", "maybe", Inner(4)),
        ("names={a: b}", "names", {"a": "b"}),
        ("names.a=b", "names", {"a": "b"}),
        ("colour=red", "colour", Colour.RED),
    ],
)
def test_a_text_is_read_as_its_setting_is(override: str, name: str, value: object) -> None:
    found = build(Sample, from_overrides(["name=x", override]))
    assert getattr(found, name) == value


@pytest.mark.parametrize(
    "override",
    [
        "pair=1",
        "kind=c",
        "chunk=x",
        "colour=blue",
        "maybe=5",
        "names=5",
        "ratio=x",
        "ratio=[",
        "token=t",
        "inner.count=",
        "either=[1]",
    ],
)
def test_a_text_that_its_setting_cannot_be_is_refused(override: str) -> None:
    with pytest.raises(BadConfiguration):
        build(Sample, from_overrides(["name=x", override]))


@given(st.text())
def test_any_text_is_settings_or_a_named_error(text: str) -> None:
    with contextlib.suppress(BadConfiguration):
        configuration_from(from_yaml(text, "f"))


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("server", "engine", "port", "access", "limits", "name", "model", "x")),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(("server", "engine", "starters", "logging")), _VALUES))
def test_any_values_are_settings_or_a_named_error(values: dict[str, object]) -> None:
    try:
        found = configuration_from(from_yaml(yaml.safe_dump(values), "f"))
    except BadConfiguration:
        pass
    else:
        json.dumps(found.resolved())


@given(st.lists(st.text(max_size=20), max_size=3), st.dictionaries(st.text(), st.text()))
def test_any_overrides_and_variables_are_settings_or_a_named_error(
    overrides: list[str], env: dict[str, str]
) -> None:
    env = {f"QWEN3TTS__{name}": value for name, value in env.items()}
    with contextlib.suppress(BadConfiguration):
        load_configuration(None, env, overrides)
