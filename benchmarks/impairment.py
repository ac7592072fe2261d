"""Speech through a bad network, both ways: PESQ and gaps beside other buffers.

Speech goes out through a real media process on its exact clock, through the impairment, and into
the sockets of another one, whose frames are decoded, concealed and played by `AudioDecoder` and
`Playout`. The same speech goes through the same impairment into a plain socket; its packets, with
the kernel's arrival times, are what the others get: a telephone with a fixed buffer of 60 ms (also
the listener for the outgoing side), and aiortc's jitter buffer with a player behind it.

Where the kernel has `tc netem`, sender and receiver live in two network namespaces and it impairs
the link between them; otherwise a relay on the loopback drops and delays packets, by fixed seeds.
Three processes of their own: sender, relay, receiver. PESQ is narrow-band (ITU-T P.862) for G.711
and wide-band (P.862.2) for the others. A gap is a run of 10 ms or more of silence where the speech
has none.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import socket
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from bad_network import HOST, NAMESPACES, Trouble, impair, namespaces, relay, remove_namespaces
from common import Bench
from numpy.typing import NDArray
from other_buffers import aiortc_buffer, fixed_buffer

from qwen3tts_codecs import FrameEncoder, Payload, Resampler, payload_by_name
from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_pacer.slot import Frame
from qwen3tts_phone.audio.frames import HeardFrame
from qwen3tts_phone.audio.inbound import AudioDecoder
from qwen3tts_phone.audio.playout import Playout
from qwen3tts_phone.media import rtp
from qwen3tts_phone.media.process import MediaProcess
from qwen3tts_phone.media.types import ContextPlayed, LegSpec, RemoteMedia

Samples = NDArray[np.int16]

TEXT = (
    "The birch canoe slid on the smooth planks, and nobody asked why.",
    "Glue the sheet to the dark blue background before you leave.",
    "It is easy to tell the depth of a well when the rope is short.",
    "Four hours of steady work faced us, so we began at once.",
)
PAUSE_S = 0.25
LEAD_S = 0.4
"""Packets of silence before the speech, so that no buffer is judged by its first packet."""
SO_TIMESTAMPNS = 35
"""Not in the socket module; Linux, asm-generic/socket.h."""
SILENT_PEAK = 16


TROUBLES = (
    Trouble("clean"),
    Trouble("1 % loss", loss=0.01),
    Trouble("5 % loss", loss=0.05),
    Trouble("10 % loss", loss=0.10),
    Trouble("40 ms jitter", jitter_s=0.04),
    Trouble("100 ms jitter", jitter_s=0.1),
    Trouble("5 % loss, 40 ms jitter", loss=0.05, jitter_s=0.04),
    Trouble("200 ppm drift", drift_ppm=200.0),
)
WIDE = tuple(
    Trouble(f"{codec}, {name}", loss=loss, codec=codec)
    for codec in ("G722", "opus")
    for name, loss in (("clean", 0.0), ("1 % loss", 0.01), ("5 % loss", 0.05))
)


def remote_of(payload: Payload, host: str, port: int, **fields: Any) -> RemoteMedia:
    """Settings agreed on by both ends."""
    return RemoteMedia(
        host,
        port,
        payload_type=payload.payload_type,
        payload_name=payload.name,
        clock_hz=payload.clock_hz,
        silence=payload.silent_frame(20).hex(),
        **fields,
    )


async def send(plan: dict[str, Any]) -> None:
    """Speak into every flow together, through one media process."""
    process = await MediaProcess.start()
    legs = []
    for flow in plan["flows"]:
        payload = payload_by_name(flow["trouble"]["codec"])
        leg = await process.open(LegSpec(local_host=plan["host"], timeout_s=0, pinned_s=0.1))
        await leg.start(remote_of(payload, flow["host"], flow["port"], receive=False))
        legs.append((leg, payload))
    pcm = np.load(plan["speech"])

    async def speak(leg: Any, payload: Payload) -> None:
        encoder = FrameEncoder(24000, payload)
        encoded = encoder.push(pcm.tobytes()) + encoder.flush()
        frames, end = [], 0
        for each in encoded:
            start, end = end, end + each.samples
            frames.append(Frame(each.payload, each.tail, each.head, 1, start, end, each.silent))
        await asyncio.sleep(LEAD_S)
        leg.begin(1)
        while frames:
            await leg.room()
            del frames[: leg.write(frames)]
        leg.finish(1)
        async for event in leg.events:
            if isinstance(event, ContextPlayed):
                break
        await asyncio.sleep(0.5)

    await asyncio.gather(*(speak(leg, payload) for leg, payload in legs))
    await process.close()


async def receive(plan: dict[str, Any]) -> None:
    """Hear every flow: by a leg, and by a plain socket beside it; written down at the end."""
    process = await MediaProcess.start()
    ears, raw, ports = [], [], []
    for trouble in plan["troubles"]:
        payload = payload_by_name(trouble["codec"])
        leg = await process.open(LegSpec(local_host=plan["host"], timeout_s=0))
        await leg.start(remote_of(payload, plan["host"], 0, send=False))
        plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        plain.bind((plan["host"], 0))
        plain.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        plain.setblocking(False)
        ears.append(
            Ear(leg, AudioDecoder({payload.payload_type: payload}), Playout(payload.sample_hz))
        )
        raw.append(plain)
        ports.append([leg.local_port, plain.getsockname()[1]])
    packets: list[list[tuple[float, bytes]]] = [[] for _ in raw]
    print(json.dumps(ports), flush=True)
    over = asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    while not over.done():
        for ear in ears:
            ear.listen()
        for plain, heap in zip(raw, packets, strict=True):
            drain(plain, heap)
        await asyncio.sleep(0.005)
    for ear in ears:
        ear.listen(last=True)
    found = [
        {
            "ours": np.concatenate([frame.samples for frame in ear.played]).tolist(),
            "delay_ms": ear.delay_ms(),
            "concealed_s": ear.hearing.concealed_s,
            "stretched_s": ear.playout.shortened_s + ear.playout.lengthened_s,
            "packets": [(at, data.hex()) for at, data in heap],
        }
        for ear, heap in zip(ears, packets, strict=True)
    ]
    write(plan["result"], found)
    await process.close()


def write(path: str, found: list[dict[str, Any]]) -> None:
    """For the process that judges."""
    Path(path).write_text(json.dumps(found), encoding="utf-8")


@dataclass
class Ear:
    """Ours: one leg's inbound frames to the clocked samples."""

    leg: Any
    hearing: AudioDecoder
    playout: Playout
    played: list[HeardFrame] = field(default_factory=list)
    _delays: list[float] = field(default_factory=list)

    def listen(self, *, last: bool = False) -> None:
        """Take what has come, and play what is due."""
        for frame in self.leg.read_inbound():
            for heard in self.hearing.take(frame):
                self.playout.push(heard)
        self.played += self.playout.due(time.monotonic())
        self._delays.append(self.playout.wanted_s)
        if last:
            self.played += self.playout.end()

    def delay_ms(self) -> float:
        """Mean delay over the second half."""
        return 1000 * float(np.mean(self._delays[len(self._delays) // 2 :]))


def drain(plain: socket.socket, heap: list[tuple[float, bytes]]) -> None:
    """Take datagrams with the times of the kernel."""
    while True:
        try:
            data, ancillary, _, _ = plain.recvmsg(2048, 256)
        except BlockingIOError:
            return
        seconds, nanoseconds = struct.unpack("qq", ancillary[0][2][:16])
        if len(data) > 12 and not rtp.is_rtcp(data):
            heap.append((seconds + nanoseconds / 1e9, data))


# --- judging


def at_rate(pcm: Samples, from_hz: int, to_hz: int) -> Samples:
    """Resampled as a whole."""
    resampler = Resampler(from_hz, to_hz, aligned=True)
    return np.concatenate((resampler.push(pcm), resampler.flush()))


def trimmed(pcm: Samples) -> Samples:
    """Without the silence before and after."""
    loud = np.flatnonzero(np.abs(pcm.astype(np.int32)) > 200)
    return pcm[max(0, loud[0] - 400) : loud[-1] + 400] if len(loud) else pcm


def pesq_of(reference: Samples, heard: Samples, rate: int) -> float:
    """Narrow band at 8 kHz, wide band for what is more."""
    from pesq import PesqError, pesq

    wanted = 8000 if rate == 8000 else 16000
    one, other = (trimmed(at_rate(pcm, rate, wanted)) for pcm in (reference, heard))
    try:
        return float(pesq(wanted, one, other, "nb" if wanted == 8000 else "wb"))
    except PesqError:
        return float("nan")


def gaps(pcm: Samples, rate: int) -> int:
    """Runs of 10 ms or more without sound, before the last sound."""
    loud = np.flatnonzero(np.abs(trimmed(pcm).astype(np.int32)) > SILENT_PEAK)
    return int((np.diff(loud) >= rate // 100).sum())


# --- the drift of an hour, without sockets


def hour_of_drift(ppm: float, seconds: float) -> list[float]:
    """A tone through `Playout`: longest wait (ms), steps over the tone's own, ms it was moved."""
    tone = np.rint(8000 * np.sin(2 * np.pi * 200 * np.arange(160) / 8000)).astype(np.int16)
    playout, own = Playout(), float(np.abs(np.diff(tone.astype(float))).max())
    longest, steepest, last, number = 0.0, 0.0, np.zeros(1, np.int16), 0
    for tick in range(round(seconds * 50)):
        now = 1000.0 + tick * 0.02
        while (at := 1000.0 + number * 0.02 * (1 + ppm * 1e-6)) <= now:
            playout.push(HeardFrame(tone, at, False, 8000, number * 160, 8000))
            number += 1
        for frame in playout.due(now):
            joined = np.concatenate((last, frame.samples)).astype(float)
            if tick > 50:
                steepest = max(steepest, float(np.abs(np.diff(joined)).max()) / own)
                longest = max(longest, playout.waiting_s)
            last = frame.samples[-1:]
    moved = playout.lengthened_s - playout.shortened_s
    return [1000 * longest, steepest, 1000 * moved]


# --- running it


async def spoken(quick: bool) -> Samples:
    """The speech, 24 kHz."""
    engine = EmbeddedEngine()
    await engine.start()
    parts = []
    try:
        for text in TEXT[: 2 if quick else None]:
            async for chunk in engine.synthesize(SynthesisRequest(text, final=True)):
                parts.append(np.frombuffer(chunk.pcm, "<i2"))
            parts.append(np.zeros(round(PAUSE_S * 24000), np.int16))
    finally:
        await engine.close()
    return np.concatenate(parts)


class Side:
    """A process of this file in one of its parts."""

    def __init__(self, part: str, plan: dict[str, Any], inside: str | None = None) -> None:
        command = [sys.executable, __file__, "--part", part, json.dumps(plan)]
        if inside is not None:
            command = ["ip", "netns", "exec", inside, *command]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def told(self) -> Any:
        """First line of its output."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"it ended with status {self._process.wait()}; its error is above")
        return json.loads(line)

    def end(self, *, wait_s: float = 120.0) -> None:
        """Close its input and wait for its end."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(wait_s)
        if self._process.stdout is not None:
            self._process.stdout.close()


def through(troubles: tuple[Trouble, ...], speech: Path, folder: Path, netem: bool) -> list[Any]:
    """Run sender, impairment and receiver; what the receiver found, for each trouble."""
    result = folder / "result.json"
    (send_in, send_host), (receive_in, receive_host) = (
        NAMESPACES if netem else ((None, HOST), (None, HOST))
    )
    plan: dict[str, Any] = {
        "host": receive_host,
        "troubles": [asdict(each) for each in troubles],
        "result": str(result),
    }
    receiver = Side("receive", plan, receive_in)
    ports = receiver.told()
    flows = [
        # Both flows of a trouble meet the same fate.
        {"host": receive_host, "port": port, "trouble": asdict(trouble), "seed": seed}
        for seed, (trouble, pair) in enumerate(zip(troubles, ports, strict=True))
        for port in pair
    ]
    between = None
    if not netem:
        between = Side("relay", {"flows": flows})
        for flow, port in zip(flows, between.told(), strict=True):
            flow["port"] = port
    sender = Side("send", {"host": send_host, "flows": flows, "speech": str(speech)}, send_in)
    sender.end()
    time.sleep(0.5)
    receiver.end()
    if between is not None:
        between.end()
    return list(json.loads(result.read_text(encoding="utf-8")))


def measure(troubles: tuple[Trouble, ...], speech: Path, netem: bool) -> list[Any]:
    """All of them; netem has one link, so one after the other there."""
    with tempfile.TemporaryDirectory() as folder:
        if not netem:
            return through(troubles, speech, Path(folder), netem=False)
        found = []
        for trouble in troubles:
            impair(trouble)
            found += through((trouble,), speech, Path(folder), netem=True)
        return found


def main() -> None:
    """Measure and print."""
    parts = {"relay": relay, "send": send, "receive": receive}
    if sys.argv[1:2] == ["--part"]:
        done = parts[sys.argv[2]](json.loads(sys.argv[3]))
        if done is not None:
            asyncio.run(done)
        return
    about = __doc__.splitlines()[0]
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--shim", action="store_true", help="the relay also where netem is there")
    bench = Bench("impairment", about, parser)
    complaint = "asked for by --shim" if bench.args.shim else namespaces()
    netem = not complaint
    bench.note("two namespaces and tc netem" if netem else f"relay on loopback ({complaint})")
    troubles = TROUBLES if bench.quick else TROUBLES + WIDE
    if netem:  # it knows no drift
        troubles = tuple(each for each in troubles if not each.drift_ppm)
    with tempfile.TemporaryDirectory() as folder:
        speech = Path(folder) / "speech.npy"
        pcm = asyncio.run(spoken(bench.quick))
        np.save(speech, pcm)
        try:
            found = measure(troubles, speech, netem)
        finally:
            if netem:
                remove_namespaces()
    rows, scores = [], {}
    for trouble, each in zip(troubles, found, strict=True):
        payload = payload_by_name(trouble.codec)
        rate = payload.sample_hz
        reference = at_rate(pcm, 24000, rate)
        packets = [(at, bytes.fromhex(data)) for at, data in each["packets"]]
        heard = {
            "ours": np.array(each["ours"], np.int16),
            "fixed": fixed_buffer(packets, payload),
            "aiortc": aiortc_buffer(packets, payload),
        }
        own = gaps(reference, rate)
        scored = {
            name: (pesq_of(reference, samples, rate), max(0, gaps(samples, rate) - own))
            for name, samples in heard.items()
        }
        scores[trouble.name] = scored
        rows.append(
            [
                trouble.name,
                *itertools.chain.from_iterable(scored[name] for name in heard),
                each["delay_ms"],
                each["concealed_s"],
                1000 * each["stretched_s"],
            ]
        )
    bench.table(
        "what is heard of what comes in (out: the fixed buffer is the far end's telephone)",
        [
            "network",
            *("ours PESQ", "gaps", "fixed 60 ms PESQ", "gaps", "aiortc PESQ", "gaps"),
            *("ours waits ms", "concealed s", "stretched ms"),
        ],
        rows,
    )
    seconds = 600.0 if bench.quick else 3600.0
    drift = [[f"{ppm:+.0f} ppm", *hour_of_drift(ppm, seconds)] for ppm in (200.0, -200.0)]
    bench.table(
        f"{seconds:.0f} s of a tone from a clock that is off (no sockets)",
        ["clock", "longest wait ms", "largest step / the tone's own", "made longer ms"],
        drift,
    )
    bench.figure(
        pesq_out_1=scores["1 % loss"]["fixed"][0],
        pesq_out_5=scores["5 % loss"]["fixed"][0],
        pesq_in_1=scores["1 % loss"]["ours"][0],
        pesq_in_5=scores["5 % loss"]["ours"][0],
        gaps=sum(score["ours"][1] for score in scores.values()),
    )


if __name__ == "__main__":
    main()
