"""Both ends of ``qwen3tts.speech.v1`` without I/O.

Each end has four verbs: ``receive_data`` takes one WebSocket message, ``events_received`` returns
what it meant, the ``send_*`` methods say something, ``data_to_send`` returns the WebSocket messages
to write, in order. Nothing here waits, reads a clock or opens a socket.

Bad input never raises. The server answers it by an ``error`` message of its own; the client reports
a ``Violation``. The ``send_*`` methods raise ProtocolError when *this* side breaks the rules.
"""

from qwen3tts_wire.client_end import ClientProtocol
from qwen3tts_wire.endpoint import ClientEvent, ContextBroken, Data, ServerEvent, Violation
from qwen3tts_wire.server_end import ServerProtocol, error_info
from qwen3tts_wire.states import ContextState

__all__ = [
    "ClientEvent",
    "ClientProtocol",
    "ContextBroken",
    "ContextState",
    "Data",
    "ServerEvent",
    "ServerProtocol",
    "Violation",
    "error_info",
]
