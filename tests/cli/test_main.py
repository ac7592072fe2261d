"""The phone's unit for systemd starts what there is, and stops it no sooner than it drains."""

from __future__ import annotations

import builtins
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import typer

from qwen3tts_cli.main import app, run
from qwen3tts_cli.output import console as output
from qwen3tts_cli.output import exits
from qwen3tts_cli.output.exits import ExitCode, MissingExtra, exit_code, first_error, require_extra
from qwen3tts_phone.errors import (
    BadCertificate,
    BadSip,
    CalleeUnreachable,
    CallNotAllowed,
    CallRefused,
    NoCommonCodec,
    PortBusy,
    RegistrationFailed,
    TransferFailed,
)
from qwen3tts_settings.entries import BadConfiguration
from qwen3tts_wire.errors import (
    BadText,
    ConnectionLost,
    EngineFailed,
    EngineUnavailable,
    ServerBusy,
    SpeechError,
    UnknownVoice,
)

SUBCOMMANDS = ("serve", "say", "call", "answer", "chat", "latency", "voices", "doctor")


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    handlers = logging.getLogger().handlers[:]
    yield
    logging.getLogger().handlers[:] = handlers


def test_the_command_starts_quickly_enough_to_load_nothing_heavy() -> None:
    code = (
        "import sys, qwen3tts_cli.main\n"
        "heavy = {'numpy', 'plotly', 'opentelemetry', 'gzip', 'websockets', 'fastapi', 'uvicorn',"
        " 'httpx', 'asyncio.subprocess_'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_help_comes_from_the_module_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "qwen3tts_cli.main", "--help"],
        env={"PYTHONPATH": ":".join(sys.path), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for name in SUBCOMMANDS:
        assert name in done.stdout
    assert "Exit codes" in done.stdout


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_subcommand_has_help_with_examples(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([name, "--help"]) == 0
    assert f"mr-qwen3tts {name}" in capsys.readouterr().out


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("mr-qwen3tts ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["sing"],
        ["--log-level", "loud", "voices"],
        ["say"],
        ["say", "Hello."],
        ["say", "Hello.", "--file", "f.txt", "--play"],
        ["say", "Hello.", "--play", "--rate", "44100"],
        ["call", "sip:bob@127.0.0.1"],
        ["call", "sip:bob@127.0.0.1", "--say", "Hello.", "--stdin"],
        ["call", "sip:bob@127.0.0.1", "--say", " "],
        ["call", "sip:bob@127.0.0.1", "--say", "Hello.", "--dtmf", "12x"],
        ["call", "sip:bob@127.0.0.1", "--llm", "nonsense"],
        ["call", "sip:bob@127.0.0.1", "--say", "Hello.", "--header", "nothing"],
        ["call", "sip:bob@127.0.0.1", "--say", "Hello.", "--codecs", "G729"],
        ["call", "sip:bob@127.0.0.1", "--say", "Hello.", "--account", "office"],
        ["call", "100", "--say", "Hello."],
        ["call", "--say", "Hello."],
        ["chat"],
        ["answer", "--say", "Hello.", "--config", "/nonexistent/phone.yaml"],
        ["answer", "--say", "Hello.", "--host", "nowhere.test", "--server", "ws://127.0.0.1:9"],
        ["doctor", "--config", "/nonexistent/phone.yaml", "--account", "office", "--port", "x"],
        ["answer"],
        ["latency", "-", "--slowest", "--id", "1"],
    ],
)
def test_a_wrong_command_line_ends_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == ExitCode.USAGE
    assert "rror" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SpeechError("x"), 1),
        (EngineFailed("x"), 1),
        (BadText("x"), 2),
        (UnknownVoice("x"), 2),
        (BadSip("x"), 2),
        (ConnectionLost("x"), 3),
        (ServerBusy("x"), 3),
        (EngineUnavailable("x"), 3),
        (CalleeUnreachable("x"), 3),
        (PortBusy("x"), 3),
        (MissingExtra("x"), 3),
        (CallRefused(486, "Busy Here"), 4),
        (RegistrationFailed("x"), 4),
        (NoCommonCodec("x"), 4),
        (TransferFailed(603, "Decline"), 4),
        (CallNotAllowed("x", rule="denied"), 4),
        (BadCertificate("x"), 4),
        (BadConfiguration("x"), 2),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error: SpeechError, code: int) -> None:
    assert exit_code(error) == code


