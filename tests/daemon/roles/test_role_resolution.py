"""Names and shapes that must have a role, and those that must not."""

from __future__ import annotations

import pytest
import torch

from foreshock.daemon.roles import ARCHITECTURES, HeadsOverride, ModelConfig, resolve
from foreshock.daemon.roles.base import ATTENTION, Heads, Part, Role, RouterTraits

CONFIG = ModelConfig({"num_attention_heads": 4, "hidden_size": 64, "num_key_value_heads": 2}, "config.json")


def gpt2(path: str, attention: tuple[int, int]) -> dict[str, tuple[int, ...]]:
    """Names of GPT-2 and nanoGPT, one block of width 64."""
    return {
        f"{path}h.0.attn.c_attn.weight": attention,
        f"{path}h.0.attn.c_attn.bias": (192,),
        f"{path}h.0.attn.c_proj.weight": (64, 64),
        f"{path}h.0.mlp.c_proj.weight": (256, 64) if attention == (64, 192) else (64, 256),
    }


# Tables --------------------------------------------------------------------------------------------


def test_tables_have_different_names_and_numbered_blocks() -> None:
    assert len({table.name for table in ARCHITECTURES}) == len(ARCHITECTURES)
    assert all(table.block.endswith("{layer}") and table.container.isalpha() for table in ARCHITECTURES)


def test_every_table_gives_all_of_attention() -> None:
    for table in ARCHITECTURES:
        given = {role for roles in table.roles_by_suffix().values() for role in roles}
        assert set(ATTENTION) <= given, table.name


def test_no_tensors_and_strange_names_are_unknown(headers) -> None:
    assert resolve({}, CONFIG).warnings == ("there are no tensors",)
    roles = resolve(headers({"encoder.weight": (4, 4), "a": (4,)}), CONFIG)

    assert (roles.architecture, roles.layers, roles.parameters) == ("unknown", (), ())
    assert roles.unassigned == ("a", "encoder.weight")
    assert "'a', 'encoder.weight'" in roles.warnings[0]
    assert "llama" in roles.warnings[0]


def test_norms_alone_make_no_model(headers) -> None:
    roles = resolve(headers({"model.layers.0.post_attention_layernorm.weight": (64,)}), CONFIG)

    assert roles.architecture == "unknown"


# Fused attention -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "transposed"), [((64, 192), True), ((192, 64), False)])
@pytest.mark.parametrize("path", ["transformer.", "_orig_mod.transformer.", ""])
def test_both_orientations_of_c_attn_are_told_from_its_shape(headers, path, shape, transposed) -> None:
    [layer] = resolve(headers(gpt2(path, shape)), ModelConfig({"n_head": 4}, "config.json")).layers
    thirds = {role: (part.start, part.stop) for role, part in layer.parts.items() if role is not Role.O}

    assert thirds == {Role.Q: (0, 64), Role.K: (64, 128), Role.V: (128, 192)}
    assert {part.transposed for part in layer.parts.values()} == {transposed}
    assert layer.heads == Heads(4, 4, 16, "config.json")
    assert set(layer.names.values()) == {
        "transformer.h.0.attn.c_attn.weight",
        "transformer.h.0.attn.c_proj.weight",
    }


def test_c_attn_splits_in_thirds_without_heads(headers) -> None:
    roles = resolve(headers(gpt2("transformer.", (192, 64))), ModelConfig())

    assert set(roles.layers[0].parts) == set(ATTENTION)
    assert roles.layers[0].heads is None
    assert "--heads" in roles.warnings[0]


def test_the_thirds_of_both_orientations_are_the_same_matrices(headers) -> None:
    stored = torch.arange(192 * 64.0).reshape(192, 64)
    linear, conv = (
        resolve(headers(gpt2("", shape)), ModelConfig()).layers[0] for shape in [(192, 64), (64, 192)]
    )

    for role in (Role.Q, Role.K, Role.V):
        assert torch.equal(linear.parts[role].select(stored), conv.parts[role].select(stored.T))
    assert torch.equal(linear.parts[Role.K].select(stored), stored[64:128])


def test_c_attn_of_another_shape_gets_no_roles_and_takes_c_proj_with_it(headers) -> None:
    roles = resolve(headers(gpt2("", (96, 64))), ModelConfig({"n_head": 4}, "config.json"))

    assert roles.layers == ()
    assert any("(96, 64), not (C, 3C) or (3C, C)" in warning for warning in roles.warnings)
    assert any("attn.c_proj.weight gets no role" in warning for warning in roles.warnings)


