"""The two sides of a chat at a terminal, or in pipes: lines of the caller, words of the agent."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from qwen3tts_cli.output import note, printable

if TYPE_CHECKING:
    from qwen3tts_agent.turn_record import TurnRecord
    from qwen3tts_agent.typed_call import TypedCall

PROMPT = "> "


class ChatTerminal:
    """Shows what is said, and has each line be a turn of the caller.

    At a terminal a line interrupts the reply under way. A pipe's next line is read when the reply
    to the last one is over.
    """

    def __init__(self) -> None:
        self._typed = sys.stdin.isatty()
        self._in_line = False
        """Whether something of the agent's stands in the line that is not complete."""
        self._turn_over = asyncio.Event()
        self._replies = 0

    # --- the agent

    def show(self, text: str) -> None:
        """More of what the agent says."""
        if not self._in_line:
            text = text.lstrip()
        if text:
            self._in_line = True
            sys.stdout.write(printable(text))
            sys.stdout.flush()

    def said(self, text: str) -> None:
        """An utterance has ended."""
        if self._in_line:
            self._in_line = False
            sys.stdout.write("\n")
            sys.stdout.flush()

    def turn_over(self, _: object, turn: TurnRecord) -> None:
        """All is known of a turn."""
        if turn.error is not None:
            note(f"{turn.error.message} {turn.error.remedy}".rstrip())
        self._turn_over.set()
        if not turn.interrupted:
            self.prompt()

    def prompt(self) -> None:
        """It is the caller's turn."""
        if self._typed and not self._in_line:
            sys.stdout.write(PROMPT)
            sys.stdout.flush()

    # --- the caller

    def interrupt(self, call: TypedCall) -> None:
        """Ctrl-C: stop the reply."""
        if call.interrupt():
            self.said("")
            note("Interrupted. Ctrl-D ends it.")
        else:
            note("Nothing is being said. Type something, or end with Ctrl-D.")
        self.prompt()

    async def read(self, call: TypedCall, *, greets: bool) -> None:
        """Have the caller say each line, to the end of the input.

        Raises:
            BadText: it is not UTF-8 text.
        """
        from qwen3tts_phone.call.text_sources import from_stdin

        if greets and not self._typed:
            await self._turn_over.wait()
        rest = ""
        async for text in from_stdin():
            *lines, rest = (rest + text).split("\n")
            for line in lines:
                await self._line(call, line)
        await self._line(call, rest)

    async def _line(self, call: TypedCall, line: str) -> None:
        if not line.strip():
            if self._typed and not call.speaking:
                self.prompt()
            return
        self._turn_over.clear()
        call.type(line)
        if not self._typed:
            await self._turn_over.wait()
