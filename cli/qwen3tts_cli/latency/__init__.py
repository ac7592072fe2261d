"""Subcommand ``latency``: latency reports from utterance logs.

Imports nothing heavy: numpy and rich are loaded with the first log.
"""

from __future__ import annotations

from qwen3tts_cli.latency.command import add_to, show_report

__all__ = ["add_to", "show_report"]
