"""Roles and heads of modules that transformers itself builds, proved by what the modules compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from foreshock.daemon.formats.base import TensorInfo
from foreshock.daemon.roles import ModelConfig, resolve
from foreshock.daemon.roles.base import ATTENTION, Heads, Layer, Role, RoleMap

pytestmark = pytest.mark.slow  # importing transformers takes seconds

WIDTH, LAYERS, HEADS, KV_HEADS, EXPERTS = 64, 2, 4, 2, 4

EXACT, VISIBLE = 1e-10, 0.01  # of logits that are of order 10
FLOAT32_ROUNDING = 1e-4  # transformers computes norms in float32 whatever the model's dtype

SIZES = {
    "vocab_size": 128,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "intermediate_size": 96,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EXPERT_SIZES = {"num_experts": EXPERTS, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LATENT_SIZES = {
    "num_key_value_heads": HEADS,
    "n_routed_experts": EXPERTS,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_group": 2,
    "topk_group": 1,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
}


@dataclass(frozen=True)
class Case:
    """One kind of model.

    Attributes:
        config: name of its configuration class in transformers.
        table: the architecture that must be found.
        qk_norm: q and k are normalised, so that the size of their rows does not matter.
    """

    config: str
    options: Mapping[str, Any]
    table: str
    num_kv_heads: int = KV_HEADS
    head_dim: int = WIDTH // HEADS
    qk_norm: bool = False
    routed: bool = False


WITH_HEADS = {
    "llama": Case("LlamaConfig", SIZES, "llama"),
    "mistral": Case("MistralConfig", {**SIZES, "head_dim": None}, "llama"),
    "qwen2": Case("Qwen2Config", SIZES, "llama"),
    "qwen3": Case("Qwen3Config", {**SIZES, "head_dim": 24}, "llama", head_dim=24, qk_norm=True),
    "gemma": Case("GemmaConfig", {**SIZES, "head_dim": 24}, "gemma", head_dim=24),
    "gemma2": Case("Gemma2Config", {**SIZES, "head_dim": 16}, "gemma"),
    "gemma3": Case("Gemma3TextConfig", {**SIZES, "head_dim": 24}, "gemma", head_dim=24, qk_norm=True),
    "olmo": Case("OlmoConfig", SIZES, "llama"),
    "olmo2": Case("Olmo2Config", SIZES, "llama", qk_norm=True),
    "gpt2": Case(
        "GPT2Config",
        {"vocab_size": 128, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 64},
        "gpt2",
        num_kv_heads=HEADS,
    ),
    "gpt_neox": Case(
        "GPTNeoXConfig",
        {key: value for key, value in SIZES.items() if key != "num_key_value_heads"},
        "gpt_neox",
        num_kv_heads=HEADS,
    ),
    "mixtral": Case("MixtralConfig", {**SIZES, "num_local_experts": EXPERTS}, "mixtral", routed=True),
    "qwen2_moe": Case(
        "Qwen2MoeConfig",
        {**SIZES, **EXPERT_SIZES, "shared_expert_intermediate_size": 32},
        "qwen_moe",
        routed=True,
    ),
    "qwen3_moe": Case(
        "Qwen3MoeConfig",
        {**SIZES, **EXPERT_SIZES, "head_dim": 24},
        "qwen_moe",
        head_dim=24,
        qk_norm=True,
        routed=True,
    ),
    "olmoe": Case(
        "OlmoeConfig",
        {**SIZES, "num_experts": EXPERTS, "num_experts_per_tok": 2},
        "qwen_moe",
        qk_norm=True,
        routed=True,
    ),
}


@dataclass(frozen=True)
class Built:
    """A module and what we make of it."""

    module: Any
    config: Mapping[str, Any]
    roles: RoleMap

    @property
    def parameters(self) -> dict[str, Tensor]:
        """Its weights by saved name, sharing memory with the module."""
        return dict(self.module.state_dict())

    def logits(self) -> Tensor:
        """What it says to a fixed text."""
        text = torch.arange(24).reshape(2, 12) * 5 % 120 + 3
        with torch.no_grad():
            return self.module(input_ids=text).logits.clone()


@cache
def build(config_class: str, options: tuple[tuple[str, Any], ...]) -> Built:
    """The module in float64 with weights large enough that attention matters."""
    import transformers

    config = getattr(transformers, config_class)(**dict(options))
    torch.manual_seed(0)
    module = (
        transformers.AutoModelForCausalLM.from_config(config, experts_implementation="eager").double().eval()
    )
    for parameter in module.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    values = config.to_dict()
    return Built(module, values, resolve(headers(module), ModelConfig.from_json(values, "config.json")))


def headers(module: Any) -> dict[str, TensorInfo]:
    return {
        name: TensorInfo(name, "float32", tuple(tensor.shape)) for name, tensor in module.state_dict().items()
    }


def moved(model: Built, before: Tensor) -> float:
    """The largest change of any logit."""
    return float((model.logits() - before).abs().max())


def built(case: Case) -> Built:
    return build(case.config, tuple(case.options.items()))


@pytest.fixture(params=WITH_HEADS.values(), ids=WITH_HEADS)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture
def model(case: Case) -> Built:
    return built(case)


def test_every_layer_has_q_k_v_o_and_the_heads_of_the_module(case: Case, model: Built) -> None:
    expected = Heads(HEADS, case.num_kv_heads, case.head_dim, "config.json")

    assert model.roles.architecture == case.table
    assert [layer.index for layer in model.roles.layers] == list(range(LAYERS))
    for layer in model.roles.layers:
        assert set(ATTENTION) <= layer.parts.keys()
        assert layer.heads == expected
        assert (Role.ROUTER in layer.parts) == case.routed
    assert model.roles.warnings == ()


def test_the_matrices_of_all_roles_have_the_shapes_that_the_heads_say(case: Case, model: Built) -> None:
    for layer in model.roles.layers:
        for role in (Role.Q, Role.K, Role.V):
            matrix = layer.parts[role].select(model.parameters[layer.parts[role].parameter])
            assert matrix.shape == (layer.heads.of(role) * case.head_dim, WIDTH)
        output = layer.parts[Role.O].select(model.parameters[layer.parts[Role.O].parameter])
        assert output.shape == (WIDTH, HEADS * case.head_dim)


def test_series_are_named_as_the_module_names_its_parameters(model: Built) -> None:
    for layer in model.roles.layers:
        assert {role: part.parameter for role, part in layer.parts.items()} == layer.names


def test_only_parameters_of_attention_and_routers_have_roles(case: Case, model: Built) -> None:
    assert {*model.roles.parameters, *model.roles.unassigned} == model.parameters.keys()
    gates = [name for name in model.roles.parameters if "gate" in name]
    expected = [f"model.layers.{layer}.mlp.gate.weight" for layer in range(LAYERS)] if case.routed else []
    assert gates == expected


@pytest.mark.parametrize("name", [name for name, case in WITH_HEADS.items() if not case.qk_norm])
def test_scaling_the_queries_of_a_group_and_unscaling_its_keys_changes_nothing(name: str) -> None:
    case, model = WITH_HEADS[name], built(WITH_HEADS[name])
    before = model.logits()
    for layer in model.roles.layers:
        for group in range(case.num_kv_heads):
            with scaled(model, layer, Role.Q, group, 4.0):
                assert moved(model, before) > VISIBLE
                with scaled(model, layer, Role.K, group, 0.25):
                    assert moved(model, before) < EXACT


@pytest.mark.parametrize("name", [name for name, case in WITH_HEADS.items() if case.qk_norm])
def test_swapping_two_groups_in_all_roles_changes_nothing_where_q_and_k_are_normalised(name: str) -> None:
    model = built(WITH_HEADS[name])
    before = model.logits()
    for layer in model.roles.layers:
        swap_groups(model, layer, ATTENTION)
        assert moved(model, before) < FLOAT32_ROUNDING
        for role in ATTENTION:
            swap_groups(model, layer, (role,))
            assert moved(model, before) > VISIBLE
            swap_groups(model, layer, (role,))
        swap_groups(model, layer, ATTENTION)


def test_scaling_the_values_of_a_group_and_unscaling_their_outputs_changes_nothing(
    case: Case, model: Built
) -> None:
    before = model.logits()
    for layer in model.roles.layers:
        for group in range(case.num_kv_heads):
            with scaled(model, layer, Role.V, group, 4.0):
                assert moved(model, before) > VISIBLE
                with scaled(model, layer, Role.O, group, 0.25):
                    assert moved(model, before) < EXACT


@pytest.mark.parametrize("name", [name for name, case in WITH_HEADS.items() if case.routed])
def test_the_gain_of_the_norm_before_a_router_can_be_folded_into_it(name: str) -> None:
    model = built(WITH_HEADS[name])
    for layer in model.roles.layers:
        router = model.parameters[layer.parts[Role.ROUTER].parameter]
        gain = model.parameters[layer.parts[Role.ROUTER_NORM].parameter]
        before, stored_router, stored_gain = router_logits(model, layer), router.clone(), gain.clone()

        gain.fill_(1.0)
        assert (router_logits(model, layer) - before).abs().max() > VISIBLE
        router *= stored_gain + layer.router.norm_offset
        assert (router_logits(model, layer) - before).abs().max() < EXACT

        router.copy_(stored_router)
        gain.copy_(stored_gain)


def router_logits(model: Built, layer: Layer) -> Tensor:
    """What the router of one layer says to the fixed text."""
    seen: list[Tensor] = []
    gate = model.module.model.layers[layer.index].mlp.gate

    def remember(module: Any, inputs: tuple[Tensor, ...], output: Any) -> None:
        seen.append(inputs[0].reshape(-1, WIDTH) @ module.weight.T)

    handle = gate.register_forward_hook(remember)
    try:
        model.logits()
    finally:
        handle.remove()
    return seen[0].detach()


@contextmanager
def scaled(model: Built, layer: Layer, role: Role, group: int, factor: float) -> Iterator[None]:
    """Scale one key group's share of a role, bias included, and take it back."""
    share = share_of_group(model, layer, role, group)
    for rows in slices(model, layer, role, share):
        rows.mul_(factor)
    try:
        yield
    finally:
        for rows in slices(model, layer, role, share):
            rows.div_(factor)


