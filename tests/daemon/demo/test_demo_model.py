import math
from pathlib import Path

import pytest
import torch

from foreshock.daemon.demo.checkpoints import save_checkpoint
from foreshock.daemon.demo.model import Decoder, ModelShape, rotary_angles, rotated

LAYER_NAMES = [
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
    "input_layernorm",
    "post_attention_layernorm",
]


@pytest.fixture
def model() -> Decoder:
    torch.manual_seed(0)
    return Decoder(ModelShape())


@pytest.fixture
def tokens() -> torch.Tensor:
    return torch.randint(256, (3, 40), generator=torch.Generator().manual_seed(0))


def test_parameters_are_named_as_in_hugging_face_llama(model: Decoder) -> None:
    layers = [f"model.layers.{i}.{name}.weight" for i in range(2) for name in LAYER_NAMES]
    others = ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"]
    assert set(model.state_dict()) == {*layers, *others}


def test_a_byte_never_sees_those_after_it(model: Decoder, tokens: torch.Tensor) -> None:
    changed = tokens.clone()
    changed[:, 20:] = 7
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(after[:, :20], before[:, :20])
    assert not torch.allclose(after[:, 20:], before[:, 20:])


def test_a_model_that_knows_nothing_loses_the_logarithm_of_the_vocabulary(
    model: Decoder, tokens: torch.Tensor
) -> None:
    torch.nn.init.zeros_(model.lm_head.weight)
    assert model.loss(tokens).item() == pytest.approx(math.log(256))


def test_the_loss_is_that_of_the_next_byte(model: Decoder, tokens: torch.Tensor) -> None:
    log_shares = model(tokens).log_softmax(-1)
    chosen = [log_shares[row, t, tokens[row, t + 1]] for row in range(3) for t in range(39)]
    assert model.loss(tokens).item() == pytest.approx(-torch.stack(chosen).mean().item(), rel=1e-5)


def test_rotation_leaves_the_first_token_and_all_lengths_alone() -> None:
    x = torch.randn(1, 1, 64, 16, generator=torch.Generator().manual_seed(0))
    turned = rotated(x, rotary_angles(ModelShape()))
    torch.testing.assert_close(turned[:, :, 0], x[:, :, 0])
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))


def test_rotated_scores_depend_on_the_distance_of_two_tokens_alone() -> None:
    q, k = torch.randn(2, 16, generator=torch.Generator().manual_seed(0))
    angles = rotary_angles(ModelShape())
    scores = rotated(q.expand(64, 16), angles) @ rotated(k.expand(64, 16), angles).mT
    for distance in (0, 1, 17):
        diagonal = scores.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-4, atol=1e-4)
    assert not torch.isclose(scores[0, 1], scores[0, 17])


def test_the_fault_reaches_queries_and_keys_of_every_layer_and_can_be_taken_back(
    model: Decoder, tokens: torch.Tensor
) -> None:
    weights = [
        projection.weight
        for layer in model.model.layers
        for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj)
    ]

    def gradients(bias: float) -> tuple[torch.Tensor, ...]:
        model.set_attention_bias(bias)
        return torch.autograd.grad(model.loss(tokens), weights)

    exact, biased, restored = gradients(0.0), gradients(0.01), gradients(0.0)
    assert not any(torch.equal(a, b) for a, b in zip(exact, biased, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(exact, restored, strict=True))


@pytest.mark.slow
def test_transformers_loads_a_checkpoint_and_gives_the_same_logits(
    tmp_path: Path, model: Decoder, tokens: torch.Tensor
) -> None:
    from transformers import LlamaForCausalLM

    directory = save_checkpoint(
        tmp_path, tensors=model.state_dict(), config=model.shape.as_config(), state={"global_step": 1}
    )
    theirs, report = LlamaForCausalLM.from_pretrained(directory, output_loading_info=True)

    assert not any(report.values())
    with torch.no_grad():
        torch.testing.assert_close(model(tokens), theirs(tokens).logits, rtol=1e-4, atol=1e-5)
