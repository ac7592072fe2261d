"""Options of the engine qwen3."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

PANEL = "Qwen3-TTS"


class DTypeName(StrEnum):
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class QuantizeName(StrEnum):
    NONE = "none"
    INT8 = "int8"
    INT4 = "int4"


@dataclass(frozen=True, slots=True)
class Qwen3Options:
    model: Annotated[
        str | None,
        typer.Option(
            envvar="MR_QWEN3TTS_CHECKPOINT",
            metavar="PATH_OR_HUB_ID",
            help="Checkpoint: a folder, or a hub id to download.",
            rich_help_panel=PANEL,
        ),
    ] = None
    device: Annotated[
        str | None,
        typer.Option(help="auto, cpu, cuda or cuda:N; default auto.", rich_help_panel=PANEL),
    ] = None
    dtype: Annotated[
        DTypeName | None,
        typer.Option(
            metavar="TYPE",
            help=(
                "Number type of the model: float32, bfloat16 or, on a GPU, float16;"
                " default bfloat16 on a GPU, float32 on a CPU."
            ),
            rich_help_panel=PANEL,
        ),
    ] = None
    codec_dtype: Annotated[
        DTypeName | None,
        typer.Option(
            metavar="TYPE",
            help="Number type of the codec; default float16 on a GPU, float32 on a CPU.",
            rich_help_panel=PANEL,
        ),
    ] = None
    quantize: Annotated[
        QuantizeName | None,
        typer.Option(
            metavar="TYPE",
            help="Weights on a CPU in 8 or 4 bits: int8, int4 or none; default none.",
            rich_help_panel=PANEL,
        ),
    ] = None
    quantize_cache: Annotated[
        Path | None,
        typer.Option(
            help="Folder of quantized weights; default: in the user's cache folder.",
            file_okay=False,
            rich_help_panel=PANEL,
        ),
    ] = None
    slots: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            help="Concurrent utterances; default 64 on a GPU, 16 on a CPU.",
            rich_help_panel=PANEL,
        ),
    ] = None
    max_waiting: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            help="Clauses that may wait for a slot, default 256; further ones are refused.",
            rich_help_panel=PANEL,
        ),
    ] = None
    positions: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            help="Longest clause, with its prompt, in frames of 80 ms; default 2048.",
            rich_help_panel=PANEL,
        ),
    ] = None
    lead_ms: Annotated[
        float | None,
        typer.Option(
            metavar="MS",
            help=(
                "Audio generated ahead of playback, default 800; beyond it others have priority."
            ),
            rich_help_panel=PANEL,
        ),
    ] = None
    initial_codec_chunk_frames: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER|load",
            help=(
                "Frames in the first audio chunk; load: fewer under load. Default: as few"
                " as the deadline needs."
            ),
            rich_help_panel=PANEL,
        ),
    ] = None
    dry_timeout_s: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Stall timeout of live text; default 2.",
            rich_help_panel=PANEL,
        ),
    ] = None
    repetition_guard: Annotated[
        bool | None,
        typer.Option(
            help="End a generation whose codes repeat and say the rest with another seed;"
            " default: on.",
            rich_help_panel=PANEL,
        ),
    ] = None
    silence_s: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Silence that ends a generation after all its text; default 1.2.",
            rich_help_panel=PANEL,
        ),
    ] = None
    pause_s: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Silence that ends a generation with text possibly left; default 4.",
            rich_help_panel=PANEL,
        ),
    ] = None
    max_new_tokens: Annotated[
        int | None,
        typer.Option(
            metavar="FRAMES",
            help="Maximum frames of one generation; default: the checkpoint's.",
            rich_help_panel=PANEL,
        ),
    ] = None
    unread_s: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Audio buffered for a client that does not read; default 2.",
            rich_help_panel=PANEL,
        ),
    ] = None
    voice_folder: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder of cloned voices, kept between runs.",
            rich_help_panel=PANEL,
        ),
    ] = None
    voices_bytes: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES",
            help=("Memory for cloned voices, default 1 GiB; the least recently used are evicted."),
            rich_help_panel=PANEL,
        ),
    ] = None
    threads: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            help="Threads on a CPU; default: the physical cores that the process may use.",
            rich_help_panel=PANEL,
        ),
    ] = None
    codec_threads: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            help="Of these, threads for the codec alone; 0 = none. Default: by cores and calls.",
            rich_help_panel=PANEL,
        ),
    ] = None
    graphs: Annotated[
        bool | None,
        typer.Option(help="CUDA graphs; default: on with a GPU.", rich_help_panel=PANEL),
    ] = None
    compiled: Annotated[
        bool | None,
        typer.Option(
            "--compile", help="Compile the model: takes minutes at start-up.", rich_help_panel=PANEL
        ),
    ] = None
    persistent_predictor: Annotated[
        bool | None,
        typer.Option(
            "--persistent-predictor",
            help="Code predictor as one kernel on a GPU, up to 8 rows; not yet run on one.",
            rich_help_panel=PANEL,
        ),
    ] = None
