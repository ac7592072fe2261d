"""Speaker embedding (x-vector): ECAPA-TDNN over a log mel spectrogram."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from qwen3tts_engine.qwen3.model.checkpoint import Weights
from qwen3tts_engine.qwen3.model.config import SpeakerEncoderConfig

MAGNITUDE_BIAS = 1e-9
"""Added to |X|^2."""
FLOOR = 1e-5
"""Lower bound before the logarithm."""

# Slaney's scale: linear below 1 kHz, 27 steps to each factor of 6.4 above.
_LINEAR_HZ = 200.0 / 3
_KNEE_HZ = 1000.0
_KNEE_MEL = _KNEE_HZ / _LINEAR_HZ
_LOG_STEP = np.log(6.4) / 27.0

Array = NDArray[Any]


def hz_to_mel(hz: Array) -> Array:
    above = np.maximum(hz, _KNEE_HZ)
    log: Array = np.where(
        hz < _KNEE_HZ, hz / _LINEAR_HZ, _KNEE_MEL + np.log(above / _KNEE_HZ) / _LOG_STEP
    )
    return log


def mel_to_hz(mel: Array) -> Array:
    above = np.maximum(mel, _KNEE_MEL)
    hz: Array = np.where(
        mel < _KNEE_MEL, mel * _LINEAR_HZ, _KNEE_HZ * np.exp(_LOG_STEP * (above - _KNEE_MEL))
    )
    return hz


@lru_cache(maxsize=8)
def filterbank(
    sample_rate: int, n_fft: int, bands: int, f_min: float, f_max: float
) -> NDArray[np.float32]:
    """Return Slaney's triangular filters, unit area, [bands, n_fft // 2 + 1]; read-only."""
    bins = np.fft.rfftfreq(n_fft, 1.0 / sample_rate)
    low, high = hz_to_mel(np.array([f_min, f_max]))
    corners = mel_to_hz(np.linspace(low, high, bands + 2))
    widths = np.diff(corners)
    rising = (bins - corners[:-2, None]) / widths[:-1, None]
    falling = (corners[2:, None] - bins) / widths[1:, None]
    area = (corners[2:] - corners[:-2])[:, None] / 2
    bank: NDArray[np.float32] = (np.maximum(0, np.minimum(rising, falling)) / area).astype(
        np.float32
    )
    bank.flags.writeable = False
    return bank


def log_mel(samples: Tensor, config: SpeakerEncoderConfig) -> Tensor:
    """Return the log mel spectrogram, [mel_dim, N // hop_length], float32.

    Args:
        samples: [N] float32 in ±1 at ``config.sample_rate``; N above (n_fft - hop_length) / 2.
        config: Bands, window and band limits.
    """
    bank = filterbank(config.sample_rate, config.n_fft, config.mel_dim, config.f_min, config.f_max)
    window = torch.hann_window(config.win_length, device=samples.device)
    edge = (config.n_fft - config.hop_length) // 2
    padded = torch.nn.functional.pad(samples[None, None], (edge, edge), mode="reflect")[0]
    spectrum = torch.stft(
        padded,
        config.n_fft,
        hop_length=config.hop_length,
        win_length=config.win_length,
        window=window,
        center=False,
        return_complex=True,
    )
    magnitude = (torch.view_as_real(spectrum).pow(2).sum(-1) + MAGNITUDE_BIAS).sqrt()
    bands = torch.from_numpy(bank.copy()).to(samples.device) @ magnitude
    return bands.clamp(min=FLOOR).log()[0]


VARIANCE_FLOOR = 1e-12


