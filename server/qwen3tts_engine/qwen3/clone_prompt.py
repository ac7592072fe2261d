"""Codes and speaker embeddings that callers bring: a voice without a recording, and the codec."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qwen3tts_engine.qwen3.model_config import ModelConfig
from qwen3tts_wire.errors import BadRequest

Codes = NDArray[np.int64]
"""Codec frames, shape [frames, quantizers], 12.5 frames a second."""


@dataclass(frozen=True, slots=True, eq=False)
class ClonePrompt:
    """What a cloned voice consists of; the official ``VoiceClonePromptItem``.

    The fields take whatever NumPy makes an array of (lists, tensors on the CPU); they are checked
    where a voice is made of them.
    """

    embedding: Any
    """Speaker vector, shape [hidden]."""
    codes: Any = None
    """Of the reference speech, shape [frames, quantizers]; None: the embedding alone, which is the
    official ``x_vector_only_mode``."""
    text: str | None = None
    """What is said in ``codes``; needed with them, and only with them."""


def checked_codes(codes: object, config: ModelConfig) -> Codes:
    """Return codec frames as an array of their own.

    Raises:
        BadRequest: no whole numbers, another shape, no frame, a code out of range.
    """
    groups, size = config.codec.quantizers, config.codec.decoder.codebook_size
    found = _array("codes", codes)
    if found.dtype.kind not in "iu":
        raise BadRequest(
            f"The codes are {found.dtype}, not whole numbers.",
            remedy=f"Give integers of shape [frames, {groups}].",
        )
    if found.ndim != 2 or found.shape[1] != groups or not len(found):
        raise BadRequest(
            f"The codes have the shape {list(found.shape)}.",
            remedy=f"Give the shape [frames, {groups}], with one frame or more.",
        )
    wrong = np.argwhere((found < 0) | (found >= size))
    if len(wrong):
        frame, group = wrong[0]
        raise BadRequest(
            f"Code {group} of frame {frame} is {found[frame, group]}.",
            remedy=f"Codes are from 0 to {size - 1}.",
        )
    return found.astype(np.int64)


def checked_embedding(embedding: object, size: int) -> Tensor:
    """Return a speaker vector, shape [size], float32, of its own.

    Raises:
        BadRequest: no numbers, another shape, a number that is not finite as float32.
    """
    found = _array("embedding", embedding)
    if found.dtype.kind not in "fiu" or found.shape != (size,):
        raise BadRequest(
            f"The speaker embedding is {found.dtype} of shape {list(found.shape)}.",
            remedy=f"Give {size} numbers, made with a checkpoint of this size.",
        )
    # What is beyond float32 becomes infinite and is refused as such.
    with np.errstate(over="ignore"):
        vector = torch.from_numpy(found.astype(np.float32))
    if not vector.isfinite().all():
        raise BadRequest(
            "The speaker embedding has a number that is not finite.", remedy="Give float32."
        )
    return vector


def _array(name: str, given: object) -> NDArray[Any]:
    if isinstance(given, Tensor):
        given = given.detach().cpu()
        if given.dtype == torch.bfloat16:
            given = given.float()
    try:
        return np.asarray(given)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadRequest(
            f"The {name} cannot be an array: {type(error).__name__}.",
            remedy="Give a NumPy array, a tensor, or lists of equal length.",
        ) from error