@pytest.mark.parametrize(("attention", "output"), [((64, 192), (32, 64)), ((192, 64), (64, 32))])
def test_heads_must_fit_the_inputs_of_c_proj_in_both_orientations(headers, attention, output) -> None:
    names = gpt2("", attention) | {"h.0.attn.c_proj.weight": output}

    roles = resolve(headers(names), ModelConfig({"n_head": 4}, "config.json"))

    assert roles.layers[0].heads is None
    assert "o has 32 columns, but 4 heads of 16 need 64" in roles.warnings[0]


NEOX = {
    "gpt_neox.layers.0.attention.query_key_value.weight": (192, 64),
    "gpt_neox.layers.0.attention.dense.weight": (64, 64),
}


def test_neox_is_split_head_by_head(headers) -> None:
    [layer] = resolve(headers(NEOX), ModelConfig({"num_attention_heads": 4, "hidden_size": 64})).layers
    name = "gpt_neox.layers.0.attention.query_key_value.weight"

    assert layer.parts[Role.Q] == Part(name, groups=4, group_rows=48, start=0, stop=16)
    assert layer.parts[Role.K] == Part(name, groups=4, group_rows=48, start=16, stop=32)
    assert layer.parts[Role.V] == Part(name, groups=4, group_rows=48, start=32, stop=48)


def test_neox_without_heads_gets_no_q_k_v_and_a_warning(headers) -> None:
    roles = resolve(headers(NEOX), ModelConfig())

    assert set(roles.layers[0].parts) == {Role.O}
    assert roles.unassigned == ("gpt_neox.layers.0.attention.query_key_value.weight",)
    assert any("query_key_value.weight holds [q k v] head by head" in each for each in roles.warnings)
    assert any("--heads" in each for each in roles.warnings)


@pytest.mark.parametrize(
    ("heads", "config"),
    [
        (HeadsOverride(num_heads=4, num_kv_heads=2), {}),
        (HeadsOverride(num_heads=5), {}),
        (None, {"num_attention_heads": 4, "hidden_size": 128}),
    ],
)
def test_neox_with_heads_that_do_not_fit_is_not_split(headers, heads, config) -> None:
    roles = resolve(headers(NEOX), ModelConfig(config, "config.json" if config else ""), heads)

    assert set(roles.layers[0].parts) == {Role.O}
    assert roles.layers[0].heads is None


# Routers -------------------------------------------------------------------------------------------

ROUTED = {
    "model.layers.0.mlp.gate.weight": (8, 64),
    "model.layers.0.post_attention_layernorm.weight": (64,),
}


@pytest.mark.parametrize(
    "name",
    [
        "mlp.gate_proj.weight",
        "mlp.shared_expert_gate.weight",
        "mlp.shared_expert.gate_proj.weight",
        "mlp.experts.0.gate_proj.weight",
        "mlp.experts.gate_up_proj",
        "self_attn.gate_proj.weight",
        "self_attn.ve_gate.weight",
        "mlp.gate.bias",
        "xmlp.gate.weight",
        "mlp.gate.weight_scale",
    ],
)
def test_other_gates_are_never_routers(llama, headers, name: str) -> None:
    saved = f"model.layers.0.{name}"

    roles = resolve(llama() | headers({saved: (1, 64)}), CONFIG)

    assert all(Role.ROUTER not in layer.parts for layer in roles.layers)
    assert saved in roles.unassigned


@pytest.mark.parametrize(
    ("model_type", "expected"),
    [
        ("", ("qwen_moe", RouterTraits())),
        ("qwen3_moe", ("qwen_moe", RouterTraits())),
        ("mixtral", ("mixtral", RouterTraits())),
        ("deepseek_v2", ("deepseek_v2", RouterTraits())),
        ("deepseek_v3", ("deepseek_v3", RouterTraits("sigmoid"))),
        ("gemma2", ("gemma", RouterTraits(norm_offset=1.0))),
        (["qwen3_moe"], ("qwen_moe", RouterTraits())),
    ],
)
def test_the_model_type_decides_between_tables_of_the_same_names(
    llama, headers, model_type, expected
) -> None:
    config = ModelConfig({**CONFIG.values, "model_type": model_type}, "config.json")

    roles = resolve(llama() | headers(ROUTED), config)

    assert (roles.architecture, roles.layers[0].router) == expected
    assert roles.layers[0].names[Role.ROUTER] == "model.layers.0.mlp.gate.weight"
    assert Role.ROUTER_BIAS not in roles.layers[0].parts


