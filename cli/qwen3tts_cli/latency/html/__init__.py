"""The report as one HTML file that needs nothing else: no server, no network, no other file."""

from __future__ import annotations

from qwen3tts_cli.latency.html.page import PlotlyMissing, write_page

__all__ = ["PlotlyMissing", "write_page"]
