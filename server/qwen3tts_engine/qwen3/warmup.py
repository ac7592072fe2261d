"""What happens before the first caller: sizes are captured, and what cannot be had is found out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from qwen3tts_engine.qwen3.graphs import GRAPH_BYTES, Backend, Stage
from qwen3tts_engine.qwen3.lanes import Lanes
from qwen3tts_engine.qwen3.memory import AUTO_SLOTS, free_bytes, human
from qwen3tts_engine.qwen3.stages import Programs, Stages
from qwen3tts_wire.errors import EngineUnavailable

if TYPE_CHECKING:
    from qwen3tts_engine.qwen3.qwen3_model import Qwen3Model

log = logging.getLogger(__name__)

GRAPHS = 90
"""Sizes that are captured, about."""
COPIES = 4
"""Times that the codec's widest activations are held at once, about."""


def workspace_bytes(model: Qwen3Model, slots: int | str, *, captures: bool) -> int:
    """Estimate of what steps, decodes and graphs take besides state and weights.

    The largest single thing is the codec's last convolution, whose gathered windows hold each
    sample's inputs seven times.
    """
    codec = model.config.codec.decoder
    rows = slots if isinstance(slots, int) else AUTO_SLOTS.get(model.device.type, 16)
    frames = max(1, min(2 * rows, 128))
    channels = codec.decoder_dim >> len(codec.upsample_rates)
    sample = 7 * channels * model.decoder.dtype.itemsize * COPIES
    decode = frames * model.decoder.samples_per_frame * sample
    step = rows * model.config.talker.vocab * 4 * 16
    return decode + step + (GRAPHS * GRAPH_BYTES if captures else 0)


class Warmup:
    """Captures sizes, and falls back from what fails."""

    def __init__(self, stages: Stages, backend: Backend, lanes: Lanes, *, compiles: bool) -> None:
        self._stages, self._backend, self._lanes = stages, backend, lanes
        self._compiles = compiles
        self.notes: list[str] = []
        """What could not be had, for people."""
        self.bytes = 0
        """What captures took of the device's memory."""

    def capture(
        self, sizes: Sequence[tuple[Stage[Any], Any]], tell: Callable[[str, int, int], None]
    ) -> Exception | None:
        """Capture all; why nothing was captured, or None.

        Raises:
            EngineUnavailable: the device's memory does not suffice.
        """
        device = self._lanes.device
        before = free_bytes(device)
        if self._compiles:
            self._stages.programs = Programs().compiled()
        try:
            for done, (stage, key) in enumerate(sizes):
                tell("capturing graphs", done, len(sizes))
                self._capture(stage, key)
        except torch.OutOfMemoryError as error:
            raise EngineUnavailable(
                f"The device {device} has no room for the graphs: {len(sizes)} sizes.",
                remedy="Use fewer slots or positions, or graphs off.",
            ) from error
        except Exception as error:
            log.exception("no graphs")
            for stage, _ in sizes:
                stage.clear()
            return error
        finally:
            # Sizes that were not captured run as they stand, and must not be compiled then.
            self._stages.programs = Programs()
        tell("capturing graphs", len(sizes), len(sizes))
        after = free_bytes(device)
        if before is not None and after is not None:
            self.bytes = max(0, before - after)
        log.info("%d graphs, %s", len(sizes), human(self.bytes))
        return None

    def _capture(self, stage: Stage[Any], key: Any) -> None:
        try:
            stage.capture(key, self._backend)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            programs = self._stages.programs
            if programs == Programs():
                raise
            log.warning("not compiled", exc_info=error)
            self.notes.append(
                f"torch.compile failed ({type(error).__name__}) at {key}; it is not used."
            )
            self._stages.programs = replace(Programs())
            stage.capture(key, self._backend)
