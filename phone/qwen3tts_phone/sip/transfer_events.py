"""What is told of a transfer (REFER, RFC 3515), ours and theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from qwen3tts_phone.sip.replaces import Replaces


@dataclass(frozen=True, slots=True)
class TransferProgress:
    """How far a transfer of ours has come, as the far end tells it.

    ``status`` is what the target answered: 100 to 199 while it goes on, then the final one.
    """

    status: int
    reason: str
    final: bool = False
    """Whether no more will follow."""


@dataclass(frozen=True, slots=True)
class ReferReceived:
    """The far end asks us to call somebody (REFER).

    One of ``accept()`` and ``refuse(status)`` within 20 s, else it is refused with 603. After
    ``accept``, ``notify(status, reason)`` tells the far end how the new call goes: 180 and the like
    any number of times, the final status once. All of them do nothing where it is too late;
    ``accept`` is False then, and nobody is to be called.
    """

    target: str
    """The URI to call."""
    referred_by: str | None
    """Who sends us there (Referred-By, RFC 3892), as a URI; nobody has checked it."""
    replaces: Replaces | None
    """The dialog at the target that our call is to replace: an INVITE with the header
    ``Replaces: {replaces.value}``."""
    accept: Callable[[], bool] = field(repr=False)
    refuse: Callable[[int], None] = field(repr=False)
    notify: Callable[[int, str], None] = field(repr=False)
