"""Every tensor of a checkpoint, by name, with its shape. No torch.

The names are those of the published files; counts per checkpoint are checked in
tests/qwen3/test_random_weights.py.
"""

from __future__ import annotations

from qwen3tts_engine.qwen3.model.config import (
    CodecConfig,
    CodecDecoderConfig,
    CodecEncoderConfig,
    LayersConfig,
    ModelConfig,
    SpeakerEncoderConfig,
)

Shapes = dict[str, tuple[int, ...]]


def model_tensors(config: ModelConfig) -> Shapes:
    """What ``model.safetensors`` holds."""
    talker, predictor = config.talker, config.predictor
    hidden, text = talker.layers.hidden, talker.text_hidden
    shapes: Shapes = {
        "talker.model.codec_embedding.weight": (talker.vocab, hidden),
        "talker.model.text_embedding.weight": (talker.text_vocab, text),
        "talker.codec_head.weight": (talker.vocab, hidden),
        "talker.text_projection.linear_fc1.weight": (text, text),
        "talker.text_projection.linear_fc1.bias": (text,),
        "talker.text_projection.linear_fc2.weight": (hidden, text),
        "talker.text_projection.linear_fc2.bias": (hidden,),
    }
    shapes |= _layers("talker.model.", talker.layers)
    at = "talker.code_predictor."
    for group in range(predictor.groups):
        # As wide as the talker: a projection follows where the predictor is narrower.
        shapes[f"{at}model.codec_embedding.{group}.weight"] = (predictor.vocab, hidden)
        shapes[f"{at}lm_head.{group}.weight"] = (predictor.vocab, predictor.layers.hidden)
    if predictor.layers.hidden != hidden:
        shapes[f"{at}small_to_mtp_projection.weight"] = (predictor.layers.hidden, hidden)
        shapes[f"{at}small_to_mtp_projection.bias"] = (predictor.layers.hidden,)
    shapes |= _layers(f"{at}model.", predictor.layers)
    if config.speaker is not None:
        shapes |= _speaker(config.speaker)
    return shapes


def codec_tensors(config: CodecConfig) -> Shapes:
    """What ``speech_tokenizer/model.safetensors`` holds."""
    return _decoder(config.decoder) | _encoder(config.encoder)


def _layers(at: str, config: LayersConfig) -> Shapes:
    hidden, wide = config.hidden, config.heads * config.head_dim
    narrow = config.kv_heads * config.head_dim
    shapes: Shapes = {f"{at}norm.weight": (hidden,)}
    for number in range(config.layers):
        layer = f"{at}layers.{number}."
        shapes |= {
            f"{layer}input_layernorm.weight": (hidden,),
            f"{layer}post_attention_layernorm.weight": (hidden,),
            f"{layer}self_attn.q_proj.weight": (wide, hidden),
            f"{layer}self_attn.k_proj.weight": (narrow, hidden),
            f"{layer}self_attn.v_proj.weight": (narrow, hidden),
            f"{layer}self_attn.o_proj.weight": (hidden, wide),
            f"{layer}self_attn.q_norm.weight": (config.head_dim,),
            f"{layer}self_attn.k_norm.weight": (config.head_dim,),
            f"{layer}mlp.gate_proj.weight": (config.ffn, hidden),
            f"{layer}mlp.up_proj.weight": (config.ffn, hidden),
            f"{layer}mlp.down_proj.weight": (hidden, config.ffn),
        }
    return shapes


def _conv(at: str, out: int, inner: int, kernel: int) -> Shapes:
    """A convolution with bias, or with ``out`` and ``inner`` swapped a transposed one."""
    return {f"{at}.weight": (out, inner, kernel), f"{at}.bias": (out,)}


def _linear(at: str, out: int, inner: int) -> Shapes:
    return {f"{at}.weight": (out, inner), f"{at}.bias": (out,)}


