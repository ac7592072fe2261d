"""What broke in a function of the program's, for logs."""

from __future__ import annotations

import traceback


def without_words(error: BaseException) -> str:
    """The traceback and the kind of an error; not its text, which may hold what a caller said."""
    lines = traceback.format_tb(error.__traceback__)
    return f"Traceback (most recent call last):\n{''.join(lines)}{type(error).__name__}"
