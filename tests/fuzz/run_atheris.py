"""Search for inputs that break a fuzz target, guided by coverage (libFuzzer, atheris).

    python tests/fuzz/run_atheris.py [--seconds 5] [--jobs 2] [TARGET ...]
    python tests/fuzz/run_atheris.py --replay TARGET HEX

The packages are imported under instruments once; each target then runs in a fork of that process,
from its seeds, in a temporary folder that is removed.
Exit status: 0 = nothing found, 1 = a target broke (the input is printed), 2 = it cannot run.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import io
import multiprocessing
import os
import random
import re
import shutil
import sys
import tempfile
import time
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.fuzz.target import Target

ROOT = Path(__file__).resolve().parents[2]
IMPORT_ROOTS = ("", "server", "pacer", "codecs", "phone", "cli", "tests/mindroot")
INSTRUMENTED = (
    *("qwen3tts_codecs", "qwen3tts_pacer", "qwen3tts_text", "qwen3tts_wire", "qwen3tts_engine"),
    *("qwen3tts_server", "qwen3tts_settings", "qwen3tts_speech", "qwen3tts_phone"),
    *("qwen3tts_agent", "qwen3tts_cli", "mr_qwen3tts", "sipmessage", "ipaddress"),
)
MAX_INPUT_S = 10
"""One input that takes longer is a defect."""
MAX_MEMORY_MB = 1024
GRACE_S = 120.0
"""Beyond its time, for a target to start and to end on a busy machine."""
ATHERIS_MISSING = "atheris is not installed; it has wheels for Linux: pip install 'atheris>=3.0'"


class TargetRun:
    """One target, fuzzed in a fork of this process."""

    def __init__(self, name: str, target: Target, options: argparse.Namespace) -> None:
        self.name, self.target = name, target
        # No TemporaryDirectory: a fork that ends would remove the folders of the others.
        self.folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        self._began = time.monotonic()
        self._deadline = self._began + options.seconds + GRACE_S
        for part in ("corpus", "found"):
            (self.folder / part).mkdir()
        for number, data in enumerate(target.seeds):
            (self.folder / "corpus" / f"seed{number}").write_bytes(data)
        words = self.folder / "words"
        words.write_text("".join(f'"{_escaped(each)}"\n' for each in target.words))
        seed = random.getrandbits(31) if options.seed is None else options.seed
        self.flags = [
            *(f"-seed={seed}", f"-max_total_time={options.seconds}", f"-runs={options.runs}"),
            *(f"-max_len={target.max_bytes}", f"-timeout={MAX_INPUT_S}", "-verbosity=1"),
            f"-rss_limit_mb={MAX_MEMORY_MB}",
            # libFuzzer refuses an empty dictionary.
            *((f"-dict={words}",) if target.words else ()),
            f"-artifact_prefix={self.folder}/found/",
        ]
        self._process = multiprocessing.get_context("fork").Process(target=self._fuzz)
        self._process.start()
        self.sentinel = self._process.sentinel

    def _fuzz(self) -> None:
        """Fuzz in the child. libFuzzer ends the process."""
        atheris: Any = importlib.import_module("atheris")
        from tests.fuzz.target import SEPARATOR, mutate_steps

        log = os.open(self.folder / "log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        known = [piece for seed in self.target.seeds for piece in seed.split(SEPARATOR)]

        def mutate(data: bytes, max_bytes: int, seed: int) -> bytes:
            rng = random.Random(seed)
            if rng.random() < 0.5:
                mutated: bytes = atheris.Mutate(data, max_bytes)
                return mutated
            return mutate_steps(data, known, rng)[:max_bytes]

        def run(data: bytes) -> None:
            try:
                self.target.run(data)
            except BaseException:
                # libFuzzer's own record is lost when its alarm goes off while Python exits.
                (self.folder / "found" / "raised").write_bytes(data)
                raise

        by_steps = {"custom_mutator": mutate} if self.target.stepwise else {}
        atheris.Setup([sys.argv[0], *self.flags, f"{self.folder}/corpus"], run, **by_steps)
        atheris.Fuzz()

    def ended(self) -> bool:
        """Return whether the child has ended; kill one that is past its deadline."""
        if self._process.is_alive() and time.monotonic() > self._deadline:
            self._process.kill()
        self._process.join(0)
        return not self._process.is_alive()

    def remove(self) -> None:
        """End the child if it is still running, and remove its folder."""
        self._process.kill()
        self._process.join()
        shutil.rmtree(self.folder)

    def report(self) -> bool:
        """Print the outcome; False if the target broke."""
        status = self._process.exitcode
        log = (self.folder / "log").read_text("utf-8", "replace")
        inputs = {
            path.read_bytes(): path.name.partition("-")[0]
            for path in sorted((self.folder / "found").iterdir())
            if not path.name.startswith("slow-")
        }
        counts = re.findall(r"^#(\d+)\t", log, re.M) + re.findall(r"^Done (\d+) runs", log, re.M)
        edges = re.findall(r"cov: (\d+)", log)
        passed = status == 0 and not inputs
        print(
            f"{self.name:<20} {counts[-1] if counts else 0:>9} executions in"
            f" {time.monotonic() - self._began:5.1f} s, {edges[-1] if edges else 0:>5} edges:"
            f" {'nothing found' if passed else 'BROKEN'}",
            flush=True,
        )
        if passed:
            return True
        print(_traceback(log))
        for data, kind in inputs.items():
            command = f"python tests/fuzz/run_atheris.py --replay {self.name}"
            print(f"{kind}: {command} {data.hex()!r}")
        if not inputs:
            print(f"The fuzzer ended with status {status} and left no input.")
        return False


def main() -> int:
    """Run the targets named, or all."""
    options = _arguments()
    if options.seed is not None and "PYTHONHASHSEED" not in os.environ:
        # The order of sets is part of what a seed has to repeat.
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)
    sys.path[:0] = [str(ROOT / folder) for folder in IMPORT_ROOTS]
    # A fork keeps no threads of OpenBLAS.
    os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
    instruments: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if not (options.list or options.replay):
        if importlib.util.find_spec("atheris") is None:
            print(ATHERIS_MISSING)
            return 0 if options.if_present else 2
        atheris: Any = importlib.import_module("atheris")
        instruments = atheris.instrument_imports(
            include=list(INSTRUMENTED), enable_loader_override=False
        )
    with contextlib.redirect_stderr(io.StringIO()), instruments:
        targets: dict[str, Target] = importlib.import_module("tests.fuzz.table").TARGETS
    unknown = {*options.targets, *(options.replay or ())[:1]} - targets.keys()
    if unknown:
        print(f"no target {', '.join(sorted(unknown))}; there are: {', '.join(targets)}")
        return 2
    if options.list:
        for name, target in targets.items():
            print(f"{name:<20} {target.invariant}")
        return 0
    if options.replay:
        name, text = options.replay
        targets[name].run(bytes.fromhex(sys.stdin.read() if text == "-" else text))
        print(f"{name}: nothing breaks")
        return 0
    return 0 if fuzz({name: targets[name] for name in options.targets or targets}, options) else 1


def fuzz(targets: dict[str, Target], options: argparse.Namespace) -> bool:
    """Fuzz the targets, ``options.jobs`` at a time; False if one broke."""
    waiting, running, passed = list(targets.items()), list[TargetRun](), True
    try:
        while waiting or running:
            while waiting and len(running) < options.jobs:
                running.append(TargetRun(*waiting.pop(0), options))
            wait([run.sentinel for run in running], timeout=1.0)
            for run in [each for each in running if each.ended()]:
                running.remove(run)
                passed &= run.report()
                run.remove()
    finally:
        for run in running:
            run.remove()
    return passed


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Search for inputs that break what parses bytes from outside."
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="default: all")
    parser.add_argument("--seconds", type=int, default=5, help="time for each (5)")
    parser.add_argument("--runs", type=int, default=-1, help="most executions of each (no bound)")
    parser.add_argument("--seed", type=int, help="of the mutations; default: another every time")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    parser.add_argument(
        "--jobs", type=int, default=cores, help=f"targets at the same time ({cores}, the cores)"
    )
    parser.add_argument("--list", action="store_true", help="show the targets and invariants")
    parser.add_argument("--replay", nargs=2, metavar=("TARGET", "HEX"), help="HEX - reads stdin")
    parser.add_argument("--if-present", action="store_true", help="do nothing without atheris")
    options = parser.parse_args()
    if options.seconds < 1 or options.jobs < 1:
        parser.error("--seconds and --jobs must be at least 1")
    return options


def _traceback(log: str) -> str:
    """Return the log from the traceback on, without libFuzzer's figures."""
    start = log.find("=== Uncaught Python exception")
    if start >= 0:
        return "\n".join(re.split(r"\n+==\d+==", log[start:])[0].splitlines()[:60])
    noise = re.compile(r"#\d+\t|INFO:|MS: |WARNING: Failed|0x|\\|Base64|artifact_prefix")
    lines = [line for line in log.splitlines() if not noise.match(line)]
    return "\n".join(lines[-30:])


def _escaped(word: bytes) -> str:
    """Return a word in the syntax of libFuzzer's dictionaries."""
    return "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\x{byte:02x}" for byte in word
    )


if __name__ == "__main__":
    sys.exit(main())
