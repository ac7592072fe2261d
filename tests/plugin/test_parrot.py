"""The stand-in for a language model that docs/mindroot.md offers for trying out."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

PARROT = Path(__file__).resolve().parents[2] / "docs" / "mindroot" / "mr_parrot"


@pytest.fixture
def parrot(monkeypatch: pytest.MonkeyPatch) -> Any:
    from lib.providers import ProviderManager
    from lib.providers import services as registry

    monkeypatch.setattr(registry, "service_manager", ProviderManager())
    spec = importlib.util.spec_from_file_location("mr_parrot_mod", PARROT / "mr_parrot" / "mod.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "mr_parrot_mod", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "PAUSE_S", 0)
    return module


@pytest.mark.parametrize(
    "content", ['Say "hi".', [{"type": "text", "text": 'Say "hi".'}, {"type": "image"}]]
)
async def test_it_says_back_what_was_written_in_small_pieces(parrot: Any, content: Any) -> None:
    stream = await parrot.stream_chat(None, messages=[{"role": "user", "content": content}])
    pieces = [piece async for piece in stream]
    assert json.loads("".join(pieces)) == [{"speak": {"text": 'You said: Say "hi".'}}]
    assert max(map(len, pieces)) == parrot.PIECE


async def test_the_host_finds_it_as_a_model(parrot: Any) -> None:
    said = json.loads((PARROT / "plugin_info.json").read_text(encoding="utf-8"))
    assert said["name"] == PARROT.name
    assert await parrot.get_service_models() == {"stream_chat": ["parrot"]}
