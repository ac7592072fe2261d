"""Where the softphone's page is: its address, as text and as a picture for a phone's camera."""

from __future__ import annotations

import io
import threading
import webbrowser
from typing import TYPE_CHECKING

from qwen3tts_cli.exits import needs
from qwen3tts_cli.output import note, notes, results
from qwen3tts_cli.serving.running import is_loopback
from qwen3tts_cli.telephone import local_address

if TYPE_CHECKING:
    from qwen3tts_phone.softphone.server import Softphone


def tell_softphone(softphone: Softphone, *, open_it: bool = False) -> None:
    """Say where it is. Standard output gets the address alone, for whoever reads it by a program.

    ``open_it``: show it in this machine's browser.
    """
    host = softphone.settings.host
    note("The softphone is ready. Open this address; its end is the access token:")
    results().print(softphone.url, markup=False)
    if is_loopback(host):
        note(f"Only this machine can open it. For others: --host {local_address()}")
    else:
        note("With a phone's camera:")
        notes().print(qr_code(softphone.url), highlight=False, markup=False)
    certificate = softphone.certificate
    if certificate is not None and not certificate.own:
        note(
            "The browser warns once, since the certificate is signed by itself: go on if its"
            f" SHA-256 fingerprint is {certificate.fingerprint}."
        )
    if open_it:  # a browser in the terminal returns only at its end
        threading.Thread(target=_browse, args=(softphone.url,), name="browser", daemon=True).start()


def _browse(url: str) -> None:
    if not webbrowser.open(url):
        note("No browser could be started here; open the address by hand.")


def qr_code(text: str) -> str:
    """A QR code for a terminal, in half blocks; raises MissingExtra."""
    with needs("webrtc"):
        import segno
    out = io.StringIO()
    segno.make(text, error="l").terminal(out, compact=True)
    return out.getvalue()
