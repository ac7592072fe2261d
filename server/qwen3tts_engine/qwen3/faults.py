"""Isolation of the row at fault after an exception. No torch."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import TypeVar

from qwen3tts_wire.errors import EngineFailed, SpeechError

Row = TypeVar("Row")
Done = TypeVar("Done")


def one_by_one(
    rows: Sequence[Row], launch: Callable[[Row], Done]
) -> tuple[list[tuple[Row, Done]], list[tuple[Row, Exception]]]:
    good: list[tuple[Row, Done]] = []
    bad: list[tuple[Row, Exception]] = []
    for row in rows:
        try:
            good.append((row, launch(row)))
        except Exception as error:
            bad.append((row, error))
    return good, bad


def public_error(error: Exception) -> SpeechError:
    if isinstance(error, SpeechError):
        return error
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        # torch.OutOfMemoryError is a RuntimeError; this module does without torch.
        return EngineFailed(
            "The device is out of memory.",
            remedy="Send it again later; fewer slots or positions leave more room.",
        )
    # torch.AcceleratorError, a RuntimeError in older torch.
    if type(error).__name__ == "AcceleratorError" or str(error).startswith("CUDA error"):
        return EngineFailed(
            "The GPU failed.",
            remedy="Restart the server if it fails again; `nvidia-smi` and the system's log (Xid)"
            " say more.",
        )
    return EngineFailed("The model's code failed.", remedy="The server's log has the reason.")


def safe_traceback(error: BaseException) -> str:
    where = "".join(traceback.format_tb(error.__traceback__))
    says = f": {error}" if isinstance(error, RuntimeError | OSError) else ""
    return f"{where}{type(error).__name__}{says}"


def non_finite_error() -> SpeechError:
    return EngineFailed(
        "The model gave numbers that are not finite.",
        remedy="Send it again; if it stays so, the checkpoint is damaged or its dtype too narrow.",
    )
