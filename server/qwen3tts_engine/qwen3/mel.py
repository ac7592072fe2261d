"""Log mel spectrogram, the input of the speaker encoder.

24 kHz, window and FFT of 1024 samples, a column every 256, 128 triangles of Slaney's mel scale from
0 to 12 kHz, each of unit area; magnitude sqrt(|X|^2 + 1e-9), natural logarithm with a floor of
1e-5; the signal is reflected by 384 samples at both ends and the columns are not centred. Source:
the checkpoints' own code, which takes its filterbank from librosa; Slaney, Auditory Toolbox 1998.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qwen3tts_engine.qwen3.config import SpeakerEncoderConfig

MAGNITUDE_BIAS = 1e-9
"""Added to |X|^2."""
FLOOR = 1e-5
"""Least value that the logarithm sees."""

# Slaney's scale: linear below 1 kHz, 27 steps to each factor of 6.4 above.
_LINEAR_HZ = 200.0 / 3
_KNEE_HZ = 1000.0
_KNEE_MEL = _KNEE_HZ / _LINEAR_HZ
_LOG_STEP = np.log(6.4) / 27.0

Array = NDArray[Any]


def hz_to_mel(hz: Array) -> Array:
    """Slaney's mel scale, any shape."""
    above = np.maximum(hz, _KNEE_HZ)
    log: Array = np.where(
        hz < _KNEE_HZ, hz / _LINEAR_HZ, _KNEE_MEL + np.log(above / _KNEE_HZ) / _LOG_STEP
    )
    return log


def mel_to_hz(mel: Array) -> Array:
    """The inverse of ``hz_to_mel``."""
    above = np.maximum(mel, _KNEE_MEL)
    hz: Array = np.where(
        mel < _KNEE_MEL, mel * _LINEAR_HZ, _KNEE_HZ * np.exp(_LOG_STEP * (above - _KNEE_MEL))
    )
    return hz


@lru_cache(maxsize=8)
def filterbank(
    sample_rate: int, n_fft: int, bands: int, f_min: float, f_max: float
) -> NDArray[np.float32]:
    """Triangles on Slaney's mel scale, each of unit area over hertz; read-only.

    Shape [bands, n_fft // 2 + 1]; a row times a magnitude spectrum is a band.
    """
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
    """Log mel spectrogram of samples at ``config.sample_rate``.

    Args:
        samples: shape [N], float32, full scale ±1; N more than (n_fft - hop_length) / 2.
        config: bands, window and band limits.

    Returns:
        Shape [mel_dim, N // hop_length] (for n_fft a multiple of hop_length), float32, on the
        device of ``samples``.
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
