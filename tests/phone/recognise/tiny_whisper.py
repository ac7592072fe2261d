"""A Whisper of random weights, of some thousand parameters, as transformers keeps one."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

LETTERS = "abcdefghijklmnopqrstuvwxyz"
LANGUAGES = ("en", "de", "fr")


def tiny_whisper(folder: Path, *, multilingual: bool = True, seed: int = 0) -> str:
    """Make one that hears a few letters in everything; its folder, as a text."""
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    tokenizer = transformers.WhisperTokenizer(
        vocab={letter: index for index, letter in enumerate(LETTERS)}, merges=[]
    )
    special = ["startoftranscript", *LANGUAGES, "translate", "transcribe", "nospeech"]
    special.append("notimestamps")
    tokenizer.add_special_tokens({"additional_special_tokens": [f"<|{name}|>" for name in special]})
    ids = {name: tokenizer.convert_tokens_to_ids(f"<|{name}|>") for name in special}
    end = tokenizer.eos_token_id
    common: dict[str, Any] = {
        "decoder_start_token_id": ids["startoftranscript"],
        "pad_token_id": end,
        "bos_token_id": end,
        "eos_token_id": end,
    }
    torch.manual_seed(seed)
    model = transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(
            vocab_size=len(tokenizer),
            encoder_layers=1,
            encoder_attention_heads=2,
            encoder_ffn_dim=16,
            decoder_layers=2,
            decoder_attention_heads=2,
            decoder_ffn_dim=16,
            d_model=16,
            max_target_positions=32,
            init_std=0.5,
            suppress_tokens=None,
            begin_suppress_tokens=None,
            **common,
        )
    )
    languages: dict[str, Any] = {"is_multilingual": multilingual}
    if multilingual:
        languages["lang_to_id"] = {f"<|{code}|>": ids[code] for code in LANGUAGES}
        languages["task_to_id"] = {name: ids[name] for name in ("transcribe", "translate")}
    model.generation_config = transformers.GenerationConfig(
        no_timestamps_token_id=ids["notimestamps"],
        max_length=24,
        suppress_tokens=sorted(ids.values()),
        begin_suppress_tokens=[end],
        **languages,
        **common,
    )
    model.save_pretrained(folder)
    transformers.WhisperProcessor(
        transformers.WhisperFeatureExtractor(feature_size=80), tokenizer
    ).save_pretrained(folder)
    return str(folder)
