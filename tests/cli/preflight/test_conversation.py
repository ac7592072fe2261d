"""The doctor lets the voice speak, the recogniser hear it and the model write."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from qwen3tts_agent import CallbackRecogniser
from qwen3tts_agent.recognition.whisper_process import model_line
from qwen3tts_cli.doctor import command as doctor
from qwen3tts_cli.doctor.checks import Level
from qwen3tts_cli.doctor.conversation import (
    LONG_WAIT_MS,
    RATE_HZ,
    SENTENCE,
    recognise_turn,
    speak,
    trimmed,
    wait_check,
)
from qwen3tts_cli.main import run
from qwen3tts_cli.options.speech import SpeechOptions
from qwen3tts_cli.output.exits import ExitCode
from qwen3tts_phone import ListenSettings
from qwen3tts_phone.detection import smart_turn
from qwen3tts_server.run import running_server
from qwen3tts_wire.client import SpeechClient
from qwen3tts_wire.errors import EngineFailed
from tests.agent.endpoint import Answer, writes
from tests.agent.recognition.real_whisper import real_whisper
from tests.cli.preflight.servers import Servers
from tests.engine.fake_engine import FakeEngine
from tests.fakes import settle

pytestmark = pytest.mark.network


class NoTime:
    """A clock that is always as late as it is asked for."""

    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time

    async def sleep_until(self, deadline: float) -> None:
        self.time = max(self.time, deadline)
        await settle()


SPEECH = (8000 * np.sin(np.arange(2 * RATE_HZ) / 5)).astype(np.int16)


async def test_a_turn_is_heard_as_a_call_gives_it() -> None:
    clock = NoTime()
    taken: list[int] = []

    async def understand(samples: NDArray[np.int16], rate_hz: int) -> str:
        taken.append(len(samples))
        await clock.sleep_until(clock.time + 0.25)
        return "two seconds"

    recogniser = CallbackRecogniser(understand)
    heard = await recognise_turn(recogniser, SPEECH, ListenSettings(), clock)
    assert heard.text == "two seconds"
    assert heard.wait_s == pytest.approx(0.25)
    assert taken[0] >= 2 * recogniser.rate_hz * 0.99
    assert clock.time == pytest.approx(100 + 2.0 + 0.6 + 0.25)
    assert heard.ahead_s == 0


async def test_what_began_at_the_pause_need_not_be_waited_for() -> None:
    clock = NoTime()

    async def understand(samples: NDArray[np.int16], rate_hz: int) -> str:
        return "two seconds"

    heard = await recognise_turn(
        CallbackRecogniser(understand, early=True), SPEECH, ListenSettings(), clock
    )
    assert heard.wait_s == 0
    assert heard.ahead_s == pytest.approx(0.4, abs=0.03), "from the notice to the pause's end"


def test_the_silence_at_the_ends_is_no_speech() -> None:
    silence = np.zeros(RATE_HZ, np.int16)
    assert len(trimmed(np.concatenate((silence, SPEECH, silence)))) == len(SPEECH)
    assert len(trimmed(silence)) == 0
    assert len(trimmed(silence[:7])) == 0


async def test_the_voice_says_a_sentence_in_telephone_quality() -> None:
    async with (
        running_server(FakeEngine()) as server,
        await SpeechClient.connect(server.url) as client,
    ):
        voice = await speak(client, SpeechOptions(voice="tone"))
        assert voice.sentence == SENTENCE
        assert voice.first_sound_s > 0
        assert voice.seconds == pytest.approx(0.05 * len(SENTENCE), abs=0.2)
        german = await speak(client, SpeechOptions(voice="tone-de", language="de"))
        assert german.sentence.startswith("1, 2")
        with pytest.raises(EngineFailed):
            await speak(client, SpeechOptions(voice="fail"))


PARTS = {
    "pause": 600.0,
    "recogniser": 40.0,
    "first token": 200.0,
    "first clause": 100.0,
    "voice": 30.0,
    "line": 24.0,
}


def test_the_wait_is_the_sum_of_its_parts_by_name() -> None:
    check = wait_check(PARTS)
    assert check.level is Level.OK
    assert check.found == (
        "about 1.0 s: pause 600 ms, recogniser 40 ms, first token 200 ms, first clause 100 ms,"
        " voice 30 ms, line 24 ms"
    )
    assert check.figures["total_ms"] == 994
    assert check.figures["first_token_ms"] == 200


def test_what_is_prepared_in_the_pause_is_not_waited_for() -> None:
    check = wait_check(PARTS, 250.0)
    assert check.found.endswith("line 24 ms; 250 ms of it in the pause")
    assert (check.figures["total_ms"], check.figures["prepared_ms"]) == (744, -250)
    assert wait_check(PARTS, 400.0).figures["total_ms"] == 600 + 40 + 24


@pytest.mark.parametrize(
    ("ahead_ms", "least_ms", "total_ms"),
    [
        (300.0, 250.0, 300 + 40 + 330 + 24),  # the text comes after the least pause
        (380.0, 250.0, 250 + 40 + 300 + 24),  # 30 ms are left to prepare
    ],
)
def test_the_adaptive_pause_has_a_total_of_its_own(
    ahead_ms: float, least_ms: float, total_ms: float
) -> None:
    check = wait_check(PARTS, ahead_ms, least_ms)
    assert check.figures["adaptive_total_ms"] == total_ms
    assert check.found.endswith("s after a complete sentence, by the adaptive pause")


def test_without_a_gain_of_the_adaptive_pause_there_is_one_total() -> None:
    for ahead_ms, least_ms in ((0.0, 250.0), (300.0, 600.0), (300.0, None)):
        assert "adaptive_total_ms" not in wait_check(PARTS, ahead_ms, least_ms).figures


@pytest.mark.parametrize(
    ("part", "remedy"), [("pause", "--pause-ms"), ("first token", "model"), ("voice", "voice")]
)
def test_of_a_long_wait_the_longest_part_has_the_remedy(part: str, remedy: str) -> None:
    check = wait_check({**PARTS, part: LONG_WAIT_MS})
    assert check.level is Level.WARN
    assert remedy in check.remedy


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with Servers("good morning", "", "good morning") as running:
        yield running


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "all_checks", lambda *_: iter(()))


@pytest.mark.usefixtures("alone")
def test_the_whole_conversation_is_measured(
    servers: Servers, capsys: pytest.CaptureFixture[str]
) -> None:
    reply = writes("Boil the water, then wait.", token_s=0.01)
    with servers.model(reply=reply) as endpoint:
        code = run(
            [
                *("doctor", "--json", "--server", servers.speech, "--stt", servers.recogniser),
                *("--llm", endpoint.url, "--model", "tiny", "--pause-ms", "300"),
            ]
        )
        url = endpoint.url
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert code == 0, found
    assert [(each["name"], each["level"]) for each in found] == [
        ("voice", "ok"),
        ("recogniser", "ok"),
        ("language model", "ok"),
        ("voice to voice", "ok"),
    ]
    voice, recogniser, model, wait = found
    assert servers.recogniser.rstrip("/") in recogniser["found"]
    assert "it recognised “good morning”" in recogniser["found"]
    assert model["found"].startswith(f"tiny at {url}: first token after ")
    assert "tokens a second" in model["found"]
    assert wait["figures"]["pause_ms"] == 300
    totals = {"total_ms", "adaptive_total_ms"}
    parts = [ms for name, ms in wait["figures"].items() if name not in totals]
    assert wait["figures"]["total_ms"] == pytest.approx(sum(parts), abs=0.5)
    assert wait["figures"]["voice_ms"] == voice["figures"]["first_ms"]


@pytest.mark.usefixtures("alone")
def test_a_real_whisper_hears_the_natural_voice(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = real_whisper()
    monkeypatch.setenv("QWEN3TTS__ENGINE__NAME", "piper")
    monkeypatch.setenv("QWEN3TTS__ENGINE__PIPER__WORKERS", "1")
    code = run(["doctor", "--json", "--stt", f"whisper:{model}", "--language", "en"])
    voice, recogniser = json.loads(capsys.readouterr().out)
    assert code == 0
    assert voice["level"] == "ok"
    line, _, heard = recogniser["found"].partition("; of ")
    shown = re.fullmatch(
        rf"Whisper {re.escape(model)} \(folder\), en, \w+ on \w+, (\d+\.\d\d) of real time; after a"
        r" pause of 600 ms the text comes within (\d+) ms",
        line,
    )
    assert shown is not None
    assert heard.startswith(f"“{SENTENCE}” it recognised “")
    assert words_in(heard) & words_in(SENTENCE)
    figures = recogniser["figures"]
    assert figures["real_time_factor"] > 0
    assert float(shown[1]) == pytest.approx(figures["real_time_factor"], abs=0.006)
    assert float(shown[2]) == pytest.approx(figures["wait_ms"], abs=0.6)
    # A machine that is busy may be slower than speech: that is a warning.
    assert recogniser["level"] == ("warn" if figures["real_time_factor"] > 1 else "ok")


def words_in(text: str) -> set[str]:
    return set(re.findall(r"[a-z]{4,}", text.lower().partition("it recognised")[2] or text.lower()))


@pytest.mark.usefixtures("alone")
def test_what_is_missing_is_told_and_the_wait_is_not_guessed(
    servers: Servers, capsys: pytest.CaptureFixture[str]
) -> None:
    with servers.model(Answer(status=401, body=b"{}")) as endpoint:
        code = run(
            [
                *("doctor", "--json", "--server", servers.speech, "--stt", servers.recogniser),
                *("--llm", endpoint.url, "--pause-ms", "100"),
            ]
        )
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert code == ExitCode.FAILED
    assert [(each["name"], each["level"]) for each in found] == [
        ("voice", "ok"),
        ("recogniser", "warn"),
        ("language model", "fail"),
    ]
    assert "it recognised nothing" in found[1]["found"]
    assert "(401)" in found[2]["found"]
    assert "key" in found[2]["remedy"]


@pytest.mark.usefixtures("alone")
def test_without_a_voice_the_rest_is_told(
    servers: Servers, capsys: pytest.CaptureFixture[str]
) -> None:
    with servers.model(reply=writes("Yes, sir.")) as endpoint:
        code = run(
            [
                *("doctor", "--server", servers.speech, "--voice", "nobody"),
                *("--stt", servers.recogniser, "--llm", endpoint.url),
            ]
        )
    told = capsys.readouterr().out
    assert code == ExitCode.FAILED
    assert "fail voice: No voice 'nobody'" in told
    assert f"warn recogniser: ws {servers.recogniser.rstrip('/')}" in told
    assert "not tested without a voice" in told
    assert "ok   language model: default at" in told
    assert "voice to voice" not in told


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("options", [["--stt", "wisper"], ["--model", "x"], ["--key-env", "X"]])
def test_options_that_lead_nowhere_are_told(
    options: list[str], servers: Servers, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(["doctor", "--server", servers.speech, *options])
    told = capsys.readouterr()
    if options[0] == "--stt":
        assert code == ExitCode.FAILED
        assert "fail recogniser: 'wisper' names no recogniser" in told.out
    else:
        assert code == ExitCode.USAGE
        assert "belong to --llm" in told.err


@pytest.mark.usefixtures("alone")
def test_a_turn_detectors_file_is_checked(
    servers: Servers,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    file = tmp_path / "turn.onnx"
    arguments = ["doctor", "--json", "--server", servers.speech, "--stt", "none"]
    assert run([*arguments, "--smart-turn", str(file)]) == ExitCode.FAILED
    _, missing = json.loads(capsys.readouterr().out)
    assert (missing["name"], missing["level"]) == ("turn detector", "fail")
    assert f"{file} cannot be read" in missing["found"]
    assert "sha256" in missing["remedy"]

    class Answers:
        path = file

        def check(self) -> float:
            return 0.04

    monkeypatch.setattr(smart_turn, "_shared", lambda path: Answers())
    assert run([*arguments, "--smart-turn", str(file)]) == 0
    _, there = json.loads(capsys.readouterr().out)
    assert there["found"] == f"Smart Turn ({file}), an answer takes 40 ms"
    assert there["figures"] == {"answer_ms": 40.0}


@pytest.mark.usefixtures("alone")
def test_nothing_is_tried_where_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--json", "--stt", "none"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_of_many_languages_the_number_is_told() -> None:
    facts = {"model": "base", "source": "hub", "dtype": "int8", "device": "cpu"}
    few = model_line({**facts, "languages": ["en", "de"]})
    assert few == "Whisper base (hub), en, de, int8 on cpu"
    many = model_line({**facts, "languages": list(map(str, range(99)))})
    assert many == "Whisper base (hub), 99 languages, int8 on cpu"