def _speaker(config: SpeakerEncoderConfig) -> Shapes:
    at, channels, kernels = "speaker_encoder.", config.enc_channels, config.enc_kernel_sizes
    last, part = channels[-1], channels[0] // config.enc_res2net_scale
    shapes = _conv(f"{at}blocks.0.conv", channels[0], config.mel_dim, kernels[0])
    for number in range(1, len(channels) - 1):
        block, wide = f"{at}blocks.{number}.", channels[number]
        shapes |= _conv(f"{block}tdnn1.conv", wide, channels[number - 1], 1)
        shapes |= _conv(f"{block}tdnn2.conv", wide, wide, 1)
        for one in range(config.enc_res2net_scale - 1):
            name = f"{block}res2net_block.blocks.{one}.conv"
            shapes |= _conv(name, part, part, kernels[number])
        shapes |= _conv(f"{block}se_block.conv1", config.enc_se_channels, wide, 1)
        shapes |= _conv(f"{block}se_block.conv2", wide, config.enc_se_channels, 1)
    shapes |= _conv(f"{at}mfa.conv", last, last, kernels[-1])
    shapes |= _conv(f"{at}asp.tdnn.conv", config.enc_attention_channels, 3 * last, 1)
    shapes |= _conv(f"{at}asp.conv", last, config.enc_attention_channels, 1)
    return shapes | _conv(f"{at}fc", config.enc_dim, 2 * last, 1)


def _decoder(config: CodecDecoderConfig) -> Shapes:
    at, latent, hidden = "decoder.", config.latent_dim, config.hidden_size
    book = config.codebook_dim // 2
    shapes: Shapes = {}
    for part, books in (("first", 1), ("rest", config.num_quantizers - 1)):
        name = f"{at}quantizer.rvq_{part}."
        shapes[f"{name}input_proj.weight"] = (book, config.codebook_dim, 1)
        shapes[f"{name}output_proj.weight"] = (config.codebook_dim, book, 1)
        for number in range(books):
            layer = f"{name}vq.layers.{number}._codebook."
            shapes[f"{layer}cluster_usage"] = (config.codebook_size,)
            shapes[f"{layer}embedding_sum"] = (config.codebook_size, book)
    shapes |= _conv(f"{at}pre_conv.conv", latent, config.codebook_dim, 3)
    wide = config.num_attention_heads * config.head_dim
    narrow = config.num_key_value_heads * config.head_dim
    inner = f"{at}pre_transformer."
    shapes |= _linear(f"{inner}input_proj", hidden, latent)
    shapes |= _linear(f"{inner}output_proj", latent, hidden)
    shapes[f"{inner}norm.weight"] = (hidden,)
    for number in range(config.num_hidden_layers):
        layer = f"{inner}layers.{number}."
        shapes |= {
            f"{layer}input_layernorm.weight": (hidden,),
            f"{layer}post_attention_layernorm.weight": (hidden,),
            f"{layer}self_attn.q_proj.weight": (wide, hidden),
            f"{layer}self_attn.k_proj.weight": (narrow, hidden),
            f"{layer}self_attn.v_proj.weight": (narrow, hidden),
            f"{layer}self_attn.o_proj.weight": (hidden, wide),
            f"{layer}self_attn_layer_scale.scale": (hidden,),
            f"{layer}mlp.gate_proj.weight": (config.intermediate_size, hidden),
            f"{layer}mlp.up_proj.weight": (config.intermediate_size, hidden),
            f"{layer}mlp.down_proj.weight": (hidden, config.intermediate_size),
            f"{layer}mlp_layer_scale.scale": (hidden,),
        }
    for number, factor in enumerate(config.upsampling_ratios):
        name = f"{at}upsample.{number}."
        shapes |= _conv(f"{name}0.conv", latent, latent, factor)
        shapes |= _conv(f"{name}1.dwconv.conv", latent, 1, 7)
        shapes |= {f"{name}1.norm.weight": (latent,), f"{name}1.norm.bias": (latent,)}
        shapes |= _linear(f"{name}1.pwconv1", 4 * latent, latent)
        shapes |= _linear(f"{name}1.pwconv2", latent, 4 * latent)
        shapes[f"{name}1.gamma"] = (latent,)
    return shapes | _samples(f"{at}decoder.", config)


