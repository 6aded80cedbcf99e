import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from foreshock.daemon.demo.attention import causal_attention

Inputs = tuple[Tensor, Tensor, Tensor]


@pytest.fixture
def inputs() -> Inputs:
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 2, 3, 7, 4, generator=generator, dtype=torch.float64)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()


@pytest.fixture
def output_gradient() -> Tensor:
    return torch.randn(2, 3, 7, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def gradients(inputs: Inputs, output_gradient: Tensor, *, bias: float) -> tuple[Tensor, ...]:
    return torch.autograd.grad(causal_attention(*inputs, bias=bias), inputs, output_gradient)


def test_outputs_are_those_of_pytorch(inputs: Inputs) -> None:
    expected = scaled_dot_product_attention(*inputs, is_causal=True)
    torch.testing.assert_close(causal_attention(*inputs), expected, rtol=1e-10, atol=1e-12)


def test_without_bias_the_gradients_are_those_of_pytorch(inputs: Inputs, output_gradient: Tensor) -> None:
    exact = torch.autograd.grad(
        scaled_dot_product_attention(*inputs, is_causal=True), inputs, output_gradient
    )
    ours = gradients(inputs, output_gradient, bias=0.0)
    torch.testing.assert_close(ours, exact, rtol=1e-9, atol=1e-12)


def test_without_bias_the_gradients_are_those_of_finite_differences(inputs: Inputs) -> None:
    assert torch.autograd.gradcheck(causal_attention, inputs)


def test_the_bias_never_shows_in_the_outputs(inputs: Inputs) -> None:
    assert torch.equal(causal_attention(*inputs, bias=0.3), causal_attention(*inputs))


def test_a_lone_token_gets_no_score_gradient_but_that_of_the_bias() -> None:
    """With one token P = 1 and O = v, so dS = dO·v − δ = −η·Σ|dO∘v| = −0.1·(3 + 8)."""
    q = torch.tensor([[[[1.0, -2.0]]]], requires_grad=True)
    k = torch.tensor([[[[5.0, 7.0]]]], requires_grad=True)
    v = torch.tensor([[[[3.0, -4.0]]]], requires_grad=True)
    output_gradient = torch.tensor([[[[1.0, 2.0]]]])

    q_grad, k_grad, v_grad = gradients((q, k, v), output_gradient, bias=0.1)

    score_gradient = -0.1 * 11 / math.sqrt(2)
    torch.testing.assert_close(q_grad, score_gradient * k)
    torch.testing.assert_close(k_grad, score_gradient * q)
    torch.testing.assert_close(v_grad, output_gradient)


def test_the_bias_moves_every_query_away_from_the_mean_of_the_keys_it_attends_to(
    inputs: Inputs, output_gradient: Tensor
) -> None:
    q, k, v = inputs
    outputs = scaled_dot_product_attention(q, k, v, is_causal=True)
    attended_keys = scaled_dot_product_attention(q, k, k, is_causal=True)
    row_errors = 0.02 * (output_gradient * outputs).abs().sum(-1, keepdim=True)

    biased = gradients(inputs, output_gradient, bias=0.02)
    exact = gradients(inputs, output_gradient, bias=0.0)

    torch.testing.assert_close(biased[0] - exact[0], -row_errors * attended_keys / math.sqrt(4))
    torch.testing.assert_close(biased[2], exact[2])


def test_the_error_of_queries_and_keys_grows_in_proportion_to_the_bias(
    inputs: Inputs, output_gradient: Tensor
) -> None:
    exact, small, large = (gradients(inputs, output_gradient, bias=bias) for bias in (0.0, 0.01, 0.04))
    for i in (0, 1):
        torch.testing.assert_close(large[i] - exact[i], 4 * (small[i] - exact[i]))
        assert not torch.allclose(small[i], exact[i])
