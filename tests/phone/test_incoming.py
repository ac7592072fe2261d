from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from qwen3tts_phone.call.incoming import RETRY_AFTER_S, refuse_with_retry_after
from qwen3tts_phone.errors import WrongState


class Sip:
    """A call that came in, as far as it is refused."""

    def __init__(self, over: bool = False) -> None:
        self.refused: tuple[int, dict[str, str]] | None = None
        self._over = over

    async def reject(
        self, status: int = 486, reason: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        if self._over:
            raise WrongState("The call is over.")
        self.refused = status, dict(headers or {})


async def test_a_call_for_which_nothing_is_free_is_told_when_to_come_again() -> None:
    sip = Sip()
    await refuse_with_retry_after(cast(Any, sip))
    assert sip.refused == (503, {"Retry-After": str(RETRY_AFTER_S)})


async def test_a_call_that_is_over_is_not_refused_again() -> None:
    sip = Sip(over=True)
    await refuse_with_retry_after(cast(Any, sip))
    assert sip.refused is None
