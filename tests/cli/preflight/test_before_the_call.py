"""Every mistake that can be found before a call is told before a phone rings: no INVITE is sent."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qwen3tts_cli.main import run
from qwen3tts_cli.output.exits import ExitCode
from tests.agent.endpoint import Answer, Breaks, Hangs
from tests.agent.recognition.real_whisper import real_whisper
from tests.cli.preflight.servers import Servers
from tests.engine.piper.tiny_vits import write_voice

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with Servers() as running:
        yield running


class Callee:
    """A telephone that never answers; what came to it."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.uri = f"sip:bob@127.0.0.1:{self._socket.getsockname()[1]}"

    def datagrams(self) -> list[bytes]:
        found = []
        while True:
            try:
                found.append(self._socket.recv(65536))
            except BlockingIOError:
                return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def callee() -> Iterator[Callee]:
    telephone = Callee()
    yield telephone
    assert telephone.datagrams() == [], "a phone was called"
    telephone.close()


def refusal(status: int, message: str) -> Answer:
    return Answer(status=status, body=json.dumps({"error": {"message": message}}).encode())


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def told_once(capsys: pytest.CaptureFixture[str], sentence: str, remedy: str) -> str:
    """Standard error, which holds both once and no traceback."""
    told = re.sub(r"\s+", " ", capsys.readouterr().err)
    assert told.count(sentence) == 1, told
    assert told.count(remedy) == 1, told
    assert "Traceback" not in told
    return told


BROKEN_MODELS = [
    (refusal(401, "bad key"), ExitCode.REFUSED, "(401): bad key", "Check the key:"),
    (refusal(403, "not yours"), ExitCode.REFUSED, "(403): not yours", "Check the key:"),
    (refusal(404, "no model"), ExitCode.REFUSED, "(404): no model", "which usually ends in /v1"),
    (refusal(429, "quota"), ExitCode.UNAVAILABLE, "requests now (429): quota", "Try again later"),
    (refusal(500, "oom"), ExitCode.UNAVAILABLE, "broken (500): oom", "Try again later"),
    (
        Answer(body=b"<!doctype html>", kind="text/html"),
        ExitCode.REFUSED,
        "web page answers, not a language model",
        "The address usually ends in /v1.",
    ),
    (
        Answer(["Ye", Breaks()]),
        ExitCode.UNAVAILABLE,
        "broke off in mid-sentence",
        "its own log may say more",
    ),
    (Answer(finish=None), ExitCode.UNAVAILABLE, "answer is empty", "its own log may say more"),
    (
        Answer([Hangs()]),
        ExitCode.UNAVAILABLE,
        "did not answer within 0.3 s",
        "It may be loading",
    ),
]


@pytest.mark.parametrize(("answer", "code", "sentence", "remedy"), BROKEN_MODELS, ids=range(9))
def test_a_model_that_would_fail_is_told_before_a_phone_rings(
    servers: Servers,
    callee: Callee,
    capsys: pytest.CaptureFixture[str],
    answer: Answer,
    code: ExitCode,
    sentence: str,
    remedy: str,
) -> None:
    with servers.model(answer) as endpoint:
        ended = run(
            [
                *("call", callee.uri, "--llm", endpoint.url, "--server", servers.speech),
                *("--check-seconds", "0.3" if "within" in sentence else "20"),
            ]
        )
        assert (len(endpoint.checks), endpoint.requests) == (1, [])
    assert ended == code
    told_once(capsys, sentence, remedy)


def test_a_model_that_is_not_there_is_told_before_a_phone_rings(
    servers: Servers, callee: Callee, capsys: pytest.CaptureFixture[str]
) -> None:
    llm = f"http://127.0.0.1:{closed_port()}/v1"
    listening = ["--stt", servers.recogniser]
    ended = run(["call", callee.uri, "--llm", llm, *listening, "--server", servers.speech])
    assert ended == ExitCode.UNAVAILABLE
    told = told_once(capsys, "cannot be reached", "Check that it runs")
    assert f"Recogniser: {servers.recogniser} is ready." in told


