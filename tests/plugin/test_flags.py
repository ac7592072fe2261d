from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mr_qwen3tts.host_turn import InterruptedTurn, cancelled, finishing


def context(**flags: bool) -> Any:
    return SimpleNamespace(data=flags)


@pytest.mark.parametrize("nothing", [None, SimpleNamespace(), SimpleNamespace(data=None)])
def test_what_has_no_flags_is_not_cancelled(nothing: Any) -> None:
    assert not cancelled(nothing)
    assert not finishing(nothing)
    turn = InterruptedTurn()
    turn.note(nothing)
    assert not turn.goes_on(nothing)


def test_a_turn_that_ends_the_talk_is_finishing_and_not_cancelled() -> None:
    ending = context(finished_conversation=True)
    assert not cancelled(ending)
    assert finishing(ending)
    assert finishing(context(cancel_current_turn=True))
    assert not finishing(context(cancel_current_turn=False))


def test_an_interrupted_turn_goes_on_until_a_new_one_sets_the_flag_anew() -> None:
    here, turn = context(cancel_current_turn=True), InterruptedTurn()
    turn.note(here)
    del here.data["cancel_current_turn"]
    assert turn.goes_on(here)
    assert not turn.goes_on(context())
    here.data["cancel_current_turn"] = False
    assert not turn.goes_on(here)
    del here.data["cancel_current_turn"]
    assert not turn.goes_on(here), "the next turn is another one"
