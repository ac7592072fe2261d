"""Printed events of a call: notes for people, DTMF digits as results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qwen3tts_cli.output.console import note, result

if TYPE_CHECKING:
    from qwen3tts_phone.call.call import CallEvent
    from qwen3tts_phone.phone import Call


async def print_events(call: Call) -> None:
    async for event in call.events:
        print_event(event)


def print_event(event: CallEvent) -> None:
    from qwen3tts_phone.audio.frames import KeyPressed
    from qwen3tts_phone.call import events
    from qwen3tts_phone.call.call import CallTransferred, TransferAsked

    match event:
        case events.CallRinging():
            note("It rings.")
        case events.CallForwarded():
            note("The call is being forwarded.")
        case events.CallQueued():
            note("The call is queued.")
        case events.CallEarlyMedia():
            note("Early media: audio before the answer.")
        case events.CallAnswered(codec=codec):
            note(f"Answered ({codec}).")
        case events.AnswererHeard(kind="machine"):
            note("An answering machine has answered.")
        case events.CodecChanged(codec=codec):
            note(f"The codec is now {codec}.")
        case KeyPressed(digit=digit):
            result(f"key {digit}")
        case events.CallHeld():
            note("On hold: speech waits.")
        case events.CallResumed():
            note("Off hold.")
        case events.MediaSilent(silent_s=silent_s, ever=ever):
            so_far = "" if ever else " so far"
            note(f"No audio received for {silent_s:.0f} s{so_far}.")
        case events.TransferProgress(status=status, reason=reason):
            note(f"Transfer: {status} {reason}".rstrip() + ".")
        case TransferAsked(target=target, refuse=refuse):
            note(f"The far end requests a call to {target}; refused: it cannot be confirmed here.")
            refuse()
        case CallTransferred():
            note("The far end has transferred the call.")
        case _:
            pass


def print_audio_failures(call: Call) -> None:
    """Print audio failures; nothing for a call without any."""
    from qwen3tts_phone.diagnosis.diagnose import diagnose

    for finding in diagnose(call.facts):
        if finding.severe:
            note(f"{finding.words} {finding.remedy}".rstrip())
