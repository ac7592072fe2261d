"""The regression suite: `python -m tests.regression [--model FOLDER]`, or `make regression`.

Without a model it makes tiny checkpoints of all three tasks, takes the packaged natural voice as
well, and compares with the baseline in the repository. Exit code 1: something got worse, or is
wrong in itself.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from qwen3tts_codecs.wav import wav_bytes
from tests.regression.compare import comparable, faults, regressions
from tests.regression.piper_suite import VOICE, run_piper
from tests.regression.suite import Keep, Samples, Subject, run
from tests.regression.texts import SPOKEN, TEXTS, Text
from tests.tiny_models.checkpoint import make_tiny

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TINY_BASELINE = HERE / "baseline_tiny.json"
TINY_TEXTS = {
    "custom_voice": ("short", "english", "clauses", "german", "chinese", "any"),
    "voice_design": ("short",),
    "base": ("short", "german"),
}
"""What tiny checkpoints say: enough for every path, in a minute on one core."""
PIPER_TEXTS = ("short", "english", "clauses", "numbers")
"""What the natural voice says."""


KEPT_RUNS = 10
"""Runs whose sound is kept."""


def machine() -> dict[str, Any]:
    """What the codes and times of a run depend on, besides the code."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "processor": platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "model": processor_model(),
        "cores": os.cpu_count(),
        "gpu": gpu,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def processor_model() -> str | None:
    """Family and model of the processor, by which the libraries choose how they add up."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    facts = dict(line.replace("\t", "").split(":", 1) for line in lines if ":" in line)
    wanted = ("vendor_id", "cpu family", "model")
    return " ".join(facts.get(name, "?").strip() for name in wanted)


def commit() -> str | None:
    """The tree's, with a mark when it was changed."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or None


def subjects(model: str | None, folder: Path) -> Iterator[tuple[str, str, Sequence[Text]]]:
    """Name, checkpoint and texts of each run; tiny checkpoints are made in ``folder``."""
    if model is not None:
        yield Path(model).name, model, TEXTS
        return
    for task, made in make_tiny(folder).items():
        texts = [text for text in TEXTS if text.name in TINY_TEXTS[task]]
        yield f"tiny {task}", str(made), texts


def show(name: str, result: dict[str, Any]) -> None:
    """One checkpoint's table."""
    table = Table(title=name, title_justify="left")
    columns = ("text", "frames", "SNR dB", "MAE", "joints", "click sigma", "joint error",
               "repeated", "trimmed ms", "same again")  # fmt: skip
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left")
    for text, found in result["texts"].items():
        clicks = found["clicks"]
        table.add_row(
            text,
            str(found["frames"]),
            f"{found['difference']['snr_db']:.1f}",
            f"{found['difference']['mae']:.1e}",
            str(clicks["joints"]),
            f"{clicks['more_than_offline_sigma']:+.2f}",
            f"{clicks['joint_error']:.2f}",
            str(found["order"]["repeated"]),
            f"{found['delivered']['trimmed_start_ms']:.0f}" if "delivered" in found else "",
            "yes" if found["same_again"] else "NO",
        )
    console = Console(width=int(os.environ.get("COLUMNS", "120")))
    console.print(table)
    speed = result["speed"]
    console.print(
        f"first audio p50 {speed['first_audio_ms_p50']:.1f} ms, "
        f"p95 {speed['first_audio_ms_p95']:.1f} ms; real-time factor "
        f"{speed['real_time_factor']:.3f}"
        + (
            f"; the same in a batch: {result['same_in_a_batch']:.0%}"
            if "same_in_a_batch" in result
            else ""
        )
    )


def keeper(folder: Path, subject: str) -> Keep:
    """Write each text's sound, streamed and decoded whole, into WAV files."""
    place = folder / "".join(char if char.isalnum() else "_" for char in subject)
    place.mkdir(parents=True, exist_ok=True)

    def keep(name: str, stream: Samples, offline: Samples, rate: int) -> None:
        for kind, sound in (("stream", stream), ("offline", offline)):
            pcm = np.rint(np.clip(sound, -1, 1) * 32767).astype(np.int16)
            (place / f"{name}_{kind}.wav").write_bytes(wav_bytes(pcm, rate))

    return keep


