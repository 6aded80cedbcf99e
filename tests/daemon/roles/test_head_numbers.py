"""How many heads: stated, checked, or unknown, and never guessed in silence."""

from __future__ import annotations

import pytest

from foreshock.daemon.errors import ConfigError
from foreshock.daemon.roles import HeadsOverride, ModelConfig, resolve
from foreshock.daemon.roles.base import Heads, Role

# The fixture has 4 heads of 16 rows over 2 key heads.


@pytest.mark.parametrize(
    "values",
    [
        {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "hidden_size": 64},
        {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": None, "hidden_size": 64},
        {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64},
        {"num_attention_heads": 4, "num_query_groups": 2, "kv_channels": 16},
        {"num_attention_heads": 4, "hidden_size": 64},
        {"num_attention_heads": 4},
    ],
)
def test_heads_follow_from_the_configuration(llama, values) -> None:
    roles = resolve(llama(), ModelConfig(values, "config.json"))

    assert {layer.heads for layer in roles.layers} == {Heads(4, 2, 16, "config.json")}
    assert roles.warnings == ()


@pytest.mark.parametrize(
    ("override", "source"),
    [
        (HeadsOverride(4, 2, 16), "--heads, --kv-heads, --head-dim"),
        (HeadsOverride(num_heads=4), "--heads"),
        (HeadsOverride(head_dim=16), "--head-dim"),
    ],
)
def test_heads_follow_from_options_and_shapes_alone(llama, override, source) -> None:
    roles = resolve(llama(), ModelConfig(), override)

    assert {layer.heads for layer in roles.layers} == {Heads(4, 2, 16, source)}
    assert roles.warnings == ()


def test_options_win_over_the_configuration_number_by_number(llama) -> None:
    config = ModelConfig({"num_attention_heads": 3, "num_key_value_heads": 2}, "config.json")

    roles = resolve(llama(), config, HeadsOverride(num_heads=4))

    assert roles.layers[0].heads == Heads(4, 2, 16, "--heads, config.json")


def test_unknown_heads_are_none_and_one_warning_says_what_would_tell_them(llama) -> None:
    roles = resolve(llama(), ModelConfig())

    assert [layer.heads for layer in roles.layers] == [None, None]
    [warning] = roles.warnings
    assert warning.startswith("layers 0 to 1: the number of heads is unknown (no config.json)")
    assert "give --heads (and --kv-heads), or put the model's config.json beside" in warning


def test_a_configuration_without_heads_is_named(llama) -> None:
    [warning] = resolve(llama(), ModelConfig({"hidden_size": 64}, "/run/config.json")).warnings

    assert "(none of num_attention_heads, n_head in /run/config.json)" in warning


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (HeadsOverride(4, 2, 32), "q has 64 rows, but 4 heads of 32 need 128"),
        (HeadsOverride(4, 4, 16), "k has 32 rows, but 4 heads of 16 need 64"),
        (HeadsOverride(num_heads=5), "which does not divide into the heads stated (H 5)"),
        (HeadsOverride(head_dim=48), "which does not divide into the heads stated (D 48)"),
        (HeadsOverride(num_heads=1), "k has 32 rows, v has 32 rows, o has 64 columns, which does not divide"),
    ],
)
def test_heads_that_contradict_the_shapes_are_none_with_the_numbers(llama, override, said) -> None:
    roles = resolve(llama(), ModelConfig(), override)

    assert [layer.heads for layer in roles.layers] == [None, None]
    [warning] = roles.warnings
    assert said in warning
    assert warning.startswith("layers 0 to 1: ")


def test_query_heads_that_are_no_multiple_of_key_heads_are_a_contradiction(headers) -> None:
    names = {
        "layers.0.self_attn.q_proj.weight": (48, 64),
        "layers.0.self_attn.k_proj.weight": (32, 64),
    }

    roles = resolve(headers(names), ModelConfig(), HeadsOverride(3, 2, 16))

    assert roles.layers[0].heads is None
    assert "3 query heads are no multiple of 2 key heads" in roles.warnings[0]


def test_a_wrong_configuration_is_named_beside_its_numbers(llama) -> None:
    config = ModelConfig({"num_attention_heads": 4, "hidden_size": 128}, "/other/config.json")

    [warning] = resolve(llama(), config).warnings

    assert "4 heads of 32 need 128" in warning
    assert "heads come from /other/config.json" in warning


def test_only_the_layers_that_contradict_lose_their_heads(llama, headers) -> None:
    tensors = llama(num_layers=5)
    for layer in (1, 3):
        tensors |= headers({f"model.layers.{layer}.self_attn.q_proj.weight": (96, 64)})

    roles = resolve(tensors, ModelConfig(), HeadsOverride(4, 2, 16))

    assert [layer.heads is None for layer in roles.layers] == [False, True, False, True, False]
    assert roles.warnings[0].startswith("layers 1, 3: q has 96 rows, but 4 heads of 16 need 64")


def test_a_query_projection_of_latent_attention_has_no_heads(headers) -> None:
    names = {
        "model.layers.0.self_attn.q_proj.weight": (96, 64),
        "model.layers.0.self_attn.kv_a_proj_with_mqa.weight": (24, 64),
        "model.layers.0.self_attn.o_proj.weight": (64, 64),
    }

    roles = resolve(headers(names), ModelConfig({"num_attention_heads": 4, "head_dim": 24}, "config.json"))

    assert roles.layers[0].heads is None
    assert set(roles.layers[0].parts) == {Role.Q, Role.O}
    assert "multi-head latent attention" in roles.warnings[0]
    assert "only whole matrices are measured" in roles.warnings[0]


@pytest.mark.parametrize("option", ["num_heads", "num_kv_heads", "head_dim"])
def test_an_option_below_one_is_refused(option: str) -> None:
    with pytest.raises(ConfigError, match="0: must be at least 1"):
        HeadsOverride(**{option: 0})
