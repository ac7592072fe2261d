"""The codec's kernels, run by Triton's interpreter, against plain torch.

Run by test_codec_kernels.py in a process of its own: Triton must know before its first import that
it is to interpret.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from qwen3tts_engine.qwen3.kernels import codec_kernels, codec_ring_kernels, codec_trials
from qwen3tts_engine.qwen3.kernels.codec_kernels import TRITON_CODEC
from qwen3tts_engine.qwen3.model.codec_decoder import CodecDecoder
from qwen3tts_engine.qwen3.model.codec_layers import TORCH_CODEC_KERNELS, CodecKernels
from qwen3tts_engine.qwen3.model.codec_state import CodecState
from tests.tiny_models.published import PUBLISHED
from tests.tiny_models.weights import random_weights


@pytest.fixture(scope="module")
def decoder() -> CodecDecoder:
    config = PUBLISHED["1.7b-custom_voice"]
    small = replace(
        config.codec.decoder,
        codebook_dim=16,
        latent_dim=24,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=4,
        decoder_dim=24,
        upsample_rates=(2,),
    )
    config = replace(config, codec=replace(config.codec, decoder=small))
    made = CodecDecoder.from_weights(small, random_weights(config, seed=3)[1], direct_channels=0)
    made.kernels = TRITON_CODEC
    return made


def streamed(
    decoder: CodecDecoder, kernels: CodecKernels, cuts: tuple[int, ...]
) -> tuple[torch.Tensor, CodecState]:
    """Two streams and a padding row in chunks: samples and the state."""
    decoder.kernels = kernels
    draw, state = torch.Generator().manual_seed(1), decoder.new_state(2)
    slots, parts = torch.tensor([1, 0, state.scratch]), []
    for frames in cuts:
        codes = torch.randint(0, 2048, (3, frames, 16), generator=draw)
        parts.append(decoder.run(state, slots, codes)[:2])
    return torch.cat(parts, dim=1), state


def test_streams_are_those_of_plain_torch(decoder: CodecDecoder) -> None:
    """The ring goes round; chunks are shorter than the pasts and longer than the ring."""
    ours, mine = streamed(decoder, TRITON_CODEC, (1, 4))
    plain, theirs = streamed(decoder, TORCH_CODEC_KERNELS, (1, 4))
    assert float(plain.abs().mean()) > 1e-3
    torch.testing.assert_close(ours, plain, atol=5e-5, rtol=1e-5)
    torch.testing.assert_close(mine.past[:2], theirs.past[:2], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(mine.kv[:2], theirs.kv[:2], atol=1e-5, rtol=1e-5)
    assert torch.equal(mine.position, theirs.position)


def test_kernels_that_agree_are_used_and_others_are_not(
    decoder: CodecDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert codec_trials.usable(decoder) == (TRITON_CODEC, {})

    def wrong(*given: Any) -> Any:
        y, made = codec_ring_kernels.attend(*given)
        return y + 1, made

    def broken(*_: Any) -> Any:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(
        codec_trials, "TRITON_CODEC", replace(TRITON_CODEC, attend=wrong, depthwise=broken)
    )
    found, failed = codec_trials.usable(decoder)
    assert failed == {"codec attend": "ArithmeticError", "codec depthwise": "RuntimeError"}
    assert found.attend is TORCH_CODEC_KERNELS.attend
    assert found.ring_frames == 0
    assert found.convolve is codec_kernels.convolve


@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_the_snake_is_the_formula(scale: float) -> None:
    """Its sine is a polynomial behind a reduction to one period."""
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator]
    def run(x, out, SIZE: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: N803
        at = tl.arange(0, SIZE)
        y = tl.load(x + at)
        tl.store(out + at, codec_kernels._snake(y, 1.5, 0.8))

    x = torch.linspace(-scale, scale, 1024)
    out = torch.empty_like(x)
    run[(1,)](x, out, SIZE=1024)
    exact = x.double() + 0.8 * torch.sin(1.5 * x.double()).square()
    # The phase is rounded once, as in torch.
    assert float((out - exact).abs().max()) < 1e-6 * scale
