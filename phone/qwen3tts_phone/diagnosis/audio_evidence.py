"""Evidence for the diagnosis of a call's audio."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from qwen3tts_phone.facts import Address, CallFacts, MediaFacts
from qwen3tts_phone.media.source import PAUSE_S
from qwen3tts_phone.media.stats import LegStats
from qwen3tts_phone.sdp.addresses import AddressScope, address_scope, same_address

SHORT_S: Final = 1.0
"""A call shorter than this says nothing about its media."""
ENOUGH_PACKETS: Final = 50
"""Fewer packets say nothing about loss, jitter or silence."""
_SCOPES: Final = {
    AddressScope.MACHINE: "the machine's own loopback address",
    AddressScope.LINK: "the link-local address",
    AddressScope.PRIVATE: "the private address",
}


@dataclass(frozen=True, slots=True)
class AudioEvidence:
    facts: CallFacts

    @property
    def media(self) -> MediaFacts:
        return self.facts.media

    @property
    def stats(self) -> LegStats:
        assert self.facts.media.stats is not None
        return self.facts.media.stats

    @property
    def lasted_s(self) -> float:
        if self.facts.answered_at is None or self.facts.ended_at is None:
            return SHORT_S
        return self.facts.ended_at - self.facts.answered_at

    @property
    def no_audio_came(self) -> bool:
        return self.facts.first_rtp_in_at is None

    @property
    def only_silence_came(self) -> bool:
        return self.media.loud_in_s is not None and self.media.loud_in_s <= 0.0

    @property
    def heard(self) -> bool:
        return self.stats.received > 0

    @property
    def sent(self) -> bool:
        return self.stats.sent > 0

    @property
    def held_by_address(self) -> bool:
        """Hold by an unspecified address (RFC 3264 section 8.4)."""
        remote = self.media.remote
        return remote is not None and address_scope(remote[0]) is AddressScope.NOWHERE

    @property
    def nothing_either_way(self) -> bool:
        open_both_ways = self.media.send and self.media.receive and not self.held_by_address
        return open_both_ways and not (self.heard or self.sent)

    @property
    def audio_expected(self) -> bool:
        """True if nothing was heard though the far end may send."""
        held = self.held_by_address or not self.media.receive
        return not (self.heard or held or self.nothing_either_way or self.stats.srtp_failed)

    @property
    def source(self) -> Address | None:
        return self.media.source or self.stats.remote_address

    @property
    def hidden_local(self) -> str:
        return self._hidden(self.media.local)

    @property
    def hidden_remote(self) -> str:
        return self._hidden(self.media.remote)

    def _hidden(self, address: Address | None) -> str:
        if address is None or not self.media.peer_host:
            return ""
        described, peer = address_scope(address[0]), address_scope(self.media.peer_host)
        if described is None or peer is None or described is AddressScope.NOWHERE:
            return ""
        return f"{_SCOPES[described]} {address[0]}" if described < peer else ""

    @property
    def private_remote(self) -> str:
        media = self.media
        quiet = self.sent and not self.heard and self.source is None and not media.unconfirmed
        if not quiet or media.remote is None or not media.peer_host:
            return ""
        described, peer = address_scope(media.remote[0]), address_scope(media.peer_host)
        if described is None or peer is None or same_address(media.remote[0], media.peer_host):
            return ""
        if not AddressScope.NOWHERE < described < AddressScope.PUBLIC:
            return ""
        verb = "cannot" if described < peer else "may not"
        address = f"{_SCOPES[described]} {media.remote[0]}"
        return f"{address} for its sound, which {verb} be reached from here"

    @property
    def sends_to_remote(self) -> bool:
        return self.sent and not self.private_remote

    @property
    def port(self) -> str:
        return f" (UDP port {self.media.local[1]})" if self.media.local else ""

    @property
    def remote_port(self) -> str:
        remote = self.media.remote
        return f"{remote[0]} port {remote[1]}" if remote else "its machine"

    @property
    def remote_host(self) -> str:
        return self.media.remote[0] if self.media.remote else ""

    @property
    def source_host(self) -> str:
        return self.source[0] if self.source else ""

    @property
    def reports_mention_us(self) -> bool:
        stats = self.stats
        seen = stats.round_trip_ms is not None or stats.remote_jitter_ms or stats.remote_lost
        return bool(seen) or stats.rtcp_in < 2 or stats.rtcp_out < 2

    @property
    def moved_away(self) -> bool:
        """True if another source was refused after the last accepted packet."""
        refused, last = self.media.refused, self.stats.last_received_at
        return refused is not None and last is not None and refused.at - last >= PAUSE_S

    @property
    def refused_host(self) -> str:
        return self.media.refused.source[0] if self.media.refused is not None else ""

    @property
    def suite(self) -> str:
        return f" ({self.media.srtp})" if self.media.srtp else ""

    @property
    def due(self) -> int:
        stats = self.stats
        return stats.received - stats.duplicates - stats.late + stats.lost

    @property
    def loss_in(self) -> float:
        return self.stats.lost / self.due if self.due >= ENOUGH_PACKETS else 0.0

    @property
    def odd_kinds(self) -> str:
        most = sorted(self.facts.odd.items(), key=lambda each: -each[1])
        return ", ".join(f"{what} ({count})" for what, count in most[:3])