def runs_folder(root: Path, began: datetime.datetime) -> Path:
    """Return this run's folder of WAV files; of earlier ones the last are left."""
    for old in sorted(each for each in root.glob("20*Z") if each.is_dir())[: -KEPT_RUNS + 1]:
        shutil.rmtree(old)
    return root / began.strftime("%Y-%m-%dT%H-%M-%SZ")


def log_line(record: dict[str, Any], wrong: Sequence[str]) -> str:
    """Return a run in one line: its verdict, and the worst of its figures."""
    results = record["models"].values()
    found = [text["difference"] for result in results for text in result["texts"].values()]
    speeds = [result["speed"] for result in results]
    figures = {
        "commit": record["commit"],
        "texts": len(found),
        "regressions": len(wrong),
        "snr_db_min": round(min(each["snr_db"] for each in found), 1),
        "mae_max": float(f"{max(each['mae'] for each in found):.1e}"),
        "first_audio_ms_p50": round(max(each["first_audio_ms_p50"] for each in speeds), 1),
        "first_audio_ms_p95": round(max(each["first_audio_ms_p95"] for each in speeds), 1),
        "real_time_factor": round(max(each["real_time_factor"] for each in speeds), 3),
    }
    told = " ".join(f"{name}={value}" for name, value in figures.items())
    return f"{record['date']} {'FAIL' if wrong else 'PASS'} {told}"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tests.regression", description=__doc__)
    parser.add_argument("--model", help="checkpoint folder or hub id; default: tiny ones")
    parser.add_argument("--reference", type=Path, help="recording to clone, for Base checkpoints")
    parser.add_argument("--reference-text", default=SPOKEN, help="what is said in it")
    parser.add_argument("--baseline", type=Path, help="JSON of an earlier run to compare with")
    parser.add_argument("--keep", action="store_true", help="make this run the baseline")
    parser.add_argument("--speed", action="store_true", help="slower than the baseline is worse")
    parser.add_argument("--json", type=Path, default=ROOT / "out" / "regression.json")
    parser.add_argument(
        "--wavs", type=Path, default=ROOT / "out" / "regression", help="folder of the runs' sound"
    )
    parser.add_argument(
        "--log", type=Path, default=ROOT / "out" / "regression.log", help="gets a line a run"
    )
    parser.add_argument("--repeats", type=int, default=5, help="for the time to first audio")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, auto")
    parser.add_argument("--compile", action="store_true", help="torch.compile inside the graphs")
    return parser.parse_args()


def main() -> int:
    """Run, compare, write; the exit code."""
    given = arguments()
    torch.set_num_threads(1 if given.model is None else torch.get_num_threads())
    baseline: Path = given.baseline or (
        TINY_BASELINE if given.model is None else given.json.with_suffix(".baseline.json")
    )
    settings = {"device": given.device, "compile": given.compile}
    results, shared = {}, {"machine": machine()}
    began = datetime.datetime.now(datetime.UTC)
    wavs = runs_folder(given.wavs, began)
    with tempfile.TemporaryDirectory() as folder:
        for name, model, texts in subjects(given.model, Path(folder)):
            subject = Subject(
                model, given.reference, given.reference_text, given.repeats, texts, settings
            )
            results[name] = run(subject, keeper(wavs, name)) | shared
            show(name, results[name])
    if given.model is None:
        texts = [text for text in TEXTS if text.name in PIPER_TEXTS]
        results[VOICE] = run_piper(texts, given.repeats, keeper(wavs, VOICE)) | shared
        show(VOICE, results[VOICE])
    record = {
        "commit": commit(),
        "date": began.isoformat(timespec="seconds"),
        "models": results,
    }
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if given.keep:
        baseline.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    wrong = [f"{name}: {fault}" for name, result in results.items() for fault in faults(result)]
    if baseline.exists():
        before = json.loads(baseline.read_text(encoding="utf-8"))["models"]
        for name in results.keys() & before.keys():
            wrong += [
                f"{name}: {worse}"
                for worse in regressions(results[name], before[name], speed=given.speed)
            ]
            if not comparable(results[name], before[name]):
                print(
                    f"{name}: codes are not compared: the baseline is of another machine or torch"
                )
    else:
        print(f"nothing to compare with: {baseline} does not exist (--keep makes it)")
    for line in wrong:
        print(f"REGRESSION {line}")
    line = log_line(record, wrong)
    with given.log.open("a", encoding="utf-8") as log:
        log.write(f"{line}\n")
    print(line)
    print(f"{given.json} and the sound in {wavs} written; {len(wrong)} regressions")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
