"""`rehearse`: its options, its report at the terminal, its exit codes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwen3tts_cli import rehearse
from qwen3tts_cli.main import run
from qwen3tts_cli.options.common import speech_server
from qwen3tts_cli.output.exits import ExitCode
from qwen3tts_cli.rehearsal.report import line_of, print_summary
from qwen3tts_cli.rehearsal.voices import CallerVoices
from qwen3tts_cli.voices import speaks
from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_rehearsal.results import CallResult, RehearsalResult, Verdict, from_json
from qwen3tts_server.run import running_server
from qwen3tts_wire.errors import BadRequest
from qwen3tts_wire.messages import VoiceInfo
from tests.rehearsal.callers import LoudDetector, tone
from tests.rehearsal.fake_line import FakeLine, HangsUp

URI = "sip:agent@127.0.0.1:9"
TALK = "steps: [{wait: {until: quiet, quiet_s: 0.3}}, {say: hello}, {wait: {limit_s: 5}}]\n"


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    path = tmp_path / "talk.yaml"
    path.write_text(TALK)
    return path


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> FakeLine:
    """Callers reach this line, and say tones."""
    there = FakeLine()

    async def connected(*_: Any) -> FakeLine:
        return there

    async def said(*_: Any) -> tuple[np.ndarray[Any, np.dtype[np.int16]], int]:
        return tone(0.4), 8000

    detector = "qwen3tts_rehearsal.rehearsal.make_detector"
    monkeypatch.setattr(detector, lambda name: LoudDetector())  # a tone is no speech
    monkeypatch.setattr(rehearse, "_line", connected)
    monkeypatch.setattr(CallerVoices, "__call__", said)
    return there


def words(*arguments: object) -> list[str]:
    return ["rehearse", *map(str, arguments)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--call SIP_URI or --line CARRIER:URL"),
        (("--call", URI, "--line", "twilio:ws://127.0.0.1:1/"), "CARRIER:URL, not both"),
        (("--line", "twilio"), "CARRIER:URL"),
        (("--line", "twilio:ws://[::1", "--stt", "none"), "no address"),
        (("--line", "twilio:ws://h:99999/x"), "no address"),
        (("--call", URI, "--stt", "none", "--recordings", "/proc/x"), "--recordings: the folder"),
        (("--line", "mail:ws://127.0.0.1:1/", "--stt", "none"), "no carrier"),
        (("--call", "no-address"), "SIP"),
        (("--call", URI, "--repeat", "0"), "--repeat"),
        (("--call", URI, "--at-once", "0"), "--at-once"),
        (("--call", URI, "--html", "/none/there"), "no folder /none"),
        (("--call", URI, "--junit", "/none/x.xml"), "no folder /none"),
        (("--call", URI, "--account", "x"), "--config"),
        (("--call", URI, "--stt", "shazam"), "no recogniser"),
    ],
)
def test_a_wrong_command_line_is_an_error_with_2(
    talk: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    assert run(words(talk, *options)) == ExitCode.USAGE
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_wrong_scenario_is_an_error_with_its_line(
    talk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    talk.write_text(TALK + "expct: {}\n")
    assert run(words(talk, "--call", URI)) == ExitCode.USAGE
    told = capsys.readouterr().err
    assert "talk.yaml:2" in told
    assert "Did you mean expect?" in told
    assert run(words(talk.parent / "none", "--call", URI)) == ExitCode.USAGE


def test_nothing_to_rehearse_is_an_error_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty.yaml"
    empty.touch()
    folder = tmp_path / "folder"
    folder.mkdir()
    for path, message in (
        (empty, f"Error: Steps and caller: one of them is needed ({empty})"),
        (folder, f"The folder {folder} has no scenario"),
        (tmp_path / "none.yaml", "none.yaml: No such file"),
    ):
        assert run(words(path, "--call", URI)) == ExitCode.USAGE
        assert message in " ".join(capsys.readouterr().err.split())


def test_a_language_model_as_the_caller_needs_a_recogniser(
    talk: Path, line: FakeLine, capsys: pytest.CaptureFixture[str]
) -> None:
    talk.write_text("caller: {model: http://127.0.0.1:9/v1, persona: Ann}\n")
    assert run(words(talk, "--call", URI, "--stt", "none")) == ExitCode.USAGE
    told = " ".join(capsys.readouterr().err.split())
    assert f"{talk} is a language model, which needs a recogniser" in told
    assert "--stt" in told
    assert not line.calls


def test_the_language_model_of_a_caller_is_checked_before_the_calls(
    talk: Path,
    line: FakeLine,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def recogniser(*_: Any) -> object:
        return object()

    monkeypatch.setattr(rehearse, "_recogniser", recogniser)
    for change, message in (
        ("model: nonsense", f"{talk}: the language model's address"),
        ("key_env: UNSET_KEY, model: http://127.0.0.1:9/v1", f"{talk}: The variable UNSET_KEY"),
    ):
        talk.write_text(f"caller: {{{change}, persona: Ann}}\n")
        assert run(words(talk, "--call", URI)) == ExitCode.USAGE
        assert message in " ".join(capsys.readouterr().err.split())
    assert not line.calls


def test_passed_calls_end_with_0(
    talk: Path, line: FakeLine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words(talk, "--call", URI, "--stt", "none", "--repeat", 2)) == ExitCode.OK
    told = capsys.readouterr()
    assert "2 of 2 calls passed" in told.out
    assert "2 of 2: talk#" in told.err
    assert sorted(seed for _, seed in line.settings) == [1, 2]


def test_a_failed_call_ends_with_1_and_reports_are_written(
    talk: Path, line: FakeLine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line._agent = HangsUp
    options = ("--junit", tmp_path / "r.xml", "--recordings", tmp_path / "sound", "--json")
    assert run(words(talk, "--call", URI, "--stt", "none", *options)) == ExitCode.FAILED
    told = capsys.readouterr()
    result = from_json(told.out)
    assert not result.passed
    assert json.loads(told.out)["calls"][0]["scenario"] == "talk"
    assert "FAILED" in told.err
    assert "<failure" in (tmp_path / "r.xml").read_text("utf-8")
    assert [path.name for path in (tmp_path / "sound").iterdir()] == ["talk-1.wav"]


def test_a_report_in_html_has_the_recordings_beside_it(
    talk: Path, line: FakeLine, tmp_path: Path
) -> None:
    assert run(words(talk, "--call", URI, "--stt", "none", "--html", tmp_path / "html")) == 0
    assert "talk" in (tmp_path / "html" / "index.html").read_text("utf-8")
    assert (tmp_path / "html" / "talk-1.wav").exists()


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGTERM, ExitCode.TERMINATED)],
)
def test_ctrl_c_and_sigterm_report_what_is_over(
    talk: Path,
    line: FakeLine,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    code: ExitCode,
) -> None:
    (talk.parent / "long.yaml").write_text("steps: [{silence: 300}]")

    def over(self: object, result: CallResult) -> None:
        os.kill(os.getpid(), number)

    monkeypatch.setattr("qwen3tts_cli.rehearsal.report.Progress.__call__", over)
    # A job in the background inherits that Ctrl-C is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert run(words(talk.parent, "--call", URI, "--stt", "none")) == code
    finally:
        signal.signal(signal.SIGINT, before)
    told = capsys.readouterr()
    assert "1 of 1 calls passed" in told.out
    assert "1 were not made" in told.out


CALL = CallResult("a", 1, 0.0, 12.34, (Verdict("keys", True, "1", "1"),))
FAILED = CallResult("b", 2, 0.0, 3.0, tuple(Verdict(f"v{n}", False, n, 0, "x") for n in range(5)))
ERROR = CallResult("b", 3, 0.0, 0.0, error="486 Busy \x1b[31mHere")


def test_a_call_is_one_line() -> None:
    assert line_of(CALL) == "a#1: passed, 12.3 s"
    assert line_of(ERROR) == "b#3: not judged: 486 Busy \ufffd[31mHere"
    assert line_of(FAILED).endswith("; and 2 more")


def test_the_summary_counts_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary(RehearsalResult((CALL, FAILED, ERROR), 61.0, 5))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["a", "1", "1"]
    assert lines[2].split()[:3] == ["b", "2", "0"]
    assert "error 1" in lines[2]
    assert lines[-1] == "1 of 3 calls passed in 61 s; 2 were not made."


@asynccontextmanager
async def voices(
    speaks: Callable[[VoiceInfo, str | None], bool] = speaks,
) -> AsyncIterator[CallerVoices]:
    async with (
        running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server,
        AsyncExitStack() as stack,
    ):
        yield CallerVoices(stack, partial(speech_server, server.url), speaks)


@pytest.mark.network
async def test_callers_speak_by_the_server_or_by_espeak() -> None:
    async with voices() as made:
        for voice in ("", "natural", "espeak", "espeak:en-gb+f3", "en-us"):
            samples, rate_hz = await made("Good morning.", voice, "en")
            assert len(samples) > rate_hz / 3, voice


@pytest.mark.network
async def test_a_language_without_a_natural_voice_is_spoken_by_espeak(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with voices(lambda voice, language: False) as made:
        samples, _ = await made("Guten Tag.", "", "de")
        assert len(samples) > 4000
        await made("Guten Tag.", "", "de")
        assert capsys.readouterr().err.count("speak by eSpeak") == 1
        with pytest.raises(BadRequest, match="no natural voice"):
            await made("Guten Tag.", "natural", "de")
