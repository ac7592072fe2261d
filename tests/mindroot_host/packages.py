"""Packages of the tests' own environment for a host: linked into a folder on its path."""

from __future__ import annotations

from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

from tests.mindroot_host.install import MINDROOT


def linked(folder: Path, *names: str) -> bool:
    """Link these packages and what they need, where the host has none; whether all are here."""
    found: dict[str, Distribution] = {}
    try:
        for name in names:
            _collect(name, found)
    except PackageNotFoundError:
        return False
    (theirs,) = MINDROOT.glob("lib/python*/site-packages")
    for each in found.values():
        tops = {file.parts[0] for file in each.files or () if file.parts[0] != ".."}
        for top in tops - {"__pycache__"}:
            if not (theirs / top).exists() and not (folder / top).exists():
                (folder / top).symlink_to(Path(str(each.locate_file(top))))
    return True


def _collect(name: str, found: dict[str, Distribution]) -> None:
    key = name.lower().replace("_", "-")
    if key in found:
        return
    found[key] = distribution(name)
    for line in found[key].requires or ():
        wanted = Requirement(line)
        if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
            _collect(wanted.name, found)