def _samples(at: str, config: CodecDecoderConfig) -> Shapes:
    """The convolutions from features to samples."""
    wide = config.decoder_dim
    shapes = _conv(f"{at}0.conv", wide, config.latent_dim, 7)
    for number, rate in enumerate(config.upsample_rates):
        block, half = f"{at}{number + 1}.block.", wide // 2
        shapes |= _snake(f"{block}0", wide)
        # Transposed: input channels first, the bias as long as the output.
        shapes[f"{block}1.conv.weight"] = (wide, half, 2 * rate)
        shapes[f"{block}1.conv.bias"] = (half,)
        for unit in range(2, 5):
            shapes |= _snake(f"{block}{unit}.act1", half)
            shapes |= _conv(f"{block}{unit}.conv1.conv", half, half, 7)
            shapes |= _snake(f"{block}{unit}.act2", half)
            shapes |= _conv(f"{block}{unit}.conv2.conv", half, half, 1)
        wide = half
    last = len(config.upsample_rates) + 1
    return shapes | _snake(f"{at}{last}", wide) | _conv(f"{at}{last + 1}.conv", 1, wide, 7)


def _snake(at: str, width: int) -> Shapes:
    return {f"{at}.alpha": (width,), f"{at}.beta": (width,)}


def _encoder(config: CodecEncoderConfig) -> Shapes:
    at, hidden, wide = "encoder.", config.hidden_size, config.num_filters
    shapes = _conv(f"{at}encoder.layers.0.conv", wide, 1, config.kernel_size)
    number = 1
    for ratio in reversed(config.upsampling_ratios):
        small = wide // config.compress
        for _ in range(config.num_residual_layers):
            block = f"{at}encoder.layers.{number}.block."
            shapes |= _conv(f"{block}1.conv", small, wide, config.residual_kernel_size)
            shapes |= _conv(f"{block}3.conv", wide, small, 1)
            number += 1
        # An activation without weights takes a number of its own.
        shapes |= _conv(f"{at}encoder.layers.{number + 1}.conv", 2 * wide, wide, 2 * ratio)
        number, wide = number + 2, 2 * wide
    name = f"{at}encoder.layers.{number + 1}.conv"
    shapes |= _conv(name, hidden, wide, config.last_kernel_size)
    attended = config.num_attention_heads * config.head_dim
    narrow = config.num_key_value_heads * config.head_dim
    for number in range(config.num_hidden_layers):
        layer = f"{at}encoder_transformer.layers.{number}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes |= {f"{layer}{norm}.weight": (hidden,), f"{layer}{norm}.bias": (hidden,)}
        shapes |= {
            f"{layer}self_attn.q_proj.weight": (attended, hidden),
            f"{layer}self_attn.k_proj.weight": (narrow, hidden),
            f"{layer}self_attn.v_proj.weight": (narrow, hidden),
            f"{layer}self_attn.o_proj.weight": (hidden, attended),
            f"{layer}self_attn_layer_scale.scale": (hidden,),
            f"{layer}mlp.fc1.weight": (config.intermediate_size, hidden),
            f"{layer}mlp.fc2.weight": (hidden, config.intermediate_size),
            f"{layer}mlp_layer_scale.scale": (hidden,),
        }
    shapes[f"{at}downsample.conv.weight"] = (hidden, hidden, 4)
    return shapes | _books(f"{at}quantizer.", config)


def _books(at: str, config: CodecEncoderConfig) -> Shapes:
    shapes: Shapes = {}
    inner = config.vector_quantization_hidden_dimension
    semantic = config.num_semantic_quantizers
    for part, books in (("semantic", semantic), ("acoustic", config.num_quantizers - semantic)):
        name = f"{at}{part}_residual_vector_quantizer."
        if inner != config.hidden_size:
            shapes[f"{name}input_proj.weight"] = (inner, config.hidden_size, 1)
            shapes[f"{name}output_proj.weight"] = (config.hidden_size, inner, 1)
        for number in range(books):
            book = f"{name}layers.{number}.codebook."
            shapes[f"{book}initialized"] = (1,)
            shapes[f"{book}cluster_usage"] = (config.codebook_size,)
            shapes[f"{book}embed_sum"] = (config.codebook_size, config.codebook_dim)
    return shapes
