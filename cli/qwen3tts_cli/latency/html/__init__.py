"""Self-contained HTML report: no server, network or further file."""

from __future__ import annotations

from qwen3tts_cli.latency.html.page import PlotlyMissing, write_page

__all__ = ["PlotlyMissing", "write_page"]
