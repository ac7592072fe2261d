"""Token ids beside the official package's, in every place of the prompt."""

from __future__ import annotations

from collections.abc import Callable

from tests.parity.conftest import Oracle
from tests.parity.ours import Ours


def test_ids_are_the_official_ones(oracle: Oracle, ours: Callable[[str], Ours]) -> None:
    mine = ours("custom_voice")
    wrong = []
    for text, official in zip(oracle.texts, oracle.token_ids(), strict=True):
        found = {
            "role": list(mine.config.text_ids.role),
            "target": mine.tokenizer.encode(text),
            "reference": mine.tokenizer.encode(text),
            "instructions": mine.tokenizer.encode_instructions(text),
        }
        wrong += [(text, part) for part in found if list(found[part]) != official[part]]
    assert not wrong