@pytest.mark.parametrize("model_type", ["", "qwen3_moe"])
def test_a_correction_bias_speaks_of_deepseek_whatever_the_model_type(llama, headers, model_type) -> None:
    config = ModelConfig({**CONFIG.values, "model_type": model_type}, "config.json")
    bias = {"model.layers.0.mlp.gate.e_score_correction_bias": (8,)}

    roles = resolve(llama() | headers(ROUTED | bias), config)

    assert (roles.architecture, roles.layers[0].router.scoring) == ("deepseek_v3", "sigmoid")
    assert Role.ROUTER_BIAS in roles.layers[0].parts


def test_names_outweigh_a_model_type_that_knows_fewer(llama, headers) -> None:
    config = ModelConfig({**CONFIG.values, "model_type": "gpt2"}, "config.json")
    router = headers({"model.layers.0.block_sparse_moe.gate.weight": (8, 64)})

    assert resolve(llama() | router, config).architecture == "mixtral"


def test_attention_outweighs_routers_in_the_choice_of_a_table(llama, headers) -> None:
    routers = headers({f"model.layers.{n}.moe.router.gate.weight": (8, 64) for n in range(30)})

    assert resolve(llama() | routers, CONFIG).architecture == "llama"


@pytest.mark.parametrize("scoring", ["softmax", "sigmoid"])
def test_the_configuration_tells_how_routers_score(llama, headers, scoring: str) -> None:
    config = ModelConfig({**CONFIG.values, "scoring_func": scoring}, "config.json")

    roles = resolve(llama() | headers(ROUTED), config)

    assert roles.layers[0].router.scoring == scoring
    assert roles.warnings == ()


def test_an_unknown_scoring_is_warned_of(llama, headers) -> None:
    config = ModelConfig({**CONFIG.values, "scoring_func": "sqrtsoftplus"}, "config.json")

    [warning] = resolve(llama() | headers(ROUTED), config).warnings

    assert warning == "config.json: routers score by 'sqrtsoftplus', which is not known; softmax is assumed"


def test_gemma_before_version_2_normalises_with_the_usual_norm_and_later_with_its_own(llama, headers) -> None:
    config = ModelConfig({**CONFIG.values, "model_type": "gemma2"}, "config.json")
    later = ROUTED | {"model.layers.0.pre_feedforward_layernorm.weight": (64,)}
    norm = {
        version: resolve(llama() | headers(names), config).layers[0].names[Role.ROUTER_NORM]
        for version, names in {1: ROUTED, 2: later}.items()
    }

    assert norm == {
        1: "model.layers.0.post_attention_layernorm.weight",
        2: "model.layers.0.pre_feedforward_layernorm.weight",
    }


def test_the_norm_of_a_layer_without_a_router_has_no_role(llama, headers) -> None:
    norms = headers({f"model.layers.{n}.post_attention_layernorm.weight": (64,) for n in range(2)})

    roles = resolve(llama() | norms | headers(ROUTED), CONFIG)

    assert [Role.ROUTER_NORM in layer.parts for layer in roles.layers] == [True, False]


def test_a_dense_gate_under_a_routers_name_has_no_role(llama, headers) -> None:
    roles = resolve(llama() | headers({"model.layers.0.mlp.gate.weight": (96, 64)}), CONFIG)

    assert all(Role.ROUTER not in layer.parts for layer in roles.layers)
    assert "layer 0: a matrix named like a router has shape (96, 64)" in roles.warnings[0]


def test_more_experts_than_width_are_believed_if_the_configuration_says_so(llama, headers) -> None:
    config = ModelConfig({**CONFIG.values, "n_routed_experts": 96}, "config.json")

    roles = resolve(llama() | headers({"model.layers.0.mlp.gate.weight": (96, 64)}), config)

    assert Role.ROUTER in roles.layers[0].parts


