"""The modes whose pieces are whole texts, through the engine, beside the official package."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qwen3tts_engine.qwen3.api import NO_SPEAKER, ClonePrompt, Qwen3TTS
from qwen3tts_engine.qwen3.engine import loaded
from qwen3tts_engine.qwen3.engine.jobs import Job
from qwen3tts_wire.messages import Sampling
from tests.parity.cases import OTHERS, PROMPTED, SPEECH, Speech
from tests.parity.conftest import Oracle

NAMES = (
    "cv_full_english",
    "cv_full_instructed",
    "cv_dialect_chinese",
    "cv_stream_english",
    "cv_stream_no_speaker",
    "cv_full_no_speaker",
    "vd_full",
    "vd_stream",
    "base_vector_stream",
    "base_vector_full",
    "base_icl_stream",
    "base_icl_long_reference",
    "base_icl_full",
)
CHOSEN = [*(case for case in SPEECH if case.name in NAMES), *PROMPTED, *OTHERS]
CASES = [pytest.param(case, id=case.name) for case in CHOSEN]


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The generations, in order."""
    found: list[Job] = []
    make = loaded.LoadedModel.job

    def job(self: loaded.LoadedModel, *given: Any) -> Job:
        found.append(make(self, *given))
        return found[-1]

    monkeypatch.setattr(loaded.LoadedModel, "job", job)
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_whole_text_is_one_generation_of_the_official_codes(
    case: Speech, oracle: Oracle, jobs: list[Job]
) -> None:
    official = oracle.arrays(case.name)["codes_0"]
    language = case.languages[0].lower()
    with Qwen3TTS.load(str(oracle.folders[case.model])) as tts:
        voice: Any = (case.speakers[0] or NO_SPEAKER) if case.speakers else None
        if case.references:
            said = case.reference_texts[0]
            samples = (oracle.inputs[case.references[0]], 24_000)
            voice = tts.create_voice(samples, said or None, x_vector_only=not said)
        elif case.vector:
            codes = oracle.inputs[case.codes] if case.codes else None
            words = case.reference_texts[0] if case.codes else None
            voice = tts.create_voice_from(ClonePrompt(oracle.inputs[case.vector], codes, words))
        others = {name: value for name, value in case.sampling.items() if "subtalker" in name}
        tts.generate(
            case.texts[0],
            voice=voice,
            language=None if language == "auto" else language,
            instructions=case.instructs[0] if case.instructs else None,
            sampling=Sampling(temperature=0.0),
            non_streaming_mode=case.full,
            max_new_tokens=case.frames,
            **others,
        )
    assert len(jobs) == 1
    assert len(jobs[0].codes) == len(official) > 0
    np.testing.assert_array_equal(np.stack(jobs[0].codes), official)
