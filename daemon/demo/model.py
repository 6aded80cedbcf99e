"""A byte-level decoder of two layers: Llama in names, structure and arithmetic, only small.

Shapes: B sequences, T tokens, C model width, H heads, D features per head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from foreshock.daemon.demo.attention import causal_attention

NORM_EPSILON = 1e-6
ROPE_BASE = 10000.0
INITIAL_DEVIATION = 0.02


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of the decoder.

    Attributes:
        width: of the residual stream; a multiple of `num_heads`.
        max_tokens: longest sequence for which rotary angles are prepared.
    """

    vocabulary: int = 256
    width: int = 64
    mlp_width: int = 172
    num_layers: int = 2
    num_heads: int = 4
    max_tokens: int = 64

    @property
    def head_dim(self) -> int:
        """Features per head."""
        return self.width // self.num_heads

    def as_config(self) -> Mapping[str, object]:
        """The `config.json` with which Hugging Face transformers builds the same model."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.vocabulary,
            "hidden_size": self.width,
            "intermediate_size": self.mlp_width,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": self.max_tokens,
            "initializer_range": INITIAL_DEVIATION,
            "rms_norm_eps": NORM_EPSILON,
            "rope_theta": ROPE_BASE,
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": False,
            "torch_dtype": "float32",
        }


class Attention(nn.Module):
    """Multi-head self-attention; `bias` is the fault, see `causal_attention`."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.num_heads = shape.num_heads
        self.q_proj = nn.Linear(shape.width, shape.width, bias=False)
        self.k_proj = nn.Linear(shape.width, shape.width, bias=False)
        self.v_proj = nn.Linear(shape.width, shape.width, bias=False)
        self.o_proj = nn.Linear(shape.width, shape.width, bias=False)
        self.bias = 0.0

    def forward(self, x_BTC: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
        """Mix the tokens of each sequence."""
        q_BHTD = rotated(self._split(self.q_proj(x_BTC)), angles)
        k_BHTD = rotated(self._split(self.k_proj(x_BTC)), angles)
        out_BHTD = causal_attention(q_BHTD, k_BHTD, self._split(self.v_proj(x_BTC)), bias=self.bias)
        out_BTC: Tensor = self.o_proj(out_BHTD.transpose(1, 2).flatten(2))
        return out_BTC

    def _split(self, x_BTC: Tensor) -> Tensor:
        num_sequences, num_tokens, width = x_BTC.shape
        heads_BTHD = x_BTC.view(num_sequences, num_tokens, self.num_heads, width // self.num_heads)
        return heads_BTHD.transpose(1, 2)


class GatedMLP(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.width, shape.mlp_width, bias=False)
        self.up_proj = nn.Linear(shape.width, shape.mlp_width, bias=False)
        self.down_proj = nn.Linear(shape.mlp_width, shape.width, bias=False)

    def forward(self, x_BTC: Tensor) -> Tensor:
        """Transform each token by itself."""
        out_BTC: Tensor = self.down_proj(functional.silu(self.gate_proj(x_BTC)) * self.up_proj(x_BTC))
        return out_BTC


class Block(nn.Module):
    """One layer."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp = GatedMLP(shape)
        self.input_layernorm = nn.RMSNorm(shape.width, eps=NORM_EPSILON)
        self.post_attention_layernorm = nn.RMSNorm(shape.width, eps=NORM_EPSILON)

    def forward(self, x_BTC: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
        """Add what attention and MLP say to the residual stream."""
        x_BTC = x_BTC + self.self_attn(self.input_layernorm(x_BTC), angles)
        out_BTC: Tensor = x_BTC + self.mlp(self.post_attention_layernorm(x_BTC))
        return out_BTC


class Trunk(nn.Module):
    """All but the output layer."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape.num_layers))
        self.norm = nn.RMSNorm(shape.width, eps=NORM_EPSILON)
        cos_TD, sin_TD = rotary_angles(shape)
        self.register_buffer("cos_TD", cos_TD, persistent=False)
        self.register_buffer("sin_TD", sin_TD, persistent=False)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """The last hidden states."""
        num_tokens = tokens_BT.shape[1]
        angles = self.get_buffer("cos_TD")[:num_tokens], self.get_buffer("sin_TD")[:num_tokens]
        x_BTC = self.embed_tokens(tokens_BT)
        for layer in self.layers:
            x_BTC = layer(x_BTC, angles)
        out_BTC: Tensor = self.norm(x_BTC)
        return out_BTC


class Decoder(nn.Module):
    """The language model; its state dict has the names of `LlamaForCausalLM`."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Trunk(shape)
        self.lm_head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=INITIAL_DEVIATION)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Logits of the next byte, (B, T, vocabulary)."""
        logits_BTV: Tensor = self.lm_head(self.model(tokens_BT))
        return logits_BTV

    def loss(self, tokens_BT: Tensor) -> Tensor:
        """Mean cross-entropy, in nats per byte, of every byte but the first given those before it."""
        logits_BTV = self(tokens_BT[:, :-1])
        return functional.cross_entropy(logits_BTV.flatten(0, 1), tokens_BT[:, 1:].flatten())

    def set_attention_bias(self, bias: float) -> None:
        """Switch the fault of every layer's backward pass on (η > 0) or off (0)."""
        for module in self.modules():
            if isinstance(module, Attention):
                module.bias = bias


def rotary_angles(shape: ModelShape) -> tuple[Tensor, Tensor]:
    """Cosines and sines, each (max_tokens, D); the halves of the last axis are equal."""
    exponents = torch.arange(0, shape.head_dim, 2) / shape.head_dim
    angles = torch.outer(torch.arange(shape.max_tokens).float(), ROPE_BASE**-exponents)
    angles_TD = torch.cat([angles, angles], dim=-1)
    return angles_TD.cos(), angles_TD.sin()


def rotated(x_BHTD: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary position embedding of queries or keys: feature i turns with feature i + D/2."""
    cos_TD, sin_TD = angles
    first, second = x_BHTD.chunk(2, dim=-1)
    return x_BHTD * cos_TD + torch.cat([-second, first], dim=-1) * sin_TD