def swap_groups(model: Built, layer: Layer, roles: tuple[Role, ...]) -> None:
    """Exchange the first two key groups of some roles; done twice, nothing has happened."""
    for role in roles:
        first, second = (share_of_group(model, layer, role, group) for group in (0, 1))
        for one, other in zip(
            slices(model, layer, role, first), slices(model, layer, role, second), strict=True
        ):
            kept = one.clone()
            one.copy_(other)
            other.copy_(kept)


def slices(model: Built, layer: Layer, role: Role, share: Tensor) -> list[Tensor]:
    """Views of a role's weight, row by row (of o: column by column), then of what belongs to the rows."""
    part = layer.parts[role]
    weight = model.parameters[part.parameter]
    lines = weight if (role is Role.O) is part.transposed else weight.T
    views = [lines[line] for line in share.tolist()]
    for name in (
        part.parameter.removesuffix("weight") + "bias",
        part.parameter.removesuffix("proj.weight") + "norm.weight",
    ):
        vector = model.parameters.get(name)
        if role is not Role.O and vector is not None and len(vector) == len(lines):
            views += [vector[line] for line in share.tolist()]
    return views


def share_of_group(model: Built, layer: Layer, role: Role, group: int) -> Tensor:
    """Indices of the rows (of o: columns) of the saved tensor that serve one key head."""
    part = layer.parts[role]
    shape = model.parameters[part.parameter].shape
    if role is Role.O:
        numbers = torch.arange(shape[0 if part.transposed else 1])
    else:
        column = torch.arange(shape[1 if part.transposed else 0]).unsqueeze(1)
        numbers = part.select(column.T if part.transposed else column).flatten()
    return numbers.reshape(layer.heads.num_kv_heads, -1)[group]


