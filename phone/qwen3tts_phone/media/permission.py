"""Whether packets go on to a host that was only announced, and that nothing has come from (pure).

A caller may describe the address of somebody else for the sound, who would then be sent packets for
as long as the call lasts. So sending to such a host ends after a short time, until something comes
from it.
"""

from __future__ import annotations

LEG_S = 20.0
"""Seconds that one call may send to hosts of which nothing ever came, however often it names
another one."""
HOSTS_MOST = 64
"""Hosts remembered of which something came."""


class SendPermission:
    """One call's. Times are seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._host = ""
        self._since: float | None = None
        self._limit_s = 0.0
        self._used_s = 0.0
        self._confirmed: set[str] = set()

    def update(self, host: str, within_s: float, now: float) -> None:
        """Packets go to ``host`` from now on, for ``within_s`` seconds if nothing comes from it.

        0 = for any time.
        """
        self._stop(now)
        self._host = host
        if within_s > 0 and host not in self._confirmed:
            self._since = now
            self._limit_s = min(within_s, LEG_S - self._used_s)

    def heard(self, host: str, now: float) -> None:
        """Something has come from a host."""
        if len(self._confirmed) < HOSTS_MOST or host == self._host:
            self._confirmed.add(host)
        if host == self._host:
            self._stop(now)

    def aimed(self, host: str, now: float) -> None:
        """Packets go to the host that sound came from."""
        self._host = host
        self.heard(host, now)

    def is_given(self, now: float) -> bool:
        """Whether packets may go there now."""
        return self._since is None or now - self._since < self._limit_s

    def _stop(self, now: float) -> None:
        if self._since is not None:
            self._used_s = min(LEG_S, self._used_s + min(now - self._since, self._limit_s))
        self._since = None
