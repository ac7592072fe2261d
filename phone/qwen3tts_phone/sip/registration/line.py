"""Account in use: registration and keepalive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from qwen3tts_phone.errors import CallError
from qwen3tts_phone.sip.core.account import Account, AccountCredentials
from qwen3tts_phone.sip.message.network import Hop
from qwen3tts_phone.sip.registration.keepalive import Keepalive
from qwen3tts_phone.sip.registration.registration import RegistrationCore, RegistrationState

LineState = Literal[
    "registered", "registering", "not registered", "reachable", "unreachable", "unknown"
]
EventKind = Literal["registered", "registration_lost", "reachable", "unreachable", "server_changed"]


@dataclass(frozen=True, slots=True)
class AccountEvent:
    name: str
    """Name of the account."""
    kind: EventKind
    words: str
    at: float
    """Seconds of the endpoint's clock."""


class Registration:
    """Registration, refreshed until ``unregister``."""

    def __init__(
        self,
        core: RegistrationCore,
        now: Callable[[], float],
        flush: Callable[[], None],
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        self._core = core
        self._now = now
        self._flush = flush
        self._also = moved
        self._moved = asyncio.Event()
        core.changed = self._on_move

    @property
    def state(self) -> RegistrationState:
        """State; after RETRYING see ``error``."""
        return self._core.state

    @property
    def error(self) -> CallError | None:
        return self._core.error

    @property
    def granted_s(self) -> int:
        return self._core.granted_s

    @property
    def expires_at(self) -> float | None:
        """End of the binding, endpoint clock seconds."""
        return self._core.expires_at

    @property
    def server(self) -> str:
        """Registrar used last: ``192.0.2.1:5060 over UDP``."""
        hop = self._core.hop
        return hop.at if hop is not None else ""

    @property
    def bound(self) -> bool:
        return self._core.is_bound(self._now())

    async def registered(self) -> None:
        await self._until(RegistrationState.REGISTERED, RegistrationState.ENDED)
        if self._core.state is RegistrationState.ENDED and self._core.error is not None:
            raise self._core.error

    async def refreshed(self) -> None:
        """Wait until the binding is granted again or has ended."""
        grants = self._core.grants
        while self._core.grants == grants and self._core.state is not RegistrationState.ENDED:
            self._moved.clear()
            await self._moved.wait()

    async def unregister(self) -> None:
        self._core.stop(self._now())
        self._flush()
        await self._until(RegistrationState.ENDED)
        if self._core.error is not None:
            raise self._core.error

    def _on_move(self) -> None:
        self._moved.set()
        self._also()

    async def _until(self, *states: RegistrationState) -> None:
        while self._core.state not in states:
            self._moved.clear()
            await self._moved.wait()


class Line:
    """Account in use; made by :meth:`SipEndpoint.add`."""

    def __init__(
        self,
        account: Account,
        now: Callable[[], float],
        tell: Callable[[AccountEvent], None],
        credentials: AccountCredentials,
    ) -> None:
        self.account = account
        self.credentials = credentials
        """Challenge policy with servers and realms."""
        self.registration: Registration | None = None
        """None for a trunk."""
        self.core: RegistrationCore | None = None
        self.keepalive: Keepalive | None = None
        self.hops: tuple[Hop, ...] = ()
        """Servers of the last look-up, best first."""
        self.look_at = 0.0
        """Time of the next look-up, seconds."""
        self._now = now
        self._tell = tell
        self._was_bound = False
        self._was_at = ""

    @property
    def name(self) -> str:
        return self.account.name

    @property
    def state(self) -> LineState:
        if self.reachable is False:
            return "unreachable"
        if self.core is not None:
            if self.core.is_bound(self._now()):
                return "registered"
            waiting = (RegistrationState.REGISTERING, RegistrationState.REFRESHING)
            return "registering" if self.core.state in waiting else "not registered"
        return "unknown" if self.reachable is None else "reachable"

    @property
    def ready(self) -> bool:
        """True if calls can go out, as far as known."""
        if self.core is not None and not self.core.is_bound(self._now()):
            return False
        return self.reachable is not False

    @property
    def reachable(self) -> bool | None:
        """Keepalive result; None: unknown."""
        return self.keepalive.reachable if self.keepalive is not None else None

    @property
    def round_trip_s(self) -> float | None:
        return self.keepalive.round_trip_s if self.keepalive is not None else None

    @property
    def hop(self) -> Hop | None:
        if self.core is not None and self.core.hop is not None:
            return self.core.hop
        if self.keepalive is not None and self.keepalive.hop is not None:
            return self.keepalive.hop
        return self.hops[0] if self.hops else None

    @property
    def server(self) -> str:
        """Server in use: ``192.0.2.1:5060 over UDP``; empty before the first look-up."""
        hop = self.hop
        return hop.at if hop is not None else ""

    @property
    def error(self) -> CallError | None:
        if self.core is not None and self.core.error is not None:
            return self.core.error
        return self.keepalive.error if self.keepalive is not None else None

    @property
    def words(self) -> str:
        where = f" at {self.server}" if self.server else ""
        wrong = f": {self.error}" if self.error is not None else ""
        unknown = "not asked yet" if self.account.keepalive_s else "not watched (no keepalive)"
        state = unknown if self.state == "unknown" else self.state
        return f"{self.name}: {state}{where}{wrong}"

    def registration_moved(self) -> None:
        core = self.core
        if core is None:
            return
        if core.state is RegistrationState.REGISTERED:
            at = self.server
            if not self._was_bound:
                self._say("registered", f"{self.name} is registered at {at}.")
            elif at != self._was_at:
                self._say("server_changed", f"{self.name} is now registered at {at}.")
            self._was_bound, self._was_at = True, at
        elif core.state is RegistrationState.RETRYING and self._was_bound:
            self._was_bound = False
            self._say("registration_lost", f"{self.name} could not be refreshed: {core.error}")

    def keepalive_changed(self) -> None:
        if self.reachable:
            self._say("reachable", f"{self.name} can be reached at {self.server}.")
        elif self.keepalive is not None:
            self._say("unreachable", f"{self.name} cannot be reached: {self.keepalive.error}")

    def _say(self, kind: EventKind, words: str) -> None:
        self._tell(AccountEvent(self.name, kind, words, self._now()))