def test_an_error_is_told_with_cause_and_remedy_and_without_a_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["say", "Hello.", "-o", "f.wav", "--server", "http://127.0.0.1:1"]) == 2
    assert capsys.readouterr().err == (
        "Error: 'http://127.0.0.1:1' is not the address of a speech server.\n"
        "Remedy: It looks like ws://127.0.0.1:8765/v1/speech.\n"
    )


def test_a_missing_file_is_told_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["latency", "/nonexistent/calls.jsonl"]) == 1
    assert capsys.readouterr().err == (
        "Error: /nonexistent/calls.jsonl: No such file or folder.\n"
        "Remedy: Make one with: mr-qwen3tts call … --latency-log FILE\n"
    )


@pytest.mark.parametrize(
    ("arguments", "missing", "extra"),
    [
        (["serve"], "uvicorn", "server,embedded"),
        (["call", "sip:bob@127.0.0.1", "--llm", "http://127.0.0.1/v1"], "httpx", "phone"),
    ],
)
def test_a_missing_package_is_told_with_the_extra_to_install(
    arguments: list[str],
    missing: str,
    extra: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any, **options: Any) -> Any:
        if name.partition(".")[0] == missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *more, **options)

    for module in [*sys.modules]:
        if module.startswith(("qwen3tts_server", "qwen3tts_agent.chat.client")):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(builtins, "__import__", without)
    assert run(arguments) == ExitCode.UNAVAILABLE
    assert f"pip install 'mr_qwen3tts[{extra}]'" in capsys.readouterr().err


def test_a_missing_module_of_our_own_is_a_bug_and_stays_one() -> None:
    with pytest.raises(ModuleNotFoundError), require_extra("phone"):
        raise ModuleNotFoundError("No module named 'qwen3tts_x'", name="qwen3tts_x")


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_ctrl_c_and_sigterm_end_in_order(name: str, code: int) -> None:
    script = (
        "import asyncio, os, signal, sys\n"
        "from qwen3tts_cli.output.exits import run\n"
        # A job in the background inherits that Ctrl-C is ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "async def main():\n"
        "    try:\n"
        "        os.kill(os.getpid(), getattr(signal, sys.argv[1]))\n"
        "        await asyncio.Event().wait()\n"
        "    finally:\n"
        "        print('hung up')\n"
        "run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, name],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "hung up\n", "")


def test_the_error_with_a_cause_to_tell_comes_out_of_a_group() -> None:
    known = ConnectionLost("gone")
    group = BaseExceptionGroup("", [ValueError(), BaseExceptionGroup("", [known])])
    assert first_error(group) is known

    async def failing() -> None:
        raise group

    with pytest.raises(ConnectionLost):
        exits.run(failing())


def test_text_from_the_other_end_cannot_steer_the_terminal() -> None:
    assert output.printable("a\x1b[2Jb\x07\n") == "a\ufffd[2Jb\ufffd\n"


@pytest.mark.parametrize(
    ("remedy", "shown"),
    [
        ("", "`mr-qwen3tts voices` lists all."),
        ("Near it: en-us.", "Near it: en-us. `mr-qwen3tts voices` lists all."),
        ("Near it: de. GET /v1/voices lists all.", "Near it: de. `mr-qwen3tts voices` lists all."),
    ],
)
def test_a_terminal_gets_no_advice_about_http(
    remedy: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output.print_speech_error(UnknownVoice("There is no voice 'x'.", remedy=remedy))
    told = " ".join(capsys.readouterr().err.split())
    assert told == f"Error: There is no voice 'x'. Remedy: {shown}"


UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "mr-qwen3tts-phone.service"


def test_the_unit_answers_with_options_that_there_are_and_waits_for_the_drain() -> None:
    entries = dict(
        line.split("=", 1) for line in UNIT.read_text("utf-8").splitlines() if "=" in line
    )
    command = entries["ExecStart"]
    assert re.search(r"/bin/mr-qwen3tts answer ", command)
    known = {
        option
        for each in cast(Any, typer.main.get_command(app)).commands["answer"].params
        for option in each.opts
    }
    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]*", command)) <= known
    drain = re.search(r"--drain-seconds (\d+)", command)
    assert drain is not None
    assert int(entries["TimeoutStopSec"]) > int(drain[1]) + 10
    assert entries["KillMode"] == "mixed"
    assert int(entries["RestartPreventExitStatus"]) == ExitCode.USAGE