# Multi-head latent attention ---------------------------------------------------------------------

LATENT = {
    "deepseek_v3": Case("DeepseekV3Config", {**SIZES, **LATENT_SIZES, "q_lora_rank": 24}, "deepseek_v3"),
    "deepseek_v2": Case("DeepseekV2Config", {**SIZES, **LATENT_SIZES, "q_lora_rank": None}, "deepseek_v2"),
}


@pytest.fixture(params=LATENT.values(), ids=LATENT)
def latent(request: pytest.FixtureRequest) -> Built:
    return built(request.param)


def test_latent_attention_is_mapped_as_whole_matrices_without_heads(latent: Built) -> None:
    for layer in latent.roles.layers:
        attention = latent.module.model.layers[layer.index].self_attn
        shapes = {
            role: tuple(layer.parts[role].select(latent.parameters[layer.parts[role].parameter]).shape)
            for role in ATTENTION
        }
        assert layer.heads is None
        assert shapes == {
            Role.Q: (HEADS * 24, 24 if attention.q_lora_rank else WIDTH),
            Role.K: (HEADS * 16, 16),
            Role.V: (HEADS * 16, 16),
            Role.O: (WIDTH, HEADS * 16),
        }
    [warning] = latent.roles.warnings
    assert warning.startswith("layers 0 to 1: multi-head latent attention")


