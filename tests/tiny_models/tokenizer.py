"""A byte-level BPE tokenizer of some 500 entries, trained on the lines below. No torch."""

# ruff: noqa: RUF001
from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from qwen3tts_engine.qwen3.model.tokenizer import pre_tokenizer

ENTRIES = 500
SPECIALS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<tts_pad>",
    "<tts_text_bos>",
    "<tts_text_eod>",
)
"""Appended after the trained entries, in this order. Some that nothing uses are among them, as in
the published files: an id must be read, not counted."""

CORPUS = (
    "assistant\nuser\nassistant\nuser\nassistant\nuser\nassistant\nuser",
    "\n\n\r\n. \n! \n? \n",
    "The quick brown fox jumps over the lazy dog, and then it's gone. Isn't that right?",
    "Hello, this is the hotline. How can I help you today? You'll get an answer in a moment.",
    "Please hold the line; we're putting you through to the next free person. Thank you!",
    "Your order number is 4711, and the total is 12.50 dollars. I'd like to confirm that.",
    "Guten Tag, hier ist die Hotline. Wie kann ich Ihnen heute helfen? Einen Moment bitte.",
    "Der Termin ist am Dienstag um 14:30 Uhr in der Straße der schönen Träume, größer als heute.",
    "Bonjour, vous êtes bien à l'accueil. Comment puis-je vous aider aujourd'hui ? Très bien.",
    "Buenos días, ¿en qué puedo ayudarle? Mañana por la mañana, señor. ¡Muchas gracias!",
    "Buongiorno, come posso aiutarla oggi? Perché no, grazie mille, è tutto a posto così.",
    "Olá, bom dia, em que posso ajudar? Não há problema, está tudo bem, obrigado, até amanhã.",
    "Здравствуйте, чем я могу вам помочь? Подождите, пожалуйста, одну минуту. Спасибо!",
    "你好，欢迎致电客服热线。请问有什么可以帮您？今天天气很好，我们去公园吧。谢谢！",
    "您的订单号是四七一一，请稍等一下，我马上为您查询。再见，祝您生活愉快。",
    "こんにちは。お電話ありがとうございます。少々お待ちください。今日はいい天気ですね。",
    "안녕하세요, 무엇을 도와드릴까요? 잠시만 기다려 주세요. 감사합니다.",
)


def train() -> Tokenizer:
    """The tokenizer; the same at every run."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=ENTRIES,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # The two words that the prompt's layout needs as one token each outweigh all others.
    tokenizer.train_from_iterator([CORPUS[0]] * 8 + list(CORPUS[1:]) * 2, trainer)
    return tokenizer


def write(folder: Path) -> dict[str, int]:
    """Write the tokenizer's three files; the ids of SPECIALS."""
    state = json.loads(train().to_str())["model"]
    vocab: dict[str, int] = state["vocab"]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in state["merges"]]
    ids = {name: len(vocab) + at for at, name in enumerate(SPECIALS)}
    _write_json(folder / "vocab.json", vocab)
    lines = ["#version: 0.2", *merges]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    _write_json(
        folder / "tokenizer_config.json",
        {
            "add_bos_token": False,
            "add_prefix_space": False,
            "added_tokens_decoder": {
                str(number): {
                    "content": name,
                    "lstrip": False,
                    "normalized": False,
                    "rstrip": False,
                    "single_word": False,
                    "special": True,
                }
                for name, number in ids.items()
            },
            "additional_special_tokens": list(SPECIALS[1:]),
            "bos_token": None,
            "clean_up_tokenization_spaces": False,
            "eos_token": "<|im_end|>",
            "errors": "replace",
            "model_max_length": 131072,
            "pad_token": "<|endoftext|>",
            "split_special_tokens": False,
            "tokenizer_class": "Qwen2Tokenizer",
            "unk_token": None,
        },
    )
    return ids


def _write_json(file: Path, value: object) -> None:
    file.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
