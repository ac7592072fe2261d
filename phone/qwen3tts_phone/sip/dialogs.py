"""Which call a request inside a dialog is for, and which transfer a notice is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qwen3tts_phone.sip.dialog import Dialog, DialogId
from qwen3tts_phone.sip.message import Request

if TYPE_CHECKING:
    from qwen3tts_phone.sip.call import Call
    from qwen3tts_phone.sip.transfer import TransferCore


class DialogTable:
    """All dialogs of an agent: of calls, early ones included, and of transfers of ours."""

    def __init__(self) -> None:
        self._calls: dict[DialogId, tuple[Call, Dialog]] = {}
        self._transfers: dict[DialogId, list[TransferCore]] = {}

    def __len__(self) -> int:
        return len(self._calls) + len(self._transfers)

    def remember(self, call: Call, dialog: Dialog) -> None:
        """Requests inside the dialog are the call's."""
        if dialog not in call.dialogs:
            call.dialogs.append(dialog)
        self._calls[dialog.id] = (call, dialog)

    def find(self, call_id: str, local_tag: str, remote_tag: str) -> tuple[Call, Dialog] | None:
        """The call and dialog that a request is for."""
        return self._calls.get((call_id, local_tag, remote_tag))

    def has_call(self, call_id: str) -> bool:
        """Whether there is a dialog with that Call-ID."""
        return any(each[0] == call_id for each in (*self._calls, *self._transfers))

    def forget(self, call: Call) -> None:
        """The call has no dialog any more."""
        for dialog in call.dialogs:
            if self._calls.get(dialog.id, (None,))[0] is call:
                del self._calls[dialog.id]
        call.dialogs.clear()

    def watch(self, transfer: TransferCore) -> None:
        """Notices of a transfer of ours may come, even after the end of its call."""
        self._transfers.setdefault(transfer.dialog.id, []).append(transfer)

    def unwatch(self, transfer: TransferCore) -> None:
        """No more will come."""
        left = self._transfers.get(transfer.dialog.id, [])
        left.remove(transfer)
        if not left:
            del self._transfers[transfer.dialog.id]

    def transfer_of(self, request: Request, local_tag: str) -> TransferCore | None:
        """Which transfer of ours a notice is about (RFC 3515 section 2.4.6: by its ``id``)."""
        here = self._transfers.get((request.call_id, local_tag, request.from_.tag or ""), [])
        _, *parameters = (part.strip() for part in (request.get("Event") or "").split(";"))
        for parameter in parameters:
            name, _, number = parameter.partition("=")
            if name.strip().lower() == "id":
                return next((t for t in here if str(t.cseq) == number.strip()), None)
        return here[0] if here else None
