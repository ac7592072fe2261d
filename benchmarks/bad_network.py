"""A bad network: two namespaces with `tc netem`, or a relay on the loopback in its own process.

Also the tests with real peers run on it (tests/peers/impair.py); it needs no package but the phone.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import json
import os
import random
import select
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from qwen3tts_phone.media import rtp

HOST = "127.0.0.1"
NAMESPACES = (("impair-a", "10.213.0.1"), ("impair-b", "10.213.0.2"))
OVERTAKEN_S = 0.03
"""Extra delay of a packet that others overtake."""


@dataclass(frozen=True)
class Trouble:
    """Impairments of a path."""

    name: str
    loss: float = 0.0
    """Share of the packets that never come."""
    jitter_s: float = 0.0
    """Greatest delay of a packet, evenly spread; packets may overtake each other."""
    drift_ppm: float = 0.0
    """Slowness of the sender's clock."""
    codec: str = "PCMU"
    twice: float = 0.0
    """Share of the packets that come twice."""
    overtaken: float = 0.0
    """Share of the packets that are `OVERTAKEN_S` late, beside the jitter."""


class Fate:
    """Fate of each packet of one flow, by a fixed seed."""

    def __init__(self, trouble: Trouble, seed: int) -> None:
        self._trouble = trouble
        self._chance = random.Random(seed)
        self._begun: float | None = None

    def times(self, now: float, *, losable: bool = True) -> list[float]:
        """Times at which a packet that comes ``now`` goes on: never, once or twice."""
        trouble, chance = self._trouble, self._chance.random
        self._begun = now if self._begun is None else self._begun
        lost, late = chance() < trouble.loss, chance() * trouble.jitter_s
        at = now + late + (now - self._begun) * trouble.drift_ppm * 1e-6
        if trouble.overtaken and chance() < trouble.overtaken:
            at += OVERTAKEN_S
        again = bool(trouble.twice) and chance() < trouble.twice
        if lost and losable:
            return []
        return [at, at + chance() * OVERTAKEN_S] if again else [at]


class Flow:
    """Input at one socket, and its destination."""

    def __init__(self, sock: socket.socket, plan: dict[str, Any], number: int) -> None:
        self.sock = sock
        self.fate = Fate(Trouble(**plan["trouble"]), plan.get("seed", number))
        self.port: int = plan.get("port", 0)
        """0 = nowhere yet."""
        self.leaves_by: int = plan.get("leaves_by", number)
        """Number of the flow whose socket it leaves by."""
        self.came = self.lost = 0


def relay(plan: dict[str, Any]) -> None:
    """Drop and delay RTP as ``plan["flows"]`` says; it ends with its input.

    The flows' ports are printed first. A line of its input, JSON, changes something: ``{"flow": 0,
    "port": 4000}`` where a flow goes on to, ``{"silent_s": 2}`` that nothing passes meanwhile. At
    the end it prints the packets of each flow that came and those that were lost. RTCP is delayed
    and never lost, but for the silence. ``plan["pairs"]``: each two flows are RTP and RTCP, on
    ports that follow upon each other.
    """
    with contextlib.suppress(OSError):  # where that is allowed, its own lateness is not measured
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    sockets = bound(len(plan["flows"]), pairs=plan.get("pairs", False))
    flows = [
        Flow(sock, each, number)
        for number, (sock, each) in enumerate(zip(sockets, plan["flows"], strict=True))
    ]
    print(json.dumps([sock.getsockname()[1] for sock in sockets]), flush=True)
    due: list[tuple[float, int, Flow, bytes]] = []
    order = itertools.count()
    by_handle = {flow.sock.fileno(): flow for flow in flows}
    told = sys.stdin.fileno()
    poll = select.poll()
    for handle in (*by_handle, told):
        poll.register(handle, select.POLLIN)
    silent_until = 0.0
    while True:
        wait = max(0.0, due[0][0] - time.monotonic()) if due else 1.0
        for handle, _ in poll.poll(int(wait * 1000)):
            now = time.monotonic()
            if handle == told:
                lines = os.read(told, 65536)
                if not lines:
                    print(json.dumps([(flow.came, flow.lost) for flow in flows]), flush=True)
                    return
                for change in map(json.loads, lines.splitlines()):
                    silent_until = max(silent_until, now + change.get("silent_s", 0.0))
                    if "flow" in change:
                        flows[change["flow"]].port = change["port"]
                continue
            flow = by_handle[handle]
            data = flow.sock.recv(2048)
            times = flow.fate.times(now, losable=len(data) >= 12 and not rtp.is_rtcp(data))
            flow.came += 1
            if not times or now < silent_until or not flow.port:
                flow.lost += 1
                continue
            for at in times:
                heapq.heappush(due, (at, next(order), flow, data))
        while due and due[0][0] <= time.monotonic() + 0.0005:
            _, _, flow, data = heapq.heappop(due)
            flows[flow.leaves_by].sock.sendto(data, (HOST, flow.port))


def bound(count: int, *, pairs: bool) -> list[socket.socket]:
    """Sockets of the loopback, any ports; in pairs, an even port and the one above it."""
    sockets: list[socket.socket] = []
    for _ in range(1000):
        if len(sockets) == count:
            return sockets
        sock = _udp(0)
        port = sock.getsockname()[1]
        if not pairs:
            sockets.append(sock)
            continue
        with contextlib.suppress(OSError):
            if port % 2 == 0:
                sockets += [sock, _udp(port + 1)]
                continue
        sock.close()
    raise OSError("no free ports")


def _udp(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    try:
        sock.bind((HOST, port))
    except OSError:
        sock.close()
        raise
    return sock


# --- two namespaces


def namespaces() -> str:
    """Make two namespaces with a link between them; the complaint where that is impossible."""
    (one, one_host), (other, other_host) = NAMESPACES
    remove_namespaces()
    commands = [
        f"ip netns add {one}",
        f"ip netns add {other}",
        f"ip link add {one} netns {one} type veth peer name {other} netns {other}",
        f"ip -n {one} addr add {one_host}/24 dev {one}",
        f"ip -n {other} addr add {other_host}/24 dev {other}",
        *(f"ip -n {name} link set {name} up" for name in (one, other)),
        *(f"ip -n {name} link set lo up" for name in (one, other)),
        f"ip netns exec {one} tc qdisc replace dev {one} root netem delay 1ms",
    ]
    try:
        for command in commands:
            if complaint := _run(*command.split()):
                remove_namespaces()
                return f"{command}: {complaint}"
    except OSError as error:
        return str(error)
    return ""


def remove_namespaces() -> None:
    """Leave nothing behind."""
    for name, _ in NAMESPACES:
        try:
            _run("ip", "netns", "delete", name)
        except OSError:
            return


def impair(trouble: Trouble, *, both: bool = False) -> None:
    """Let the link have this trouble, from the first to the second or both ways."""
    half = 500 * trouble.jitter_s
    for name, _ in NAMESPACES if both else NAMESPACES[:1]:
        command = f"ip netns exec {name} tc qdisc replace dev {name} root netem"
        complaint = _run(
            *f"{command} loss {trouble.loss:%} delay {half}ms {half}ms".split(),
            *(f"duplicate {trouble.twice:%}".split() if trouble.twice else ()),
        )
        if complaint:
            raise RuntimeError(f"netem: {complaint}")


def _run(*command: str) -> str:
    """Run a command; its complaint, empty when it went well."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stderr.strip() or "failed").splitlines()[-1]


if __name__ == "__main__":
    relay(json.loads(sys.argv[1]))