def test_scaling_the_values_of_latent_attention_and_unscaling_outputs_changes_nothing(latent: Built) -> None:
    before = latent.logits()
    for layer in latent.roles.layers:
        part = layer.parts[Role.V]
        weight = latent.parameters[part.parameter]
        rows = part.select(torch.arange(len(weight)).unsqueeze(1)).flatten()
        output = latent.parameters[layer.parts[Role.O].parameter]
        weight[rows] *= 4.0
        assert moved(latent, before) > VISIBLE
        output *= 0.25
        assert moved(latent, before) < EXACT
        weight[rows] *= 0.25
        output *= 4.0


def test_the_dense_first_layer_of_deepseek_has_no_router_and_the_second_has(latent: Built) -> None:
    dense, routed = latent.roles.layers

    assert not {Role.ROUTER, Role.ROUTER_BIAS, Role.ROUTER_NORM} & dense.parts.keys()
    assert routed.names[Role.ROUTER] == "model.layers.1.mlp.gate.weight"
    assert routed.names[Role.ROUTER_NORM] == "model.layers.1.post_attention_layernorm.weight"


@pytest.mark.parametrize(
    ("name", "scoring", "bias"), [("deepseek_v3", "sigmoid", True), ("deepseek_v2", "softmax", False)]
)
def test_deepseek_v3_scores_by_sigmoid_with_a_correction_bias(name: str, scoring: str, bias: bool) -> None:
    routed = built(LATENT[name]).roles.layers[1]

    assert routed.router.scoring == scoring
    assert (Role.ROUTER_BIAS in routed.parts) is bias


# What transformers has in memory, and what it writes into files -----------------------------------


def test_mixtral_is_the_same_in_memory_and_in_files(
    tmp_path: Any, saved: Callable[..., dict[str, Any]]
) -> None:
    case = WITH_HEADS["mixtral"]
    in_memory, config = built(case), ModelConfig.from_json(built(case).config, "config.json")
    in_files = resolve(saved(in_memory.module, tmp_path), config)

    assert in_files.layers[1].names[Role.ROUTER] == "model.layers.1.block_sparse_moe.gate.weight"
    assert in_memory.roles.layers[1].names[Role.ROUTER] == "model.layers.1.mlp.gate.weight"
    assert in_files.architecture == in_memory.roles.architecture == "mixtral"
    assert [layer.heads for layer in in_files.layers] == [layer.heads for layer in in_memory.roles.layers]


@pytest.fixture
def saved() -> Callable[..., dict[str, TensorInfo]]:
    """Headers of the files that `save_pretrained` writes."""

    def headers_of_files(module: Any, directory: Any) -> dict[str, TensorInfo]:
        from safetensors import safe_open

        module.save_pretrained(directory)
        with safe_open(directory / "model.safetensors", framework="pt") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        return {name: TensorInfo(name, "float32", tuple(shape)) for name, shape in shapes.items()}

    return headers_of_files