def test_declared_experts_without_a_router_are_warned_of(llama) -> None:
    config = ModelConfig({**CONFIG.values, "num_local_experts": 8}, "config.json")

    assert resolve(llama(), config).warnings == (
        "config.json declares 8 experts, but no name is known as that of a router",
    )


@pytest.mark.parametrize("shape", [(4,), (9,), (8, 1)])
def test_a_bias_that_does_not_fit_its_router_has_no_role(llama, headers, shape) -> None:
    bias = {"model.layers.0.mlp.gate.e_score_correction_bias": shape}

    roles = resolve(llama() | headers(ROUTED | bias), CONFIG)

    assert Role.ROUTER in roles.layers[0].parts
    assert Role.ROUTER_BIAS not in roles.layers[0].parts
    assert roles.warnings


# torchtitan ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("below", "bias"), [("", "expert_bias"), ("qkv_linear.", "expert_bias_E")])
def test_torchtitan_before_and_after_0_3(headers, below: str, bias: str) -> None:
    names = {
        f"layers.0.attention.{below}wq.weight": (64, 64),
        f"layers.0.attention.{below}wk.weight": (32, 64),
        f"layers.0.attention.{below}wv.weight": (32, 64),
        "layers.0.attention.wo.weight": (64, 64),
        "layers.0.moe.router.gate.weight": (8, 64),
        f"layers.0.moe.{bias}": (8,),
        "layers.0.ffn_norm.weight": (64,),
    }

    roles = resolve(headers(names), ModelConfig(), HeadsOverride(num_heads=4))

    assert roles.architecture == "torchtitan"
    assert roles.layers[0].heads == Heads(4, 2, 16, "--heads")
    assert set(roles.layers[0].names.values()) == set(names)
    assert roles.unassigned == ()
    assert "softmax is assumed: put scoring_func" in roles.warnings[0]


def test_torchtitans_latent_attention_has_no_heads(headers) -> None:
    names = {
        "layers.0.attention.wq_a.weight": (24, 64),
        "layers.0.attention.wq_b.weight": (96, 24),
        "layers.0.attention.wkv_a.weight": (24, 64),
        "layers.0.attention.wkv_b.weight": (128, 16),
        "layers.0.attention.wo.weight": (64, 64),
    }
    config = ModelConfig({"qk_nope_head_dim": 16, "v_head_dim": 16, "n_heads": 4}, "config.json")

    roles = resolve(headers(names), config)

    assert roles.layers[0].heads is None
    assert roles.layers[0].parts[Role.V] == Part("layers.0.attention.wkv_b.weight", 4, 32, 16, 32)
    assert roles.unassigned == ("layers.0.attention.wkv_a.weight", "layers.0.attention.wq_a.weight")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "gets neither without qk_nope_head_dim and v_head_dim"),
        (
            {"qk_nope_head_dim": 16, "v_head_dim": 32},
            "128 rows, no multiple of qk_nope_head_dim 16 + v_head_dim 32",
        ),
    ],
)
def test_latent_keys_and_values_stay_together_when_their_rows_are_not_told(headers, config, said) -> None:
    names = {"layers.0.attention.wq.weight": (96, 64), "layers.0.attention.wkv_b.weight": (128, 16)}

    roles = resolve(headers(names), ModelConfig(config, "config.json"), HeadsOverride(num_heads=4))

    assert set(roles.layers[0].parts) == {Role.Q}
    assert roles.layers[0].heads is None
    assert any(said in warning for warning in roles.warnings)


# Shapes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0,), (4096,), (64, 64, 1), (), (0, 64)])
def test_a_weight_that_is_no_matrix_has_no_role_and_a_warning(llama, headers, shape) -> None:
    name = "model.layers.1.self_attn.q_proj.weight"

    roles = resolve(llama() | headers({name: shape}), CONFIG)

    assert Role.Q not in roles.layers[1].parts
    assert roles.unassigned == (name,)
    assert any(warning.startswith("layer 1: self_attn.q_proj.weight has shape") for warning in roles.warnings)


def test_a_missing_matrix_leaves_the_others_their_roles(llama) -> None:
    tensors = llama()
    del tensors["model.layers.0.self_attn.v_proj.weight"]

    roles = resolve(tensors, CONFIG)

    assert set(roles.layers[0].parts) == {Role.Q, Role.K, Role.O}
    assert roles.layers[0].heads == Heads(4, 2, 16, "config.json")
