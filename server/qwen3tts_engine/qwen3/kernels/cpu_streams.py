"""Streams on a CPU: the engine's thread for frames, a worker thread for sound.

The worker carries its work out in order. What it reads exists when it is launched: the engine's
thread makes frames synchronously.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from qwen3tts_engine.qwen3.kernels.cpu_threads import ThreadPlan
from qwen3tts_engine.qwen3.kernels.step_runner import DecodeFault, ReadyTicket, Results, Ticket

Made = TypeVar("Made")


def set_threads(count: int) -> None:
    # At its first parallel work a thread takes the number set last in any thread, unless it has
    # asked for it before.
    torch.get_num_threads()
    torch.set_num_threads(count)


class CpuThreadStreams:
    """Streams whose ``sound`` is a thread; called from one thread.

    A work that raises ends its ``on("sound")`` block, whose tickets raise DecodeFault. Later
    blocks run.
    """

    def __init__(self, device: torch.device, plan: ThreadPlan) -> None:
        self.device = device
        self._plan = plan
        self._shares = (0, 0)
        self._sound = ThreadPoolExecutor(1, thread_name_prefix="qwen3 codec")
        self._block: _Block | None = None
        self._last: _Pending | None = None
        """Newest work of the thread."""
        self._ticket: _ThreadTicket | None = None
        """Newest one."""
        self._alone = True
        """True if it followed no other that was pending."""
        self.share(1)
        self.synchronize()
        # Threads that start later take what was set last, in any thread.
        set_threads(self._shares[0])

    def share(self, rows: int) -> None:
        shares = self._plan.shares(rows)
        if shares == self._shares:
            return
        self._shares = shares
        self._last = self._sound.submit(set_threads, shares[1])
        set_threads(shares[0])

    @contextmanager
    def on(self, stream: str) -> Iterator[None]:
        before = self._block
        self._block = _Block() if stream == "sound" else None
        try:
            yield
        finally:
            self._block = before

    def run(self, work: Callable[[], None]) -> None:
        self._launch(work)

    def upload(self, values: Sequence[Sequence[int]], to: Tensor) -> None:
        self._launch(lambda: to.copy_(torch.tensor(values)))

    def download(self, tensor: Tensor) -> Ticket:
        if self._block is None:
            return ReadyTicket(tensor.clone().numpy())
        self._alone = self._ticket is None or self._ticket.ready
        self._ticket = _ThreadTicket(self._launch(lambda: tensor.clone().numpy()))
        return self._ticket

    def record_event(self) -> _ThreadEvent:
        return _ThreadEvent(self._last if self._block is not None else None)

    def wait_event(self, event: object) -> None:
        if self._block is None:
            assert isinstance(event, _ThreadEvent)
            event.wait()

    def await_first(self, ticket: Ticket) -> None:
        if self._alone and ticket is self._ticket:
            self._ticket.settle()

    def record_use(self, tensors: Sequence[Tensor]) -> None: ...

    def synchronize(self) -> None:
        _settle(self._last)

    def close(self) -> None:
        self._sound.shutdown(wait=True, cancel_futures=True)

    def _launch(self, work: Callable[[], Made]) -> Future[Made]:
        block = self._block
        if block is None:
            done: Future[Made] = Future()
            done.set_result(work())
            return done
        launched: Future[Made] = self._sound.submit(block.carry_out, work)
        self._last = launched
        return launched


class _Pending(Protocol):
    def done(self) -> bool: ...

    def cancelled(self) -> bool: ...

    def exception(self) -> BaseException | None: ...


class _Block:
    """Works launched together; none runs behind one that raised."""

    def __init__(self) -> None:
        self._fault: DecodeFault | None = None

    @torch.no_grad()
    def carry_out(self, work: Callable[[], Made]) -> Made:
        if self._fault is not None:
            raise self._fault
        try:
            return work()
        except Exception as error:
            self._fault = DecodeFault(f"{type(error).__name__} in the codec's thread")
            raise self._fault from error


class _ThreadEvent:
    def __init__(self, work: _Pending | None) -> None:
        self._work = work

    def query(self) -> bool:
        return self._work is None or self._work.done()

    def wait(self) -> None:
        _settle(self._work)


class _ThreadTicket:
    def __init__(self, work: Future[Results]) -> None:
        self._work = work

    @property
    def ready(self) -> bool:
        return self._work.done()

    def wait(self) -> Results:
        return self._work.result()

    def settle(self) -> None:
        _settle(self._work)


def _settle(work: _Pending | None) -> None:
    if work is not None and not work.cancelled():
        work.exception()
