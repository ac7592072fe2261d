"""Audio between the engine and the wire: resampling, G.711, framing."""

from qwen3tts_codecs.errors import (
    BadSamples,
    CodecError,
    UnknownPayload,
    UnsupportedPtime,
    UnsupportedRate,
)
from qwen3tts_codecs.frames import EncodedFrame, FrameEncoder
from qwen3tts_codecs.framing import Framer, LastFrame
from qwen3tts_codecs.g711 import (
    ALAW_SILENCE,
    ULAW_SILENCE,
    decode_alaw,
    decode_ulaw,
    encode_alaw,
    encode_ulaw,
)
from qwen3tts_codecs.payload import (
    L16,
    PCMA,
    PCMU,
    Payload,
    l16,
    payload_by_name,
    payload_by_type,
)
from qwen3tts_codecs.pcm import Int16Reader, Pcm, PcmBytes, from_bytes, to_bytes
from qwen3tts_codecs.resample import Resampler

__all__ = [
    "ALAW_SILENCE",
    "BadSamples",
    "CodecError",
    "EncodedFrame",
    "FrameEncoder",
    "Framer",
    "Int16Reader",
    "L16",
    "LastFrame",
    "PCMA",
    "PCMU",
    "Payload",
    "Pcm",
    "PcmBytes",
    "Resampler",
    "ULAW_SILENCE",
    "UnknownPayload",
    "UnsupportedPtime",
    "UnsupportedRate",
    "decode_alaw",
    "decode_ulaw",
    "encode_alaw",
    "encode_ulaw",
    "from_bytes",
    "l16",
    "payload_by_name",
    "payload_by_type",
    "to_bytes",
]
