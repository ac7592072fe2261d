"""What counts as a regression: absolute limits, and a step back behind a kept baseline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Result = dict[str, Any]
SNR_DB = {"float32": 80.0, "float16": 30.0, "bfloat16": 15.0}
"""Least ratio of stream to its difference from the offline decode, by the codec's precision.
Measured: about 95 dB in float32, 37 dB in float16, 20 dB in bfloat16 against float32."""
SNR_LOSS_DB = 6.0
"""Rounding differs by as much between machines."""
JOINT_ERROR = 3.0
"""Error at joints over the error elsewhere; 1 when joints do no harm."""
CLICK_SIGMA = 3.0
"""By how much more the joints of the stream may stand out than the same places offline."""
SLOWER = 1.5
"""Times may be so much longer before they count; only where they are asked to count."""


def faults(result: Result) -> Iterator[str]:
    """What is wrong in itself, whatever was before."""
    for name, text in result["texts"].items():
        floor = SNR_DB[result["codec_dtype"]]
        if text["difference"]["snr_db"] < floor:
            yield f"{name}: stream and offline differ, {text['difference']['snr_db']:.1f} dB"
        if text["difference"]["samples"]:
            yield f"{name}: the stream is {text['difference']['samples']} samples too long"
        for kind in ("repeated", "skipped", "foreign_blocks"):
            if text["order"][kind]:
                yield f"{name}: {text['order'][kind]} {kind}"
        if not text["level"]["sane"]:
            yield f"{name}: the level is not sane: {text['level']}"
        if text["clicks"]["more_than_offline_sigma"] > CLICK_SIGMA:
            yield f"{name}: clicks at joints, {text['clicks']['more_than_offline_sigma']:.1f} sigma"
        if text["clicks"]["joint_error"] > JOINT_ERROR:
            yield f"{name}: error at joints, {text['clicks']['joint_error']:.1f} times elsewhere"
        delivered = text.get("delivered", {})
        if delivered.get("unexplained_samples"):
            yield f"{name}: {delivered['unexplained_samples']} samples come from nowhere"
        if delivered.get("loud_left_out_ms"):
            yield f"{name}: {delivered['loud_left_out_ms']:.0f} ms of sound were left out"
        if not text["same_again"]:
            yield f"{name}: the same seed gave other codes"
    if not result["another_seed_differs"]:
        yield "another seed gave the same codes"


def comparable(now: Result, before: Result) -> bool:
    """Whether codes must be equal bit by bit: the same checkpoint, arithmetic and kind of machine.

    Elsewhere rounding may tip a draw that was close, once in some ten thousand, and from there on
    the speech is another.
    """
    same = ("digest", "dtype", "codec_dtype", "device")
    return all(now[key] == before[key] for key in same) and same_machine(now, before)


def same_machine(now: Result, before: Result) -> bool:
    """Whether both add up in the same order."""
    kind = ("torch", "instructions", "model")
    return all(now["machine"].get(key) == before["machine"].get(key) for key in kind)


def regressions(now: Result, before: Result, *, speed: bool) -> Iterator[str]:
    """What is worse than it was."""
    if now["digest"] != before["digest"] and same_machine(now, before):
        # Elsewhere the tiny checkpoints' weights, which are made there, are rounded otherwise.
        yield "the baseline is of another checkpoint; keep a new one"
        return
    exact = comparable(now, before)
    for name, old in before["texts"].items():
        new = now["texts"].get(name)
        if new is None:
            yield f"{name}: not said any more; keep a new baseline"
            continue
        if exact and new["codes"] != old["codes"]:
            yield f"{name}: other codes than the baseline's, {new['frames']} frames"
        lost = old["difference"]["snr_db"] - new["difference"]["snr_db"]
        if lost > SNR_LOSS_DB:
            yield f"{name}: {lost:.1f} dB worse than the baseline"
        if exact and new.get("delivered") != old.get("delivered"):
            yield f"{name}: ends are cut elsewhere: {new['delivered']}"
    if exact and now.get("same_in_a_batch", 1) < before.get("same_in_a_batch", 1):
        yield f"only {now['same_in_a_batch']:.0%} of the texts sound the same in a batch"
    if speed:
        for kind, was in before["speed"].items():
            if now["speed"][kind] > SLOWER * was:
                yield f"{kind}: {now['speed'][kind]:.3g}, was {was:.3g}"
