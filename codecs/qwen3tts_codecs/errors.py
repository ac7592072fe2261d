"""Errors of this package."""

from __future__ import annotations


class CodecError(ValueError):
    """Invalid audio, rate, format or duration."""


class BadSamples(CodecError):
    """Array of wrong type or shape, or incomplete samples."""


class UnsupportedRate(CodecError):
    """Sample rate, or pair of rates, out of bounds."""


class UnsupportedPtime(CodecError):
    """Frame duration out of bounds, or not a whole number of samples."""


class UnknownPayload(CodecError):
    """Unknown payload name or type."""


class BadPayload(CodecError):
    """Bytes that are no frame of the payload format."""


class CodecMissing(CodecError):
    """Format whose library is not installed."""