def test_a_recogniser_and_a_model_that_are_not_there_are_both_told(
    servers: Servers, callee: Callee, capsys: pytest.CaptureFixture[str]
) -> None:
    llm, stt = (f"{scheme}://127.0.0.1:{closed_port()}/v1" for scheme in ("http", "ws"))
    arguments = ["call", callee.uri, "--llm", llm, "--stt", stt, "--server", servers.speech]
    assert run(arguments) == ExitCode.UNAVAILABLE
    told = capsys.readouterr().err
    assert told.count("language model at") == 1
    assert told.count("recogniser at") == 1


def test_a_voice_that_is_none_is_told_beside_a_model_that_is_not_there(
    servers: Servers, callee: Callee, capsys: pytest.CaptureFixture[str]
) -> None:
    llm = f"http://127.0.0.1:{closed_port()}/v1"
    arguments = ["call", callee.uri, "--llm", llm, "--server", servers.speech, "--voice", "none"]
    assert run(arguments) == ExitCode.USAGE
    told = capsys.readouterr().err
    assert told.count("cannot be reached") == 1
    assert told.count("'none'") == 1


@pytest.mark.parametrize(
    ("content", "sentence", "remedy"),
    [
        (b"", "is empty", "some words in it"),
        (b"***\n...\n", "has no speakable text", "letters or digits"),
        (b"Good morning.\n" + b"\xe9", "not UTF-8 text: see byte 14", "iconv"),
        ("Guten Tag".encode("utf-16"), "is UTF-16 text", "Save it as UTF-8"),
    ],
)
def test_a_file_that_cannot_be_spoken_is_told_before_a_phone_rings(
    servers: Servers,
    callee: Callee,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    content: bytes,
    sentence: str,
    remedy: str,
) -> None:
    file = tmp_path / "words.txt"
    file.write_bytes(content)
    arguments = ["call", callee.uri, "--file", str(file), "--server", servers.speech]
    assert run(arguments) == ExitCode.USAGE
    told_once(capsys, sentence, remedy)


def test_a_text_without_a_speakable_sign_is_told_before_a_phone_rings(
    servers: Servers, callee: Callee, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["call", callee.uri, "--say", "…", "--server", servers.speech]) == ExitCode.USAGE
    told_once(capsys, "--say has no speakable text", "letters or digits")


def test_a_registrar_that_is_not_there_is_told_before_a_phone_rings(
    servers: Servers, callee: Callee, capsys: pytest.CaptureFixture[str]
) -> None:
    registrar = f"sip:127.0.0.1:{closed_port()};transport=tcp"
    arguments = ["call", callee.uri, "--say", "Hello.", "--server", servers.speech]
    ended = run([*arguments, "--registrar", registrar, "--user", "200"])
    assert ended == ExitCode.REFUSED
    told_once(capsys, "refused the connection", "Check its address and port")


def test_answer_says_what_is_wrong_and_ends_where_that_will_not_pass(
    servers: Servers, capsys: pytest.CaptureFixture[str]
) -> None:
    with servers.model(refusal(401, "bad key")) as endpoint:
        listening = ["--stt", servers.recogniser, "--port", "0"]
        ended = run(["answer", "--llm", endpoint.url, *listening, "--server", servers.speech])
    assert ended == ExitCode.REFUSED
    told = told_once(capsys, "(401): bad key", "Check the key:")
    assert "Waiting for calls" not in told


