"""Whether the engine is right on a device: graphs, kernels, codes and sound beside plain torch.

The checks use models of the published widths with few layers and random weights. They are the same
for ``engine_gpu.py --check``, for ``pytest -m gpu``, and on a CPU in place of the GPU, where
``Place.launch`` gives the graph backend and the streams of a test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from gpu.parity import error_of, few_layers, speak
from torch import Tensor

from qwen3tts_engine.qwen3.kernels.cuda import EagerBackend
from qwen3tts_engine.qwen3.kernels.runner import LaunchMode, Runner
from qwen3tts_engine.qwen3.model.config import ModelConfig
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.transformer import TORCH_KERNELS
from tests.tiny_models.published import PUBLISHED
from tests.tiny_models.weights import random_weights

FRAMES = 6
POSITIONS = 256
KERNEL_LIMIT = 2e-4
"""Largest relative error of the kernels in float32; of codes, none may differ."""
CODEC_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
SNR_SLACK_DB = 6.0
"""How far the codec's signal to noise ratio, beside float32 on the CPU, may be below that of the
same number type on the CPU: random weights amplify rounding, by an amount of their own."""
EXACT_DB = 60.0
"""Least ratio in float32."""


@dataclass(frozen=True, slots=True)
class Result:
    """One check's outcome."""

    name: str
    passed: bool
    text: str


@dataclass
class Place:
    """Where the checks run, and what they compare with."""

    device: torch.device
    config: ModelConfig = field(default_factory=lambda: few_layers(PUBLISHED["1.7b-custom_voice"]))
    dtype: torch.dtype = torch.bfloat16
    """Of the talker where graphs are checked: as it is served."""
    codec_dtype: torch.dtype = torch.float16
    slots: int = 16
    others: tuple[torch.device, ...] = ()
    """Further devices that must give the same codes."""
    launch: Callable[[], LaunchMode] = lambda: LaunchMode(static=True)
    """Of the runner that captures."""

    @property
    def rows(self) -> int:
        """Rows of a comparison with the CPU."""
        return min(3, self.slots)

    def model(
        self,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        codec_dtype: torch.dtype = torch.float32,
    ) -> Qwen3Model:
        """Load the same weights, drawn on the CPU; no TF32."""
        return Qwen3Model.from_weights(
            self.config, *random_weights(self.config), device=device, dtype=dtype,
            codec_dtype=codec_dtype,
        )  # fmt: skip

    def runner(self, model: Qwen3Model, launch: LaunchMode) -> Runner:
        """Make a runner and capture what its backend captures."""
        runner = Runner(model, slots=self.slots, positions=POSITIONS, launch=launch)
        runner.warmup()
        return runner

    @cached_property
    def here(self) -> Qwen3Model:
        """The model in float32 on the device, with its kernels."""
        return self.model(self.device)

    @cached_property
    def reference(self) -> dict[str, Tensor]:
        """What the CPU says, in float32 by plain torch."""
        runner = Runner(self.model(torch.device("cpu")), slots=self.slots, positions=POSITIONS)
        return speak(runner, self.rows, FRAMES)


def graphs(place: Place) -> Iterator[Result]:
    """All sizes: a replayed graph gives what the same work gives eagerly."""
    model = place.model(place.device, place.dtype, place.codec_dtype)
    captured = place.runner(model, place.launch())
    count, _ = captured.captured
    eager = place.runner(model, replace(place.launch(), backend=EagerBackend()))
    notes = "; ".join(captured.notes) or "none"
    yield Result("no degradation", not captured.notes, f"notes: {notes}")
    wrong, worst, rows = [], 0.0, 1
    while rows <= place.slots:
        plain, ours = speak(eager, rows, FRAMES), speak(captured, rows, FRAMES)
        worst = max(worst, error_of(plain["sound"], ours["sound"]))
        if not torch.equal(plain["codes"], ours["codes"]):
            wrong.append(rows)
        rows = rows + 1 if rows < 4 else 2 * rows
    where = f"codes differ at {wrong} rows" if wrong else "equal codes"
    text = f"{count} sizes captured, {where}, sound within {worst:.2g}"
    # A CPU has no graphs.
    captures = count > 0 or place.device.type == "cpu"
    yield Result("graph = eager", captures and not wrong and worst < 1e-3, text)


