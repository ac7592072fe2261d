"""Makes the README's sound: the call of ``make demo``, both directions, as Ogg Opus.

    python -m tests.cli.demo_recording docs/pictures/demo_call.opus

The demo's call is made again, at most ``--tries`` times, until it has no gap: on a busy machine the
voice may come late. ``--recording FILE`` takes a recording that is there already.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import wave
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from qwen3tts_cli.demo import demo
from qwen3tts_cli.latency.reading import find_logs, read_columns
from qwen3tts_codecs.resample import Resampler

OPUS_HZ = 48_000
BIT_RATE = 40_000
MOST_BYTES = 200_000
APART = 0.3
"""Share of each side that the other ear hears, too."""


def encode(recording: Path, path: Path) -> int:
    """Write a stereo recording (caller left, agent right) as Ogg Opus; the number of its bytes.

    Raises:
        ValueError: the file would be larger than 200 kB.
    """
    with wave.open(str(recording), "rb") as file:
        rate_hz = file.getframerate()
        both = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, 2)
    sides = [_at_48k(np.ascontiguousarray(both[:, side]), rate_hz) for side in (0, 1)]
    caller, agent = (side.astype(np.float64) for side in sides)
    mixed = np.stack([caller + APART * agent, agent + APART * caller], axis=1)
    pcm = np.clip(np.rint(mixed), -32768, 32767).astype(np.int16)
    with av.open(str(path), "w", format="ogg") as container:
        stream = container.add_stream("libopus", rate=OPUS_HZ, layout="stereo")
        stream.bit_rate = BIT_RATE
        frame = av.AudioFrame.from_ndarray(pcm.reshape(1, -1), format="s16", layout="stereo")
        frame.sample_rate = OPUS_HZ
        for packet in (*stream.encode(frame), *stream.encode(None)):
            container.mux(packet)
    size = path.stat().st_size
    if size > MOST_BYTES:
        path.unlink()
        raise ValueError(f"{size} bytes are more than {MOST_BYTES}")
    return size


def _at_48k(samples: NDArray[np.int16], rate_hz: int) -> NDArray[np.int16]:
    resampler = Resampler(rate_hz, OPUS_HZ, aligned=True)
    return np.concatenate([resampler.push(samples), resampler.flush()])


async def recorded(folder: Path) -> tuple[Path, int]:
    """Make the demo's call; its recording, and its gaps."""
    recording, log = folder / "call.wav", folder / "latency.jsonl"
    log.unlink(missing_ok=True)
    await demo(recording, log)
    columns = read_columns(find_logs([log]).files)
    return recording, int(columns.starvations.sum())


async def main() -> None:
    """Make it."""
    parser = argparse.ArgumentParser(prog="tests.cli.demo_recording", description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--recording", type=Path)
    parser.add_argument("--tries", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        recording: Path | None = args.recording
        for _ in range(args.tries if recording is None else 0):
            found, gaps = await recorded(Path(place))
            if not gaps:
                recording = found
                break
            print(f"{gaps} gaps: once more")
        if recording is None:
            raise SystemExit(f"Each of {args.tries} calls had gaps: the machine is too busy.")
        print(f"{args.path}: {encode(recording, args.path)} bytes")


if __name__ == "__main__":
    asyncio.run(main())