def test_the_key_that_is_named_must_be_there(
    callee: Callee, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    llm = ["--llm", "http://127.0.0.1:1/v1", "--key-env", "NO_SUCH_KEY"]
    assert run(["call", callee.uri, *llm]) == ExitCode.USAGE
    assert "--key-env: the variable NO_SUCH_KEY is not set" in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--llm"], ["--stt"]])
def test_the_softphone_is_not_served_where_its_agent_cannot_talk(
    servers: Servers,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    option: list[str],
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    broken = refusal(404, "no model") if option == ["--llm"] else None
    stt = servers.recogniser if option == ["--llm"] else "whisper:nobody/no-such-model"
    with servers.model(broken) as endpoint:
        arguments = ["--llm", endpoint.url, "--stt", stt, "--server", servers.speech]
        ended = run(["softphone", "--port", "0", *arguments])
    told = capsys.readouterr().err
    assert ended in (ExitCode.REFUSED, ExitCode.UNAVAILABLE)
    assert told.count("Error: ") == 1
    assert told.count("Remedy: ") == 1
    assert "http://127.0.0.1:" not in told.partition("Remedy: ")[2]


@pytest.mark.parametrize(
    ("model", "language", "sentence", "remedy"),
    [
        (
            "nobody/no-such-model",
            "en",
            "The Whisper model nobody/no-such-model is not on this machine and could not be fetch",
            "Fetch it where there is a network",
        ),
        ("", "de", "knows English only, and de is asked for", "Name a model without .en"),
        ("", "xx-none", "does not know the language 'xx'", "Give a code or an English name"),
    ],
    ids=["missing", "of another language", "of no language"],
)
def test_a_whisper_that_cannot_hear_is_told_before_a_phone_rings(
    servers: Servers,
    callee: Callee,
    capsys: pytest.CaptureFixture[str],
    model: str,
    language: str,
    sentence: str,
    remedy: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with servers.model() as endpoint:
        arguments = ["--llm", endpoint.url, "--server", servers.speech, "--language", language]
        listening = ["--stt", f"whisper:{model or real_whisper()}"]
        ended = run(["call", callee.uri, *arguments, *listening])
    assert ended != ExitCode.OK
    told = told_once(capsys, sentence, remedy)
    assert told.count("Error: ") == told.count("Remedy: ") == 1


def no_settings(folder: Path) -> None:
    write_voice(folder).config.unlink()


def damaged_settings(folder: Path) -> None:
    write_voice(folder).config.write_text("{")


def damaged_network(folder: Path) -> None:
    network = write_voice(folder).onnx
    network.write_bytes(network.read_bytes()[:500])


def other_network(folder: Path) -> None:
    write_voice(folder).onnx.write_bytes(b"<html></html>")


def pinyin(folder: Path) -> None:
    write_voice(folder, phoneme_type="pinyin")


def foreign_phonemes(folder: Path) -> None:
    write_voice(folder, phoneme_id_map={sign: [at] for at, sign in enumerate("_^$ ①②③④⑤⑥")})


@pytest.mark.parametrize(
    ("prepare", "sentence", "remedy"),
    [
        (
            no_settings,
            "en_US-tiny-low.onnx has no settings beside it",
            "Put en_US-tiny-low.onnx.js",
        ),
        (
            damaged_settings,
            "The voice's settings cannot be used: they are not JSON",
            "Take the .on",
        ),
        (damaged_network, "en_US-tiny-low.onnx is damaged or is not an ONNX file", "Download it a"),
        (other_network, "en_US-tiny-low.onnx is damaged or is not an ONNX file", "Download it aga"),
        (pinyin, "phoneme_type is 'pinyin', not 'espeak' or 'text'", "Take the .onnx.json"),
        (foreign_phonemes, "has ids for 0 of ", "Take another voice"),
    ],
)
def test_a_voice_that_cannot_speak_is_told_before_a_phone_rings(
    callee: Callee,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    prepare: Callable[[Path], None],
    sentence: str,
    remedy: str,
) -> None:
    prepare(tmp_path)
    monkeypatch.setenv("QWEN3TTS__ENGINE__NAME", "auto")
    monkeypatch.setenv("QWEN3TTS__ENGINE__PIPER__VOICES", str(tmp_path))
    monkeypatch.setenv("QWEN3TTS__ENGINE__PIPER__WORKERS", "1")
    assert run(["call", callee.uri, "--say", "Hello."]) == ExitCode.UNAVAILABLE
    told = told_once(capsys, sentence, remedy)
    assert told.count("Error: ") == told.count("Remedy: ") == 1
    assert told.count("en_US-tiny-low") <= 3


def test_ctrl_c_ends_the_checks(servers: Servers, callee: Callee) -> None:
    with servers.model(Answer([Hangs()])) as endpoint:
        command = subprocess.Popen(
            [
                *(sys.executable, "-m", "qwen3tts_cli.main", "call", callee.uri),
                *("--llm", endpoint.url, "--server", servers.speech, "--check-seconds", "600"),
            ],
            env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert command.stderr is not None
        told = command.stderr.readline()
        servers.wait_for_check(endpoint)
        command.send_signal(signal.SIGINT)
        told += command.communicate(timeout=60)[1]
    assert command.returncode == ExitCode.INTERRUPTED
    assert told == "Checking language model …\n"
