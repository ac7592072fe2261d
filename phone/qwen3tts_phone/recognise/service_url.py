"""Addresses of recognition services, as settings name them."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit


def check_service_url(
    url: str, schemes: tuple[str, ...], what: str, example: str, key_place: str
) -> SplitResult:
    """Return the parts of a service's address.

    Args:
        url: as it was set.
        schemes: those that the service is reached by.
        what: what the address leads to, for the error.
        example: how an address is written, for the error.
        key_place: where a key belongs, for the error.

    Raises:
        ValueError: it is no such address, or holds a password.
    """
    try:
        parts = urlsplit(url)
        good = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not close, a port that does not exist
        raise ValueError(f"url is no address; write {example}") from None
    if not good or parts.fragment:
        raise ValueError(f"url is no address of {what}; write {example}")
    if parts.username or parts.password:
        raise ValueError(f"url holds a password; put the key into {key_place} instead")
    return parts
