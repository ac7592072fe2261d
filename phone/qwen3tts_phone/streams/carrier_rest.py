"""What a carrier does to a call only by its REST interface: end it, hand it on, press keys.

Small clients over httpx, one for each carrier. They are made with keys that are given or stand in
the environment, follow no redirects, and never show a key: not in errors, not in `repr`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape

from qwen3tts_phone.errors import CallError

TIMEOUT_S = 10.0


class CarrierRefused(CallError):
    """The carrier's interface did not do what it was asked; ``status`` is its HTTP status, or None
    where no answer came."""

    def __init__(self, message: str, *, remedy: str = "", status: int | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.status = status


@dataclass(frozen=True, slots=True)
class TwilioRest:
    """Twilio's Calls resource (2010-04-01)."""

    account_sid: str
    auth_token: str = field(repr=False)
    api_url: str = "https://api.twilio.com"
    transport: Any = field(default=None, repr=False)
    """An ``httpx.AsyncBaseTransport`` in place of the network, in tests."""

    async def hang_up(self, call_id: str) -> None:
        """End the call; one that is over already is no error. Raises CarrierRefused."""
        await self._update(call_id, {"Status": "completed"}, over=(404,))

    async def transfer(self, call_id: str, target: str) -> None:
        """Hand the call on to a number, or a SIP address. Raises CarrierRefused."""
        kind = "Sip" if target.lower().startswith(("sip:", "sips:")) else "Number"
        number = target.removeprefix("tel:")
        twiml = f"<Response><Dial><{kind}>{escape(number)}</{kind}></Dial></Response>"
        await self._update(call_id, {"Twiml": twiml})

    async def _update(self, call_id: str, form: dict[str, str], over: tuple[int, ...] = ()) -> None:
        url = f"{self.api_url}/2010-04-01/Accounts/{_part(self.account_sid)}/Calls/{_part(call_id)}"
        basic = (self.account_sid, self.auth_token)
        await _asked(self, "Twilio", "POST", f"{url}.json", over, data=form, auth=basic)


@dataclass(frozen=True, slots=True)
class TelnyxRest:
    """Telnyx' Call Control commands (v2)."""

    api_key: str = field(repr=False)
    api_url: str = "https://api.telnyx.com"
    transport: Any = field(default=None, repr=False)
    """See `TwilioRest.transport`."""

    async def hang_up(self, call_id: str) -> None:
        """End the call; one that is over already is no error. Raises CarrierRefused."""
        # 422 with code 90018: the call has already ended.
        await self._command(call_id, "hangup", {}, over=(404, 422))

    async def transfer(self, call_id: str, target: str) -> None:
        """Hand the call on to a number, or a SIP address. Raises CarrierRefused."""
        await self._command(call_id, "transfer", {"to": target.removeprefix("tel:")})

    async def press(self, call_id: str, digits: str) -> None:
        """Press keys. Raises CarrierRefused."""
        await self._command(call_id, "send_dtmf", {"digits": digits})

    async def _command(
        self, call_id: str, name: str, body: dict[str, str], over: tuple[int, ...] = ()
    ) -> None:
        url = f"{self.api_url}/v2/calls/{_part(call_id)}/actions/{name}"
        bearer = {"Authorization": f"Bearer {self.api_key}"}
        await _asked(self, "Telnyx", "POST", url, over, json=body, headers=bearer)


@dataclass(frozen=True, slots=True)
class PlivoRest:
    """Plivo's Call resource (v1)."""

    auth_id: str
    auth_token: str = field(repr=False)
    api_url: str = "https://api.plivo.com"
    transport: Any = field(default=None, repr=False)
    """See `TwilioRest.transport`."""

    async def hang_up(self, call_id: str) -> None:
        """End the call; one that is over already is no error. Raises CarrierRefused."""
        url = f"{self.api_url}/v1/Account/{_part(self.auth_id)}/Call/{_part(call_id)}/"
        basic = (self.auth_id, self.auth_token)
        await _asked(self, "Plivo", "DELETE", url, (404,), auth=basic)


def _part(text: str) -> str:
    """One part of a path; a name from outside must not become another path."""
    if not text or text in (".", ".."):
        raise CarrierRefused("The call has no id that the carrier's interface could be asked with.")
    return quote(text, safe="")


async def _asked(
    rest: TwilioRest | TelnyxRest | PlivoRest,
    whose: str,
    method: str,
    url: str,
    over: tuple[int, ...] = (),
    **request: Any,
) -> None:
    """Ask; ``over``: statuses that say there is no such call any more."""
    try:
        import httpx
    except ImportError:
        raise CarrierRefused(
            f"{whose}'s interface needs the httpx package.",
            remedy='Install it with: pip install "mr_qwen3tts[phone]"',
        ) from None
    try:
        async with httpx.AsyncClient(timeout=TIMEOUT_S, transport=rest.transport) as http:
            response = await http.request(method, url, **request)
    except httpx.HTTPError as error:
        raise CarrierRefused(
            f"{whose}'s interface cannot be reached: {type(error).__name__}.",
            remedy="Check the network; the stream is closed in any case.",
        ) from None
    if response.is_success or response.status_code in over:
        return
    remedy = "Its own log of the call says more."
    if response.status_code in (401, 403):
        remedy = "Check the account's id and key; they belong to one region and one account."
    raise CarrierRefused(
        f"{whose}'s interface answered {response.status_code}.",
        remedy=remedy,
        status=response.status_code,
    )