def kernels(place: Place) -> Iterator[Result]:
    """The device's kernels give what plain torch gives there, at the published widths."""
    model = place.here
    found = {"ours": _eagerly(place, model)}
    ours = model.kernels
    # A copy, for which a runner does not choose the device's again.
    model.kernels = replace(TORCH_KERNELS)
    found["plain"] = _eagerly(place, model)
    model.kernels = ours
    errors = {name: error_of(found["plain"][name], found["ours"][name]) for name in found["ours"]}
    passed = errors["codes"] == 0 and all(error < KERNEL_LIMIT for error in errors.values())
    shown = ", ".join(f"{name} {error:.2g}" for name, error in errors.items())
    what = "kernels = plain torch"
    if ours is TORCH_KERNELS:
        shown += "; there are no kernels of this device"
        passed = passed and place.device.type == "cpu"
    yield Result(what, passed, f"float32, relative errors: {shown}")


def codes(place: Place) -> Iterator[Result]:
    """In float32 the device says what the CPU says."""
    ours = speak(place.runner(place.here, place.launch()), place.rows, FRAMES)
    want = place.reference["codes"]
    same = (ours["codes"] == want).flatten(1).all(dim=1)
    equal = int(same.long().cumprod(0).sum())
    text = f"float32: {equal} of {len(want)} frames equal, logits within " + (
        f"{error_of(place.reference['logits'], ours['logits']):.2g}"
    )
    yield Result("device = CPU, codes", equal == len(want), text)


def persistent(place: Place) -> Iterator[Result]:
    """The persistent predictor says what the CPU says, where the device runs it."""
    name = "persistent predictor = CPU, codes"
    if place.device.type != "cuda":
        yield Result(name, True, "not on this device")
        return
    runner = place.runner(place.model(place.device), replace(place.launch(), persistent=True))
    ours, want = speak(runner, place.rows, FRAMES)["codes"], place.reference["codes"]
    notes = "; ".join(runner.notes) or "no notes"
    equal = torch.equal(ours, want)
    yield Result(name, equal, f"{'equal' if equal else 'other'} codes; {notes}")


def codec(place: Place) -> Iterator[Result]:
    """The codec's sound by number type, beside float32 on the CPU."""
    want = place.reference["sound"]
    for dtype in CODEC_DTYPES:
        name = f"codec in {str(dtype).removeprefix('torch.')}"
        model = place.model(place.device, codec_dtype=dtype)
        ours = _eagerly(place, model)
        if not torch.equal(ours["codes"], place.reference["codes"]):
            yield Result(name, False, "other codes than the CPU's: not compared")
            continue
        least = EXACT_DB
        if dtype != torch.float32:
            model_there = place.model(torch.device("cpu"), codec_dtype=dtype)
            there = speak(
                Runner(model_there, slots=place.slots, positions=POSITIONS), place.rows, FRAMES
            )
            least = signal_to_noise(want, there["sound"]) - SNR_SLACK_DB
        snr = signal_to_noise(want, ours["sound"])
        risky = getattr(model.decoder, "float32_layers", ())
        kept = f"; in float32: {', '.join(risky)}" if risky else ""
        yield Result(name, snr >= least, f"{snr:.1f} dB of at least {least:.1f}{kept}")


def _eagerly(place: Place, model: Qwen3Model) -> dict[str, Tensor]:
    launch = replace(place.launch(), backend=EagerBackend())
    return speak(place.runner(model, launch), place.rows, FRAMES)


def devices(place: Place) -> Iterator[Result]:
    """Further devices give the same codes while another one is current."""
    for other in place.others:
        model = place.model(other)
        captured = speak(place.runner(model, place.launch()), place.rows, FRAMES)
        equal = torch.equal(captured["codes"], place.reference["codes"])
        yield Result(f"{other} = CPU, codes", equal, "equal codes" if equal else "other codes")
    if not place.others:
        yield Result("two devices", True, "one device here: not checked")


def signal_to_noise(want: Tensor, got: Tensor) -> float:
    """Decibels."""
    noise = float((want - got).double().square().sum())
    signal = float(want.double().square().sum())
    return math.inf if not noise else 10 * math.log10(max(signal, 1e-30) / noise)


CHECKS: dict[str, Callable[[Place], Iterator[Result]]] = {
    "graphs": graphs,
    "kernels": kernels,
    "codes": codes,
    "persistent": persistent,
    "codec": codec,
    "devices": devices,
}


def this_gpu(device: torch.device) -> Place:
    """The place of a GPU, with all GPUs beside it."""
    count = torch.cuda.device_count()
    others = tuple(torch.device("cuda", at) for at in range(count) if at != (device.index or 0))
    return Place(device, others=others, launch=LaunchMode)
