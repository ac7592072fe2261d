"""Audio between the engine and the wire: resampling, G.711, G.722, Opus, framing."""

from qwen3tts_codecs.coder import Decoder, Encoder
from qwen3tts_codecs.errors import (
    BadPayload,
    BadSamples,
    CodecError,
    CodecMissing,
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
from qwen3tts_codecs.opus import OpusSettings
from qwen3tts_codecs.payload import (
    G722,
    L16,
    OPUS,
    PCMA,
    PCMU,
    Payload,
    l16,
    opus,
    payload_by_name,
    payload_by_type,
    slin,
)
from qwen3tts_codecs.pcm import Int16Reader, Pcm, PcmBytes, from_bytes, to_bytes
from qwen3tts_codecs.resample import Resampler

__all__ = [
    "ALAW_SILENCE",
    "BadPayload",
    "BadSamples",
    "CodecError",
    "CodecMissing",
    "Decoder",
    "EncodedFrame",
    "Encoder",
    "FrameEncoder",
    "Framer",
    "G722",
    "Int16Reader",
    "L16",
    "LastFrame",
    "OPUS",
    "OpusSettings",
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
    "opus",
    "payload_by_name",
    "payload_by_type",
    "slin",
    "to_bytes",
]
