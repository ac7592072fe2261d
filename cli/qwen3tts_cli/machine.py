"""What becomes of a call that an answering machine takes."""

from __future__ import annotations

from enum import StrEnum


class OnMachine(StrEnum):
    """What is done when a machine answers: `qwen3tts_phone.call.dialogue.OnMachine`."""

    SPEAK = "speak"
    HANG_UP = "hang-up"
    AFTER_BEEP = "after-beep"
