"""Log of a conversation's turns: their records, and what is unsaid."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from qwen3tts_agent.conversation import Conversation, ConversationLog
from qwen3tts_agent.reply import Reply
from qwen3tts_agent.turn_record import TurnKind, TurnRecord
from qwen3tts_phone.detection.events import Turn
from qwen3tts_phone.errors import traceback_without_message
from qwen3tts_wire.errors import MOST_SENTENCE_CHARS, log_text

logger = logging.getLogger(__name__)

OnTurn = Callable[[Conversation, TurnRecord], None]


class TurnLog:
    """Log of the turns of one conversation."""

    def __init__(
        self, conversation: Conversation, log: ConversationLog | None, on_turn: OnTurn | None
    ) -> None:
        self._conversation = conversation
        self._log = log
        self._on_turn = on_turn
        self._unsaid_of: Reply | None = None
        """Reply that `Conversation.unsaid` belongs to."""
        self._work: set[asyncio.Task[None]] = set()

    def begin(
        self, kind: TurnKind, turn: Turn | None, now: float, record: TurnRecord | None = None
    ) -> TurnRecord:
        """Add the turn's record; ``record``: that of its prepared reply."""
        record = record or TurnRecord(0, kind)
        record.number = len(self._conversation.turns) + 1
        self._conversation.turns.append(record)
        if turn is None:
            record.mark("turn_end", now)
            return record
        record.text, record.why, record.rule = turn_text(turn), turn.why, turn.rule
        record.barge_in, record.language = turn.barge_in, turn.language
        record.mark("caller_end", turn.ended_at)
        record.mark("turn_end", turn.decided_at)
        record.mark("transcript", turn.transcribed_at)
        if turn.error is not None:
            record.failed(turn.error)
        return record

    def unanswered(self, turn: Turn, now: float) -> None:
        if turn.error is not None or turn_text(turn):
            self._finish(self.begin("caller", turn, now))

    def keep_unsaid(self, reply: Reply) -> None:
        if reply.unsaid or reply is self._unsaid_of:
            self._conversation.unsaid, self._unsaid_of = reply.unsaid, reply

    def take_unsaid(self) -> str:
        unsaid, self._conversation.unsaid = self._conversation.unsaid, ""
        self._unsaid_of = None
        return unsaid

    def end(self, reply: Reply) -> None:
        self.keep_unsaid(reply)
        self.start(self._complete(reply), f"turn {reply.record.number}")

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def settled(self) -> None:
        while self._work:
            await asyncio.wait(set(self._work))

    async def _complete(self, reply: Reply) -> None:
        await reply.settled()
        reply.complete_record()
        if reply is self._unsaid_of:  # exact to the word now
            self._conversation.unsaid = reply.record.unsaid
        self._finish(reply.record)

    def _finish(self, record: TurnRecord) -> None:
        record.done = True
        if self._log is not None:
            self._log.append(self._conversation.call_id, record)
        if record.error is not None and self._on_turn is None:
            call_id = self._conversation.call_id
            logger.warning(
                "call %s, turn %d: %s",
                log_text(call_id),
                record.number,
                log_text(record.error, MOST_SENTENCE_CHARS),
            )
        if self._on_turn is not None:
            try:
                self._on_turn(self._conversation, record)
            except Exception as error:
                logger.error("on_turn failed\n%s", traceback_without_message(error))


def turn_text(turn: Turn) -> str:
    keys = f"[keys: {turn.keys}]" if turn.keys else ""
    return " ".join(part for part in (turn.text.strip(), keys) if part)
