"""Self-contained HTML page of a rehearsal: no server, network or further file."""

from __future__ import annotations

from qwen3tts_cli.rehearsal_page.page import JinjaMissing, write_page

__all__ = ["JinjaMissing", "write_page"]
