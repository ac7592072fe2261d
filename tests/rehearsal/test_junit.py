"""JUnit XML of a rehearsal: what a CI system reads in it."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_rehearsal.junit import MAX_TEXT_CHARS, junit_xml
from qwen3tts_rehearsal.results import CallResult, RehearsalResult, Verdict
from tests.rehearsal.results_made import HOSTILE, LATE, PASSED, call, rehearsal

SCHEMA: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": (
        set(),
        {"name", "time", "tests", "failures", "disabled", "errors"},
        {"testsuite"},
    ),
    "testsuite": (
        {"name", "tests"},
        {"failures", "errors", "time", "skipped", "timestamp", "hostname", "id", "package"},
        {"testcase", "properties", "system-out", "system-err"},
    ),
    "testcase": (
        {"name"},
        {"classname", "time", "status", "assertions"},
        {"skipped", "error", "failure", "system-out", "system-err"},
    ),
    "failure": (set(), {"type", "message"}, set()),
    "error": (set(), {"type", "message"}, set()),
    "system-out": (set(), set(), set()),
}
"""Of junit-10.xsd: attributes required, further ones, children."""


def read(result: RehearsalResult) -> ET.Element:
    """The document, after a look at each element by the schema."""
    root = ET.fromstring(junit_xml(result).encode())
    assert root.tag == "testsuites"
    for element in root.iter():
        required, optional, children = SCHEMA[element.tag]
        assert required <= set(element.attrib) <= required | optional, element.tag
        assert {each.tag for each in element} <= children
        for name in ("tests", "failures", "errors"):
            assert element.get(name, "0").isdigit()
        assert float(element.get("time", "0")) >= 0
    return root


def test_a_failure_has_what_was_measured_and_the_limit() -> None:
    root = read(rehearsal(call(verdicts=(PASSED, LATE))))
    failure = root.find("testsuite/testcase/failure")
    assert failure is not None
    assert failure.attrib == {"type": "response_s", "message": "response_s 0.812"}
    assert failure.text == "response_s 0.812 (limit 0.6): after the turn at 2.6 s"


def test_failures_and_errors_are_counted_apart() -> None:
    calls = [call(), call(seed=2, verdicts=(LATE,)), call("other", error="486 Busy Here")]
    root = read(rehearsal(*calls))
    assert {name: root.get(name) for name in ("tests", "failures", "errors")} == {
        "tests": "3",
        "failures": "1",
        "errors": "1",
    }
    assert [each.get("name") for each in root] == ["table", "other"]
    error = root.find("testsuite[@name='other']/testcase/error")
    assert error is not None
    assert error.get("message") == "486 Busy Here"


def test_a_passed_call_has_its_verdicts_and_its_recording() -> None:
    root = read(rehearsal(call(recording=Path("calls/table-1.wav"))))
    case = root.find("testsuite/testcase")
    assert case is not None
    assert [each.tag for each in case] == ["system-out"]
    assert case.findtext("system-out") == (
        "ok cut_offs 0 (limit 0)\n[[ATTACHMENT|calls/table-1.wav]]"
    )


def test_an_interrupted_rehearsal_does_not_pass() -> None:
    root = read(rehearsal(call(), planned=10))
    assert root.get("errors") == "1"
    assert root.get("tests") == "2"
    assert "1 of 10" in junit_xml(rehearsal(call(), planned=10))


def test_no_call_at_all() -> None:
    root = read(RehearsalResult((), 0.0, 0))
    assert root.get("tests") == "0"


def test_what_is_no_xml_and_what_is_too_long() -> None:
    long = Verdict("heard", False, "x" * 100_000, "y", HOSTILE)
    made = junit_xml(rehearsal(call(verdicts=(long,), error="")))
    assert len(made) < 4 * MAX_TEXT_CHARS
    root = read(rehearsal(call(HOSTILE, error=HOSTILE)))
    message = root.find("testsuite/testcase/error")
    assert message is not None
    assert "日本語 🙂" in str(message.get("message"))


@given(st.text(), st.text(), st.one_of(st.none(), st.floats(allow_nan=True), st.text()))
def test_any_text_gives_a_document_that_can_be_read(name: str, text: str, value: object) -> None:
    verdict = Verdict(name, False, value, value, text)  # type: ignore[arg-type]
    made = [call(name, verdicts=(verdict,)), call(name, error=text)]
    read(rehearsal(*made))


def test_thousands_of_calls() -> None:
    calls: list[CallResult] = [call(seed=seed) for seed in range(5000)]
    assert read(rehearsal(*calls)).get("tests") == "5000"
