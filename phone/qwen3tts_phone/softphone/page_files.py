"""The page's files, read once; only what lies in the folder at the start is ever served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "page"
KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
}
"""Other files are left out."""
INDEX = "index.html"


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file."""

    body: bytes
    kind: str
    """Its media type."""


def page_files(folder: Path = FOLDER) -> Mapping[str, PageFile]:
    """Every file of the page, by its name; raises OSError where the folder cannot be read."""
    return {
        path.name: PageFile(path.read_bytes(), KINDS[path.suffix])
        for path in sorted(folder.iterdir())
        if path.is_file() and path.suffix in KINDS
    }
