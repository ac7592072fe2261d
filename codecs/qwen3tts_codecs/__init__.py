"""Audio codecs, resampling and framing."""

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
from qwen3tts_codecs.g711 import (
    ALAW_SILENCE,
    PCMA,
    PCMU,
    ULAW_SILENCE,
    decode_alaw,
    decode_ulaw,
    encode_alaw,
    encode_ulaw,
)
from qwen3tts_codecs.g722 import G722
from qwen3tts_codecs.l16 import L16, l16, slin
from qwen3tts_codecs.opus import OPUS, OpusSettings, opus
from qwen3tts_codecs.payload import CodecRating, CodecSpec, Decoder, Encoder, Payload
from qwen3tts_codecs.pcm import Framer, Int16Reader, LastFrame, Pcm, PcmBytes, from_bytes, to_bytes
from qwen3tts_codecs.resample import Resampler
from qwen3tts_codecs.table import CODECS, payload_by_name, payload_by_type

__all__ = [
    "ALAW_SILENCE",
    "BadPayload",
    "BadSamples",
    "CODECS",
    "CodecError",
    "CodecMissing",
    "CodecRating",
    "CodecSpec",
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
