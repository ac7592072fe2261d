"""The talker's table, and its steps against the layers written the ordinary way."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from qwen3tts_engine.qwen3.kernels.runner import Runner
from qwen3tts_engine.qwen3.kernels.step_runner import PrefillRow, StepRow
from qwen3tts_engine.qwen3.model import talker as module
from qwen3tts_engine.qwen3.model.checkpoint import Weights
from qwen3tts_engine.qwen3.model.config import ModelConfig
from qwen3tts_engine.qwen3.model.config_fields import BadCheckpoint
from qwen3tts_engine.qwen3.model.kv_cache import KvCache
from qwen3tts_engine.qwen3.model.model import Qwen3Model
from qwen3tts_engine.qwen3.model.prompt import Prompt
from qwen3tts_engine.qwen3.model.sampler import FrameRows, SampledCodes
from qwen3tts_engine.qwen3.model.sampling import Sampling
from qwen3tts_engine.qwen3.model.transformer import TORCH_KERNELS
from tests.qwen3.model.rows import Script, Stage, script
from tests.qwen3.model.small import plain_layers, small_config, small_weights

CONFIG = small_config(projection=True)


@pytest.fixture(scope="module")
def weights() -> Weights:
    return small_weights(CONFIG)[0]


@pytest.fixture(scope="module", params=[False, True], ids=["norms folded", "norms fused"])
def model(request: pytest.FixtureRequest) -> Qwen3Model:
    return Qwen3Model.from_weights(CONFIG, *small_weights(CONFIG), fused_norm=request.param)


def test_the_table_holds_every_embedding(
    model: Qwen3Model, weights: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, rows, vocab = model.talker.table, model.talker.rows, CONFIG.talker.vocab
    at = weights.under("talker.")
    raw = at["model.text_embedding.weight"]
    first, second = (
        (at[f"text_projection.linear_fc{n}.weight"], at[f"text_projection.linear_fc{n}.bias"])
        for n in (1, 2)
    )
    text = functional.linear(functional.silu(functional.linear(raw, *first)), *second)
    torch.testing.assert_close(table[: rows.codec], text, rtol=1e-5, atol=1e-5)
    assert torch.equal(table[rows.codec :][:vocab], at["model.codec_embedding.weight"])
    for group in range(15):
        expected = at[f"code_predictor.model.codec_embedding.{group}.weight"]
        assert torch.equal(table[rows.groups[group + 1] :][: len(expected)], expected)
    assert not table[rows.nothing].any()
    assert rows.nothing == len(table) - 1
    by_chunks = torch.zeros(CONFIG.talker.text_vocab, CONFIG.talker.layers.hidden)
    monkeypatch.setattr(module, "CHUNK", 77)
    module.fill_text_table(by_chunks, at, CONFIG)
    torch.testing.assert_close(by_chunks, text, rtol=1e-5, atol=1e-5)


def test_a_large_vocabulary_is_projected_when_it_is_used(
    model: Qwen3Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 8)
    lazy, other = (Qwen3Model.from_weights(CONFIG, *small_weights(CONFIG)).talker for _ in "12")
    texts = lazy.table[: lazy.rows.codec]
    assert not texts.any()
    lazy.text.prepare([-1, 9, 17, len(texts) - 1])
    assert texts[8:24].any(dim=1).all()
    assert not texts[:8].any()
    torch.testing.assert_close(texts[8:24], model.talker.table[8:24], rtol=1e-5, atol=1e-5)
    # The same values whatever is asked for beside, before or twice.
    for each in (16, 9, 8, 9, 23, len(texts) - 1):
        other.text.prepare([each])
    assert torch.equal(other.table, lazy.table)


def test_a_prompt_and_a_frame_find_their_text(
    model: Qwen3Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 8)
    lazy = Qwen3Model.from_weights(CONFIG, *small_weights(CONFIG))
    prompt = Prompt((3, -1, 30), (None, 1, (2, 5)), (), 0)
    torch.testing.assert_close(lazy.embed(prompt), model.embed(prompt), rtol=1e-5, atol=1e-5)
    runner = Runner(lazy, slots=1, positions=16)
    runner.prefill([PrefillRow(0, lazy.embed(prompt), Sampling(), 0)])
    runner.step([StepRow(0, 49, False)]).wait()
    assert lazy.talker.table[49].any()


def test_prefill_and_steps_are_the_plain_layers(model: Qwen3Model, weights: Weights) -> None:
    stage, row = Stage(model, slots=3), script(model, 1, 20)
    stage.prefill({1: row}, pad=3, padding_rows=2)
    inputs, head = row.embeds, weights["talker.codec_head.weight"]
    talker, plain = model.talker, weights.under("talker.model.")
    for number in range(6):
        expected = plain_layers(inputs, plain, CONFIG.talker.layers)[-1]
        torch.testing.assert_close(stage.kv_cache.hidden[1], expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(stage.kv_cache.logits[1], head @ expected, rtol=1e-4, atol=1e-4)
        stage.step([1], padding_rows=2)
        codes = stage.spoken[1].codes[-1]
        ids = [start + int(code) for start, code in zip(talker.rows.groups, codes, strict=True)]
        terms = talker.table[[*ids, row.text[number]]]
        inputs = torch.cat([inputs, terms.sum(0)[None]])


def test_prompts_of_all_lengths_together(model: Qwen3Model) -> None:
    rows = [script(model, seed, 1) for seed in range(5)]
    together, stage = Stage(model, slots=5), Stage(model, slots=5)
    together.prefill(dict(enumerate(rows)), pad=1)
    for slot, row in enumerate(rows):
        stage.prefill({slot: row})
        torch.testing.assert_close(
            together.kv_cache.logits[slot], stage.kv_cache.logits[slot], rtol=1e-4, atol=1e-4
        )
    assert together.kv_cache.pos.tolist()[:5] == [len(row.embeds) for row in rows]


def test_a_prompt_that_fills_the_slot_to_the_last_position(model: Qwen3Model) -> None:
    """Padding behind it, which has no place of its own, does not write over its end."""
    row = script(model, 3, 1)
    length = len(row.embeds)
    tight, wide = Stage(model, slots=1, positions=length), Stage(model, slots=1)
    for stage in (tight, wide):
        stage.prefill({0: row}, pad=5)
    torch.testing.assert_close(tight.kv_cache.kv[:, 0], wide.kv_cache.kv[:, 0, :length])
    torch.testing.assert_close(tight.kv_cache.logits[0], wide.kv_cache.logits[0])


def test_a_missing_tensor_is_named(weights: Weights) -> None:
    shapes = {name: tuple(weights[name].shape) for name in weights.names()}
    del shapes["talker.codec_head.weight"]
    fewer = Weights("some file", shapes, lambda name: weights[name])
    with pytest.raises(BadCheckpoint, match=r"some file: tensor talker\.codec_head\.weight"):
        Qwen3Model.from_weights(CONFIG, fewer, small_weights(CONFIG)[1])


def test_scratch_takes_what_padding_writes(model: Qwen3Model) -> None:
    stage = Stage(model, slots=2)
    stage.prefill({0: Script(script(model, 2, 1).embeds, [0])}, padding_rows=3)
    stage.step([0], padding_rows=3)
    kv_cache: KvCache = stage.kv_cache
    assert kv_cache.kv[:, kv_cache.scratch].any()
    assert not kv_cache.kv[:, 1].any()


ROWS = 3


class Greedy:
    """Takes the best codes, behind given hidden states and codes 0."""

    def __init__(self, hidden: Tensor, codes: Tensor) -> None:
        self._hidden, self._codes = hidden, codes
        self.ids = codes

    @property
    def rows(self) -> FrameRows:
        raise NotImplementedError

    def first(self, table: Tensor) -> tuple[Tensor, Tensor]:
        x = table.new_zeros(2, len(self._hidden), table.shape[1])
        x[1] = table[self._codes[0]]
        if x.shape[2] == self._hidden.shape[1]:
            x[0] = self._hidden
        return self._hidden, x

    def sample(self, codebook: int, logits: Tensor) -> None:
        self._codes[codebook] = logits.argmax(dim=1)

    def sample_input(self, codebook: int, logits: Tensor, table: Tensor) -> Tensor:
        self.sample(codebook, logits)
        return table[self._codes[codebook]]

    def finish(self) -> SampledCodes:
        raise NotImplementedError


def plain(config: ModelConfig, weights: Weights, hidden: Tensor, code: int) -> list[int]:
    """Codes 0 to 15 of one row, nothing packed, nothing cached."""
    at = weights.under("talker.code_predictor.")
    inputs = [hidden, weights["talker.model.codec_embedding.weight"][code]]
    codes = [code]
    for group in range(config.predictor.groups):
        x = torch.stack(inputs)
        if "small_to_mtp_projection.weight" in at:
            matrix, bias = (at[f"small_to_mtp_projection.{one}"] for one in ("weight", "bias"))
            x = functional.linear(x, matrix, bias)
        last = plain_layers(x, at.under("model."), config.predictor.layers)[-1]
        codes.append(int((at[f"lm_head.{group}.weight"] @ last).argmax()))
        inputs.append(at[f"model.codec_embedding.{group}.weight"][codes[-1]])
    return codes


@pytest.mark.parametrize("projection", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_it_is_the_plain_layers(fused: bool, projection: bool) -> None:
    config = small_config(projection=projection)
    weights, codec = small_weights(config)
    model = Qwen3Model.from_weights(config, weights, codec, fused_norm=fused)
    assert (model.predictor.projection is None) != projection
    draw = torch.Generator().manual_seed(1)
    hidden = torch.randn(ROWS, config.talker.layers.hidden, generator=draw)
    codes = torch.zeros(17, ROWS, dtype=torch.int64)
    codes[0] = torch.tensor([5, 2047, config.talker.ids.eos])
    model.predictor.predict(Greedy(hidden, codes), TORCH_KERNELS)
    for row in range(ROWS):
        expected = plain(config, weights, hidden[row], int(codes[0, row]))
        assert codes[:16, row].tolist() == expected
    assert not codes[16].any()


def test_without_a_projection_it_reads_the_talkers_table() -> None:
    config = small_config(projection=False)
    model = Qwen3Model.from_weights(config, *small_weights(config))
    start = model.talker.table.untyped_storage().data_ptr()
    for table in model.predictor.inputs:
        assert table.untyped_storage().data_ptr() == start


def test_nothing_is_kept_between_frames() -> None:
    config = small_config(projection=True)
    model = Qwen3Model.from_weights(config, *small_weights(config))
    hidden = torch.randn(ROWS, 40, generator=torch.Generator().manual_seed(2))
    first, second = torch.zeros(2, 16, ROWS, dtype=torch.int64).unbind(0)
    model.predictor.predict(Greedy(hidden, first), TORCH_KERNELS)
    other = torch.ones(16, ROWS, dtype=torch.int64)
    model.predictor.predict(Greedy(-hidden, other), TORCH_KERNELS)
    model.predictor.predict(Greedy(hidden, second), TORCH_KERNELS)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
