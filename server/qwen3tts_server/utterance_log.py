"""One log line for every utterance: how long, how soon, how it ended; never what was said."""

from __future__ import annotations

import logging

from qwen3tts_server.logs import TEXT_LOG
from qwen3tts_server.speaking import Observer
from qwen3tts_server.utterance import Utterance
from qwen3tts_wire.messages import PlayoutReport

log = logging.getLogger("qwen3tts_server.utterances")
text_log = logging.getLogger(TEXT_LOG)
"""Silent unless the settings say ``log_text``."""
ERRORS_WRITTEN = 20
"""Errors of one connection that have a line each; of the others, every thousandth has one: else a
client that sends nonsense could fill the disk."""


class LoggedUtterances:
    """An Observer that writes down what it passes on."""

    def __init__(self, observer: Observer, dialect: str) -> None:
        self._observer = observer
        self._dialect = dialect
        self._errors = 0

    def opened(self, utterance: Utterance) -> None:
        """See Observer."""
        self._observer.opened(utterance)

    def reported(self, utterance: Utterance, report: PlayoutReport, now: float) -> None:
        """See Observer."""
        self._observer.reported(utterance, report, now)

    def ended(self, utterance: Utterance, outcome: str, now: float) -> None:
        """See Observer; the line is written when it is over for the first time."""
        again = utterance.counted
        self._observer.ended(utterance, outcome, now)
        if again:
            return
        if log.isEnabledFor(logging.INFO):
            log.info("%s", outcome, extra={"fields": self._fields(utterance)})
        if text_log.isEnabledFor(logging.INFO):
            text_log.info("%s", outcome, extra={"fields": {"text": utterance.text}})

    def errored(self, code: str) -> None:
        """See Observer."""
        self._observer.errored(code)
        self._errors += 1
        if self._errors <= ERRORS_WRITTEN or self._errors % 1000 == 0:
            fields = {"dialect": self._dialect, "code": code, "errors": self._errors}
            log.info("told of an error", extra={"fields": fields})

    def _fields(self, utterance: Utterance) -> dict[str, object]:
        rate = utterance.opened.format.sample_rate
        fields: dict[str, object] = {
            "dialect": self._dialect,
            "chars": utterance.chars,
            "sent_s": round(utterance.sent / rate, 3),
            "made_s": round(utterance.generated / rate, 3),
        }
        if utterance.reason != "text_end":
            fields["reason"] = utterance.reason
        first, sound = (utterance.marks.get(name) for name in ("first_delta", "first_sent"))
        if first is not None and sound is not None:
            fields["first_ms"] = round(sound - first, 1)
        if utterance.gaps:
            fields |= {"gaps": len(utterance.gaps), "longest_gap_s": round(max(utterance.gaps), 3)}
        return fields
