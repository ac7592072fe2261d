"""From the interruption to silence on the wire, and whether the text heard is right to the word.

The whole line speaks a long text: server, engine (eSpeak NG, then the natural voice without its
noise, so that it always speaks alike), client, ring, media process. At a random moment it is
interrupted. A process of its own receives the RTP packets with the kernel's time stamps and says
which was the last one that held anything but silence. From how much speech had left by then, and
from the word times of the engine asked directly, follows which words were heard; that is compared
with what the line says.

The limit beside ours is a frame: a packet that has left cannot be called back, and the next one is
at most one ptime away.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable

from common import Bench

from qwen3tts_codecs.g711 import PCMU, decode_ulaw
from qwen3tts_engine.base import Engine, SynthesisRequest
from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_engine.piper.engine import PiperEngine, PiperSettings
from qwen3tts_phone.audio.rtp_sink import RtpSink
from qwen3tts_phone.media.process import MediaProcess
from qwen3tts_phone.media.types import ContextPlayed, LegSpec, RemoteMedia
from qwen3tts_server.run import running_server
from qwen3tts_speech.line import Speaker
from qwen3tts_speech.link import SpeechLink
from qwen3tts_text.segmenter import Segmenter

TEXT = (
    "One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty."
)
ENGINES: dict[str, Callable[[], Engine]] = {
    "embedded": EmbeddedEngine,
    "piper": lambda: PiperEngine(PiperSettings(noise_scale=0.0, noise_w=0.0)),
}
SILENT_PEAK = 8
"""Samples up to the smallest level of mu-law are silence."""
FADE_SAMPLES = 40
"""A fade is 5 ms long."""
SETTLE_S = 0.3
"""Silence that is listened to after each interruption."""


SO_TIMESTAMPNS = 35
"""Not in the socket module; Linux, asm-generic/socket.h."""


def receive() -> None:
    """The receiver's process: one line of JSON a packet that holds sound, until stdin closes."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    print(sock.getsockname()[1], flush=True)
    while True:
        data, ancillary, _, _ = sock.recvmsg(2048, 256)
        seconds, nanoseconds = struct.unpack("qq", ancillary[0][2][:16])
        if len(data) != 172:
            continue
        samples = decode_ulaw(data[12:])
        loud = [index for index, sample in enumerate(samples.tolist()) if abs(sample) > SILENT_PEAK]
        last = loud[-1] if loud else -1
        print(json.dumps([seconds * 10**9 + nanoseconds, last]), flush=True)


class Wire:
    """Packets as the receiver saw them."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--receive"], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.packets: list[tuple[int, int]] = []
        """Kernel time (ns, real-time clock), index of the last sample with sound (-1: none)."""
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, self._process.stdout.readline):
            stamp, last = json.loads(line)
            self.packets.append((stamp, last))

    async def close(self) -> None:
        """End the receiver."""
        self._process.terminate()
        self._process.wait()
        await self._reader
        if self._process.stdout is not None:
            self._process.stdout.close()


async def word_middles(engine: Engine) -> list[int]:
    """The middle of each word, in samples at 24 kHz, by the engine alone.

    A word counts as heard when half of it was played (`qwen3tts_wire.heard`).
    """
    await engine.start()
    middles: list[int] = []
    base = 0
    try:
        # The same clauses as on the line: the server's own segmenter decides them.
        segmenter = Segmenter()
        segments = [*segmenter.push(TEXT), *segmenter.end()]
        for segment in segments:
            length = 0
            async for chunk in engine.synthesize(
                SynthesisRequest(segment.text, final=segment.final, continued=base > 0)
            ):
                length += chunk.samples
                middles += [base + (word.start + word.end) // 2 for word in chunk.words]
            base += length
    finally:
        await engine.close()
    return middles


async def measure(
    make_engine: Callable[[], Engine], rounds: int, rng: random.Random
) -> tuple[list[float], list[float], list[int]]:
    """Milliseconds to the last packet with sound, to its last sample, and words off, each round."""
    wire = Wire()
    to_packet: list[float] = []
    to_sample: list[float] = []
    words_off: list[int] = []
    middles = await word_middles(make_engine())
    async with running_server(make_engine(), host="127.0.0.1", port=0) as server:
        link = SpeechLink(server.url)
        process = await MediaProcess.start()
        leg = await process.open(LegSpec(timeout_s=0))
        await leg.start(RemoteMedia("127.0.0.1", wire.port, receive=False))
        sink = RtpSink(leg, 20)

        async def follow() -> None:
            async for event in leg.events:
                if isinstance(event, ContextPlayed):
                    sink.context_played(event.context)

        following = asyncio.create_task(follow())
        speaker = Speaker(link, sink, PCMU)
        for _ in range(rounds):
            first_packet = len(wire.packets)
            utterance = speaker.say(TEXT)
            await asyncio.sleep(rng.uniform(0.5, 5.0))
            before = time.time_ns()
            speaker.interrupt()
            spoken = await utterance.spoken()
            await asyncio.sleep(SETTLE_S)
            packets = wire.packets[first_packet:]
            sounding = [packet for packet in packets if packet[1] >= 0]
            stamp, last = sounding[-1]
            to_packet.append(max(0.0, (stamp - before) / 1e6))
            to_sample.append((stamp - before) / 1e6 + (last + 1) / 8)
            words_off.append(abs(len(spoken.heard.split()) - _heard(packets, middles)))
        await link.close()
        await leg.close()
        await process.close()
        following.cancel()
    await wire.close()
    return to_packet, to_sample, words_off


def _heard(packets: list[tuple[int, int]], middles: list[int]) -> int:
    """Words that were heard, counted from the packets alone."""
    sounding = [index for index, packet in enumerate(packets) if packet[1] >= 0]
    first, last = sounding[0], sounding[-1]
    # What ends within 5 ms is the fade after the last frame, and no frame itself.
    frames = last - first + (0 if packets[last][1] < FADE_SAMPLES else 1)
    samples = frames * 480 - 72  # the resampler's delay of 3 ms
    return sum(1 for middle in middles if middle <= samples)


def main() -> None:
    """Measure and print."""
    if "--receive" in sys.argv:
        receive()
        return
    bench = Bench("barge_in", __doc__.splitlines()[0])
    rounds = 7 if bench.quick else 60
    found = {
        name: asyncio.run(measure(make_engine, rounds, random.Random(1)))
        for name, make_engine in ENGINES.items()
    }
    rows: list[list[object]] = []
    for name, (to_packet, to_sample, _) in found.items():
        rows += [
            [f"{name}: the last packet with any sound (its fade) leaves", *figures_of(to_packet)],
            [f"{name}: the last sample with sound in it is played", *figures_of(to_sample)],
        ]
    rows.append(["limit: the next frame's slot", "", 10.0, 19.0, 20.0])
    bench.table(
        "interrupt() to silence on the wire (ms)", ["until", "n", "p50", "p95", "max"], rows
    )
    bench.table(
        "text heard, words off against the packets received",
        ["voice", "n", "right", "max off"],
        [[name, len(off), off.count(0), max(off)] for name, (_, _, off) in found.items()],
    )
    embedded, piper = found["embedded"], found["piper"]
    bench.figure(
        silence_ms_p95=figures_of(embedded[0])[2],
        words_off_max=max(embedded[2]),
        piper_silence_ms_p95=figures_of(piper[0])[2],
        piper_words_off_max=max(piper[2]),
    )


def figures_of(values: list[float]) -> tuple[int, float, float, float]:
    """Return their number, median, 95th percentile and maximum."""
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]
    return len(values), statistics.median(values), p95, ordered[-1]


if __name__ == "__main__":
    main()
