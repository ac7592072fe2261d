"""What can be wrong with audio that is handed to this package."""

from __future__ import annotations


class CodecError(ValueError):
    """Audio, a rate, a format or a duration that cannot be worked with; the text says which."""


class BadSamples(CodecError):
    """An array of the wrong type or shape, or bytes that are not whole samples."""


class UnsupportedRate(CodecError):
    """A sample rate, or a pair of rates, that is out of bounds."""


class UnsupportedPtime(CodecError):
    """A frame duration that is out of bounds or does not hold a whole number of samples."""


class UnknownPayload(CodecError):
    """A payload name or type that this package does not speak."""


class BadPayload(CodecError):
    """Bytes of a packet that are no frame of its payload format."""


class CodecMissing(CodecError):
    """A format whose library is not installed; the text says how to install it."""
