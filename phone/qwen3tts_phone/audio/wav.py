"""WAV files of calls: the stereo recorder and the reader of announcements.

Both tracks share one time axis: sample ``n`` is ``n / rate_hz`` seconds after the beginning; what
was never written is silence.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from enum import IntEnum
from logging import getLogger
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.wav import HEADER_BYTES, DamagedWav, NotWav, WavFile, wav_header

log = getLogger(__name__)

FRAME_BYTES = 4
"""One moment of both tracks: two samples of 16 bits."""
WINDOW_S = 10.0
"""Window behind the newest sample in which a track may be written."""
SAVE_S = 0.5
"""Interval of saves: the most that a killed process loses."""
MAX_SECONDS = 12 * 3600.0
"""At 8 kHz this is 1.3 GiB; a WAV file ends at 4 GiB."""


MAX_ANNOUNCEMENT_S = 300.0
"""Longest announcement."""
MAX_ANNOUNCEMENT_BYTES = 64_000_000
"""More than that at 48 kHz in stereo, with room for other chunks."""


class Track(IntEnum):
    """Channel of a party."""

    CALLER = 0
    AGENT = 1


def recording_path(path: Path, number: int) -> Path:
    """Return the file of the ``number``-th call (from 1): ``f.wav``, ``f-2.wav``, ``f-3.wav``."""
    return path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")


class StereoRecorder:
    """Recorder of a call: the caller on the left, the agent on the right (mode 0600).

    The latest `WINDOW_S` seconds may be written in any order, and are saved every `SAVE_S` seconds,
    so the file can be played at any moment. A full disk is logged once and kept in ``error``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        rate_hz: int = 8000,
        window_s: float = WINDOW_S,
        save_s: float = SAVE_S,
        max_seconds: float = MAX_SECONDS,
    ) -> None:
        self.path = Path(path)
        self.rate_hz = rate_hz
        self.late_samples = 0
        """Samples that came too late for the window, or before the beginning; not recorded."""
        self.truncated = False
        """True if something lay beyond ``max_seconds``; not recorded."""
        self.error: OSError | None = None
        """Why the file is not complete; ``None`` while all is well."""
        self._save_every = max(1, round(save_s * rate_hz))
        self._limit = round(max_seconds * rate_hz)
        self._window: NDArray[np.int16] = np.zeros((max(1, round(window_s * rate_hz)), 2), np.int16)
        self._base = 0  # position of the window's first row
        self._end = 0  # one past the newest position written
        self._dirty: tuple[int, int] | None = None  # positions not yet in the file
        self._saved_end = 0
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(self.path, flags, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                raise OSError(f"{self.path} is not a regular file, a recording needs one.")
            os.fchmod(self._fd, 0o600)
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, wav_header(0, rate_hz, 2), 0)
        except OSError:
            os.close(self._fd)
            raise

    @property
    def seconds(self) -> float:
        return self._end / self.rate_hz

    def caller(self, samples: NDArray[np.int16], position: int) -> None:
        self.write(Track.CALLER, samples, position)

    def agent(self, samples: NDArray[np.int16], position: int) -> None:
        self.write(Track.AGENT, samples, position)

    def write(self, track: Track, samples: NDArray[np.int16], position: int) -> None:
        """Write samples of shape [n] to a track, over what was there."""
        if self._fd < 0 or self.error is not None:
            return
        end = position + len(samples)
        if end > self._limit:
            if not self.truncated:
                log.warning(
                    "recording %s ends after %d s", self.path.name, self._limit / self.rate_hz
                )
            self.truncated = True
            samples, end = samples[: max(0, self._limit - position)], self._limit
        # What does not fit into the window together with the newest sample is too late.
        first = max(self._base, end - len(self._window)) if end > self._end else self._base
        late = min(len(samples), max(0, first - position))
        self.late_samples += late
        samples, position = samples[late:], position + late
        if not len(samples):
            return
        try:
            self._make_room(end)
            self._window[position - self._base : end - self._base, track] = samples
            low, high = self._dirty or (position, end)
            self._dirty = min(low, position), max(high, end)
            self._end = max(self._end, end)
            if self._end - self._saved_end >= self._save_every:
                self.save()
        except OSError as error:
            log.warning("recording %s cannot be written: %s", self.path, error.strerror)
            self.error = error

    def _make_room(self, end: int) -> None:
        shift = end - (self._base + len(self._window))
        if shift <= 0:
            return
        self.save()
        # Move further than needed, so that the window is not copied for every frame.
        keep = len(self._window) // 2
        shift = max(shift, min(self._end, end) - keep - self._base)
        kept = self._window[shift:].copy() if shift < len(self._window) else self._window[:0]
        self._window[: len(kept)] = kept
        self._window[len(kept) :] = 0
        self._base += shift

    def save(self) -> None:
        if self._dirty is None:
            return
        low, high = self._dirty
        rows = self._window[low - self._base : high - self._base]
        data = rows.astype("<i2", copy=False).tobytes()
        self._pwrite(data, HEADER_BYTES + low * FRAME_BYTES)
        self._pwrite(wav_header(self._end * FRAME_BYTES, self.rate_hz, 2), 0)
        self._dirty, self._saved_end = None, self._end

    def _pwrite(self, data: bytes, offset: int) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._fd, view, offset)
            view, offset = view[written:], offset + written

    def close(self, end: int | None = None) -> None:
        """Finish the file; ``end`` (a position) pads it with silence."""
        if self._fd < 0:
            return
        try:
            if self.error is None:
                self.save()
                if end is not None and self._end < end <= self._limit:
                    os.ftruncate(self._fd, HEADER_BYTES + end * FRAME_BYTES)
                    self._end = end
                    self._pwrite(wav_header(end * FRAME_BYTES, self.rate_hz, 2), 0)
        except OSError as error:
            log.warning("recording %s cannot be finished: %s", self.path, error.strerror)
            self.error = error
        finally:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> StereoRecorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Announcement:
    samples: NDArray[np.int16] = field(repr=False)
    """Shape [n], one channel."""
    rate_hz: int


def read_announcement(path: Path) -> Announcement:
    """Read a WAV file of 16-bit PCM, stereo as the mean of both. Raises ValueError."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_ANNOUNCEMENT_BYTES + 1)
        wav = WavFile.parse(data)
    except (OSError, NotWav, DamagedWav) as error:
        reason = str(error) or "it is no PCM in a RIFF WAVE file"
        raise ValueError(f"{path} cannot be read as a WAV file ({reason})") from error
    if wav.bits != 16 or wav.channels not in (1, 2):
        raise ValueError(f"{path} has {wav.bits} bits and {wav.channels} channels, not 16 bits")
    too_large = len(data) > MAX_ANNOUNCEMENT_BYTES
    if too_large or not (8000 <= wav.rate <= 48000 and 0 < wav.seconds <= MAX_ANNOUNCEMENT_S):
        raise ValueError(
            f"{path}: {wav.frames} samples at {wav.rate} Hz; 8000 to 48000 Hz and up to"
            f" {MAX_ANNOUNCEMENT_S:g} s can be played"
        )
    return Announcement(wav.mono(), wav.rate)


def check_unavailable(file: Path | None) -> None:
    """Raise ValueError, with the setting's name, for a file that cannot be played."""
    try:
        if file is not None:
            read_announcement(file)
    except ValueError as error:
        raise ValueError(f"unavailable_file={error}") from error
