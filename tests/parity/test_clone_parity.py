"""Reference audio and the codec beside the official package's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from qwen3tts_engine.qwen3.model.speaker_encoder import log_mel
from tests.parity.cases import DECODE, LISTEN
from tests.parity.conftest import Oracle
from tests.parity.ours import Ours


@pytest.mark.parametrize(("name", "model", "reference"), LISTEN, ids=[case[0] for case in LISTEN])
def test_a_reference_is_heard_as_the_official_encoders_hear_it(
    name: str, model: str, reference: str, oracle: Oracle, ours: Callable[[str], Ours]
) -> None:
    official, samples = oracle.arrays(name), torch.from_numpy(oracle.inputs[reference])
    mine = ours(model)
    assert mine.config.speaker is not None
    assert mine.model.speaker_encoder is not None
    mel = log_mel(samples, mine.config.speaker)
    np.testing.assert_allclose(mel, official["mel"], atol=1e-5)
    vector = mine.model.speaker_encoder.x_vector(samples)
    np.testing.assert_allclose(vector, official["x_vector"], atol=1e-4, rtol=0)
    np.testing.assert_array_equal(mine.encode(samples), official["codes"])
    assert len(np.unique(official["codes"])) > 2 * len(official["codes"])


@pytest.mark.parametrize(("name", "model", "codes"), DECODE, ids=[case[0] for case in DECODE])
def test_codes_sound_as_in_the_official_decoder_whole_and_streamed(
    name: str, model: str, codes: str, oracle: Oracle, ours: Callable[[str], Ours]
) -> None:
    wanted, given = oracle.arrays(name)["sound"], torch.from_numpy(oracle.inputs[codes])
    np.testing.assert_allclose(ours(model).decode(given), wanted, atol=1e-4, rtol=0)
    np.testing.assert_allclose(ours(model).stream(given), wanted, atol=1e-4, rtol=0)
    assert 0.02 < np.sqrt(np.mean(wanted**2)) < 0.5
