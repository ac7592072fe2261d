"""Child processes get what they need to run, and no key."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import qwen3tts_agent.recognition.whisper_process as whisper
import qwen3tts_phone.media.process as media
import qwen3tts_wire.child.process as child
from qwen3tts_phone.media.types import MediaSettings
from qwen3tts_wire.process import ALLOWED, PLAYING, child_environment
from qwen3tts_wire.whisper.models import FETCHING

NAMES = (
    *("MR_QWEN3TTS_LLM_KEY", "QWEN3TTS_API_KEYS", "QWEN3TTS_STT_KEY", "TWILIO_AUTH_TOKEN"),
    *("OPENAI_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "MR_QWEN3TTS_SIP_PASSWORD"),
    *("DATABASE_URL", "SOMETHING_OF_THE_HOST"),
)
SECRETS = dict.fromkeys(NAMES, "not-for-children")


@given(st.dictionaries(st.text(min_size=1, max_size=20), st.text(max_size=5)))
def test_nothing_passes_that_is_not_on_the_list(parent: dict[str, str]) -> None:
    parent |= SECRETS | {"PATH": "/bin", "LC_TIME": "C"}
    found = child_environment(also=("HF_HOME",), environ=parent)
    assert {name.upper() for name in found} - ALLOWED - {"HF_HOME"} <= {
        name.upper() for name in parent if name.upper().startswith("LC_")
    }
    assert found.items() <= parent.items()
    assert (found["PATH"], found["LC_TIME"]) == ("/bin", "C")
    assert "not-for-children" not in found.values()


def test_no_allowed_name_is_that_of_a_secret() -> None:
    secret = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")
    for name in (*ALLOWED, *PLAYING, *FETCHING):
        assert not any(each in name for each in secret), name


def test_folders_of_packages_stand_before_the_path_of_imports() -> None:
    parent = {"PYTHONPATH": "/theirs"}
    found = child_environment(roots=("/ours", "/ours", "/more"), environ=parent)
    assert found == {"PYTHONPATH": os.pathsep.join(("/ours", "/more", "/theirs"))}
    assert child_environment(environ={}) == {}


@pytest.fixture
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HF_HOME", "/models")


@pytest.mark.usefixtures("_secrets")
def test_no_worker_is_given_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, str]] = []

    def popen(command: list[str], *, env: dict[str, str], **_: Any) -> None:
        given.append(env)

    monkeypatch.setattr(subprocess, "Popen", popen)
    media._spawn(MediaSettings(), 0, 0)
    voice = child.environment("qwen3tts_engine.embedded.worker")
    workers = [*given, voice, whisper._environment("auto")]
    for each in workers:
        assert not SECRETS.keys() & each.keys()
        assert "not-for-children" not in each.values()
        assert each["PATH"] == os.environ["PATH"]
        assert each["PYTHONPATH"]
    assert workers[-1]["HF_HOME"] == "/models"


@pytest.mark.network
@pytest.mark.usefixtures("_secrets")
async def test_the_media_process_runs_without_a_key() -> None:
    process = await media.MediaProcess.start(MediaSettings())
    try:
        assert b"not-for-children" not in Path(f"/proc/{process.pid}/environ").read_bytes()
    finally:
        await process.close()