@dataclass(frozen=True, slots=True)
class _Conv:
    weight: Tensor
    bias: Tensor
    dilation: int = 1

    def __call__(self, x: Tensor) -> Tensor:
        around = self.dilation * (self.weight.shape[-1] - 1)
        if around:
            x = functional.pad(x, (around // 2, around - around // 2), mode="reflect")
        return functional.conv1d(x, self.weight, self.bias, dilation=self.dilation)


@dataclass(frozen=True, slots=True)
class _Block:
    before: _Conv
    scales: tuple[_Conv, ...]
    after: _Conv
    squeeze: _Conv
    excite: _Conv

    def __call__(self, x: Tensor) -> Tensor:
        parts = self.before(x).relu().chunk(len(self.scales) + 1, dim=1)
        done = [parts[0]]
        for conv, part in zip(self.scales, parts[1:], strict=True):
            # The first group passes untouched and joins no other.
            done.append(conv(part if len(done) == 1 else part + done[-1]).relu())
        y = self.after(torch.cat(done, dim=1)).relu()
        gate = self.excite(self.squeeze(y.mean(dim=2, keepdim=True)).relu()).sigmoid()
        return y * gate + x


class SpeakerEncoder:
    """Speaker embeddings of recordings. Immutable and thread-safe."""

    def __init__(
        self,
        config: SpeakerEncoderConfig,
        *,
        first: _Conv,
        blocks: tuple[_Block, ...],
        gather: _Conv,
        attend: tuple[_Conv, _Conv],
        last: _Conv,
    ) -> None:
        self.config = config
        self._first = first
        self._blocks = blocks
        self._gather = gather
        self._attend = attend
        self._last = last

    @classmethod
    def from_weights(
        cls,
        config: SpeakerEncoderConfig,
        weights: Weights,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> SpeakerEncoder:
        """Load ``speaker_encoder.*``; keep it on the CPU, see CodecEncoder."""
        at = weights.under("speaker_encoder.")
        channels = config.enc_channels

        def conv(name: str, out: int, into: int, kernel: int = 1, dilation: int = 1) -> _Conv:
            weight = at.take(f"{name}.weight", (out, into, kernel))
            bias = at.take(f"{name}.bias", (out,))
            return _Conv(weight.to(device, dtype), bias.to(device, dtype), dilation)

        def block(n: int) -> _Block:
            into, out, scale = channels[n - 1], channels[n], config.enc_res2net_scale
            name, kernel, dilation = (
                f"blocks.{n}",
                config.enc_kernel_sizes[n],
                config.enc_dilations[n],
            )
            return _Block(
                before=conv(f"{name}.tdnn1.conv", out, into),
                scales=tuple(
                    conv(
                        f"{name}.res2net_block.blocks.{i}.conv",
                        out // scale,
                        out // scale,
                        kernel,
                        dilation,
                    )
                    for i in range(scale - 1)
                ),
                after=conv(f"{name}.tdnn2.conv", out, out),
                squeeze=conv(f"{name}.se_block.conv1", config.enc_se_channels, out),
                excite=conv(f"{name}.se_block.conv2", out, config.enc_se_channels),
            )

        wide, attention = channels[-1], config.enc_attention_channels
        return cls(
            config,
            first=conv(
                "blocks.0.conv",
                channels[0],
                config.mel_dim,
                config.enc_kernel_sizes[0],
                config.enc_dilations[0],
            ),
            blocks=tuple(block(n) for n in range(1, len(channels) - 1)),
            gather=conv(
                "mfa.conv",
                wide,
                sum(channels[1:-1]),
                config.enc_kernel_sizes[-1],
                config.enc_dilations[-1],
            ),
            attend=(
                conv("asp.tdnn.conv", attention, 3 * wide),
                conv("asp.conv", wide, attention),
            ),
            last=conv("fc", config.enc_dim, 2 * wide),
        )

    @torch.no_grad()
    def x_vector(self, samples: Tensor) -> Tensor:
        """Return the speaker embedding, [enc_dim].

        Args:
            samples: [N] in ±1 at ``config.sample_rate``, 0.1 s or more.
        """
        weight = self._first.weight
        mel = log_mel(samples.to(weight.device, torch.float32), self.config)
        x = self._first(mel[None].to(weight.dtype)).relu()
        outputs = []
        for block in self._blocks:
            x = block(x)
            outputs.append(x)
        x = self._gather(torch.cat(outputs, dim=1)).relu()
        return self._last(self._pool(x))[0, :, 0]

    def _pool(self, x: Tensor) -> Tensor:
        uniform = torch.full_like(x[:, :1], 1 / x.shape[2])
        whole = torch.cat([x, *(one.expand_as(x) for one in _moments(x, uniform))], dim=1)
        narrow, wide = self._attend
        attention = wide(narrow(whole).relu().tanh()).softmax(dim=2)
        return torch.cat(_moments(x, attention), dim=1)


def _moments(x: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    mean = (share * x).sum(2, keepdim=True)
    variance = (share * (x - mean).pow(2)).sum(2, keepdim=True)
    return mean, variance.clamp(min=VARIANCE_FLOOR).sqrt()
