"""Keyboard input with a prompt a line."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

from qwen3tts_cli.output.console import note, notes, show_prompt

BY_LINE = "Type what is to be said; Enter says the line, Ctrl-D on an empty line ends."
BY_KEY = "Type what is to be said; each key counts and cannot be taken back, Ctrl-D ends."
PROMPT = "> "


def typed_by_person() -> bool:
    return sys.stdin.isatty()


def from_keyboard(*, by_key: bool = False) -> AsyncIterator[str]:
    """Yield standard input as deltas (``by_key``: each key, else each line); raises BadText."""
    from qwen3tts_phone.call.text_sources import from_stdin

    if not typed_by_person():
        return from_stdin(by_key=by_key)
    prompt = PROMPT if notes().is_terminal and not by_key else ""

    def say_how() -> None:
        note(BY_KEY if by_key else BY_LINE)
        show_prompt(prompt)

    words = from_stdin(by_key=by_key, on_ready=say_how)
    return _on_own_lines(words, prompt) if prompt or by_key else words


async def _on_own_lines(words: AsyncIterator[str], prompt: str) -> AsyncIterator[str]:
    try:
        async for delta in words:
            show_prompt("")
            yield delta
            show_prompt(prompt if delta.endswith("\n") else "")
    finally:
        show_prompt("")
        # The next remark begins a line of its own.
        sys.stderr.write("\n")
        sys.stderr.flush()
