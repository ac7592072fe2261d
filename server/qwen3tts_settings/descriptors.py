"""How many files and sockets this process may hold open."""

from __future__ import annotations

import logging
import resource

log = logging.getLogger(__name__)

OTHER_FILES = 512
"""Pipes to workers, files of voices, of records and of the libraries."""


def raise_descriptor_limit(wanted: int) -> int:
    """Raise the soft limit of open descriptors as far as the hard one lets it; never lower it.

    Args:
        wanted: sockets and files that the work of this process needs.

    Returns:
        The soft limit that holds then.
    """
    wanted += OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    granted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if granted > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (granted, hard))
        except (OSError, ValueError):
            granted = soft
    if granted < wanted:
        log.warning(
            "%d files and sockets may be open, %d are needed at most: raise the hard limit "
            "(ulimit -Hn, LimitNOFILE)",
            granted,
            wanted,
        )
    return granted
