"""``mr-qwen3tts latency``: where the milliseconds went, read from the logs of utterances.

Importing this loads nothing heavy: numpy and rich come with the first log that is read.
"""

from __future__ import annotations

from qwen3tts_cli.latency.command import add_to, show_report

__all__ = ["add_to", "show_report"]
