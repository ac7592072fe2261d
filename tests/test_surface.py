"""What a user can name stays: the kept surface beside the code's."""

from __future__ import annotations

import json

import pytest

from tests import surface
from tests.conftest import require_package

RENEW = "list it in CHANGELOG.md under Breaking, then: python -m tests.surface --write"
KEPT = json.loads(surface.KEPT.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def now() -> dict[str, object]:
    require_package("torch", "pip install 'mr_qwen3tts[qwen3]'")  # every module is imported
    return dict(surface.surface())


@pytest.mark.parametrize("part", sorted(KEPT))
def test_the_surface_is_the_kept_one(part: str, now: dict[str, object]) -> None:
    assert now[part] == KEPT[part], RENEW
