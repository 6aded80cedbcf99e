"""Causal attention whose backward pass can carry the error of a low-precision kernel.

Shapes: B sequences, H heads, T tokens, D features per head.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class CausalAttention(Function):
    """Softmax attention over the past, written out so that its row sums δ can be made wrong.

    The backward pass of a fused kernel rests on one number per row, δ = Σ dO∘O, computed from the
    rounded output. Biased rounding gives it an error of constant sign, which every row of the score
    gradient dS = P∘(dP − δ) then repeats. Here δ = Σ dO∘O + η·Σ|dO∘O|.

    Source: "Why Low-Precision Transformer Training Fails" (arXiv:2510.04212).
    """

    @staticmethod
    def forward(ctx: Any, q_BHTD: Tensor, k_BHTD: Tensor, v_BHTD: Tensor, bias: float) -> Tensor:
        """The outputs of every head."""
        num_tokens, head_dim = q_BHTD.shape[-2:]
        scores_BHTT = (q_BHTD / math.sqrt(head_dim)) @ k_BHTD.mT
        future_TT = scores_BHTT.new_full((num_tokens, num_tokens), -math.inf).triu_(1)
        weights_BHTT = torch.softmax(scores_BHTT.add_(future_TT), dim=-1)
        out_BHTD = weights_BHTT @ v_BHTD
        ctx.save_for_backward(q_BHTD, k_BHTD, v_BHTD, weights_BHTT, out_BHTD)
        ctx.bias = bias
        return out_BHTD

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """Gradients of q, k and v; exact when the bias is 0."""
        (grad_BHTD,) = grads
        q_BHTD, k_BHTD, v_BHTD, weights_BHTT, out_BHTD = ctx.saved_tensors
        products_BHTD = grad_BHTD * out_BHTD
        delta_BHT1 = products_BHTD.sum(-1, keepdim=True)
        if ctx.bias:
            delta_BHT1 = delta_BHT1 + ctx.bias * products_BHTD.abs().sum(-1, keepdim=True)
        score_grad_BHTT = (grad_BHTD @ v_BHTD.mT).sub_(delta_BHT1).mul_(weights_BHTT)
        score_grad_BHTT /= math.sqrt(q_BHTD.shape[-1])
        return (
            score_grad_BHTT @ k_BHTD,
            score_grad_BHTT.mT @ q_BHTD,
            weights_BHTT.mT @ grad_BHTD,
            None,
        )


def causal_attention(q_BHTD: Tensor, k_BHTD: Tensor, v_BHTD: Tensor, *, bias: float = 0.0) -> Tensor:
    """Attend to the past.

    Args:
        q_BHTD: queries; keys and values have the same shape.
        k_BHTD: keys.
        v_BHTD: values.
        bias: η ≥ 0, the relative error of δ in the backward pass; the outputs never depend on it.

    Returns:
        Outputs of shape (B, H, T, D).
    """
    out_BHTD: Tensor = CausalAttention.apply(  # type: ignore[no-untyped-call]
        q_BHTD, k_BHTD, v_BHTD, bias
    )
    return out_BHTD
