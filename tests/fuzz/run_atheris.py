"""Search for inputs that break a fuzz target, guided by the code they reach (libFuzzer, atheris).

    python tests/fuzz/run_atheris.py [--seconds 5] [--jobs 2] [TARGET ...]
    python tests/fuzz/run_atheris.py --replay TARGET HEX

Each target runs in a process of its own, from its seeds, in a temporary folder that is removed.
Exit status: 0 = nothing found, 1 = a target broke (the input is printed), 2 = it cannot run.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
IMPORT_ROOTS = ("", "server", "pacer", "codecs", "phone", "cli", "tests/mindroot")
INSTRUMENTED = (
    *("qwen3tts_codecs", "qwen3tts_pacer", "qwen3tts_wire", "qwen3tts_engine", "qwen3tts_server"),
    *("qwen3tts_settings", "qwen3tts_speech", "qwen3tts_phone", "qwen3tts_cli", "mr_qwen3tts"),
    *("sipmessage", "ipaddress"),
)
SLOWEST_S = 10
"""One input that takes longer is a defect."""
MOST_MEMORY_MB = 1024
GRACE_S = 300.0
"""Beyond its time, for a child to start and to end. Importing all packages under instruments takes
over a minute on a busy machine."""
TELLING = threading.Lock()
"""Held by whoever prints: targets run beside each other."""
GET_IT = "atheris is not installed; it has wheels for Linux: pip install 'atheris>=3.0'"


def main() -> int:
    """Run the targets named, or all."""
    options = _arguments()
    # The fuzzer's own process imports the packages under its instruments first.
    sys.path[:0] = [str(ROOT / folder) for folder in IMPORT_ROOTS]
    if options.child:
        return _child(*options.child)
    from tests.fuzz.fuzz_targets import TARGETS

    if options.list:
        for name, target in TARGETS.items():
            print(f"{name:<12} {target.claim}")
        return 0
    unknown = {*options.targets, *(options.replay or ())[:1]} - TARGETS.keys()
    if unknown:
        print(f"no target {', '.join(sorted(unknown))}; there are: {', '.join(TARGETS)}")
        return 2
    if options.replay:
        name, text = options.replay
        TARGETS[name].run(bytes.fromhex(sys.stdin.read() if text == "-" else text))
        print(f"{name}: nothing breaks")
        return 0
    if importlib.util.find_spec("atheris") is None:
        print(GET_IT)
        return 0 if options.if_present else 2

    def good(name: str) -> bool:
        return _fuzz(name, options.seconds, options.runs, options.seed)

    with ThreadPoolExecutor(options.jobs) as pool:
        return 0 if all([*pool.map(good, options.targets or TARGETS)]) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Search for inputs that break what parses bytes from outside."
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="default: all, one by one")
    parser.add_argument("--seconds", type=int, default=5, help="time for each (5)")
    parser.add_argument("--runs", type=int, default=-1, help="most executions of each (no bound)")
    parser.add_argument("--seed", type=int, help="of the mutations; default: another every time")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    parser.add_argument(
        "--jobs", type=int, default=cores, help=f"targets at the same time ({cores}, the cores)"
    )
    parser.add_argument("--list", action="store_true", help="show the targets and what holds")
    parser.add_argument("--replay", nargs=2, metavar=("TARGET", "HEX"), help="HEX - reads stdin")
    parser.add_argument("--if-present", action="store_true", help="do nothing without atheris")
    parser.add_argument("--child", nargs=2, metavar=("TARGET", "FOLDER"), help=argparse.SUPPRESS)
    options, rest = parser.parse_known_args()
    if rest and not options.child:
        parser.error(f"unknown arguments: {' '.join(rest)}")
    if options.seconds < 1 or options.jobs < 1:
        parser.error("--seconds and --jobs must be at least 1")
    return options


def _fuzz(name: str, seconds: int, runs: int, seed: int | None) -> bool:
    """Fuzz one target and print its line; False when it broke."""
    from tests.fuzz.fuzz_targets import TARGETS

    target = TARGETS[name]
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        corpus, found = Path(folder, "corpus"), Path(folder, "found")
        corpus.mkdir()
        found.mkdir()
        for number, data in enumerate(target.seeds):
            Path(corpus, f"seed{number}").write_bytes(data)
        words = Path(folder, "words")
        words.write_text("".join(f'"{_escaped(each)}"\n' for each in target.words))
        command = [
            *(sys.executable, __file__, "--child", name, folder),
            f"-seed={random.getrandbits(31) if seed is None else seed}",
            *(f"-max_total_time={seconds}", f"-runs={runs}", f"-max_len={target.most_bytes}"),
            *(f"-timeout={SLOWEST_S}", f"-rss_limit_mb={MOST_MEMORY_MB}", "-verbosity=1"),
            # libFuzzer refuses an empty dictionary.
            *((f"-dict={words}",) if target.words else ()),
            f"-artifact_prefix={found}/",
        ]
        began = time.monotonic()
        log = Path(folder, "log")
        with log.open("wb") as stream:
            try:
                status = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    timeout=seconds + GRACE_S,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                status = -1
        took = time.monotonic() - began
        said = log.read_text("utf-8", "replace")
        inputs = {
            path.read_bytes(): path.name.partition("-")[0]
            for path in sorted(found.iterdir())
            if not path.name.startswith("slow-")
        }
        with TELLING:
            return _tell(name, status, said, took, inputs)


def _tell(name: str, status: int, said: str, took: float, inputs: dict[bytes, str]) -> bool:
    counts = re.findall(r"^#(\d+)\t", said, re.M) + re.findall(r"^Done (\d+) runs", said, re.M)
    edges = re.findall(r"cov: (\d+)", said)
    count = int(counts[-1]) if counts else 0
    good = status == 0 and not inputs
    print(
        f"{name:<12} {count:>9} executions in {took:5.1f} s, {int(edges[-1]) if edges else 0:>5}"
        f" edges: {'nothing found' if good else 'BROKEN'}",
        flush=True,
    )
    if good:
        return True
    print(_essence(said))
    for data, how in inputs.items():
        print(f"{how}: python tests/fuzz/run_atheris.py --replay {name} {data.hex()!r}")
    if not inputs:
        print(f"The fuzzer ended with status {status} and left no input.")
    return False


def _essence(said: str) -> str:
    """From the traceback on, without the fuzzer's own figures."""
    start = said.find("=== Uncaught Python exception")
    if start >= 0:
        return "\n".join(re.split(r"\n+==\d+==", said[start:])[0].splitlines()[:60])
    noise = re.compile(r"#\d+\t|INFO:|MS: |WARNING: Failed|0x|\\|Base64|artifact_prefix")
    lines = [line for line in said.splitlines() if not noise.match(line)]
    return "\n".join(lines[-30:])


def _escaped(word: bytes) -> str:
    """A word as libFuzzer's dictionaries have it."""
    return "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\x{byte:02x}" for byte in word
    )


def _child(name: str, folder: str) -> int:
    """Inside the process of one target: instrument, import, fuzz. Does not return."""
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=list(INSTRUMENTED), enable_loader_override=False):
        target = importlib.import_module("tests.fuzz.fuzz_targets").TARGETS[name]
    from tests.fuzz.target import SEPARATOR, retold

    known = [piece for seed in target.seeds for piece in seed.split(SEPARATOR)]

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < 0.5:
            mutated: bytes = atheris.Mutate(data, most)
            return mutated
        return retold(data, known, chance)[:most]

    def run(data: bytes) -> None:
        try:
            target.run(data)
        except BaseException:
            # The fuzzer's own record is lost when its alarm goes off while Python comes to its end.
            Path(folder, "found", "raised").write_bytes(data)
            raise

    by_steps = {"custom_mutator": mutate} if target.stepwise else {}
    rest = [each for each in sys.argv[1:] if each.startswith("-") and each != "--child"]
    atheris.Setup([sys.argv[0], *rest, f"{folder}/corpus"], run, **by_steps)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
