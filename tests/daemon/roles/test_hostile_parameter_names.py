"""Names and numbers that were made to hurt."""

from __future__ import annotations

import time

import pytest

from foreshock.daemon.formats.base import TensorInfo
from foreshock.daemon.roles import HeadsOverride, ModelConfig, resolve
from foreshock.daemon.roles.problems import MAX_SENTENCES

SUFFIX = "layers.0.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a" * 1_000_000,
        "." * 1_000_000,
        "0." * 500_000,
        "layers.0." * 100_000 + "self_attn.q_proj.weight",
        "model.layers.99999999999999999999.self_attn.q_proj.weight",
        "model.layers.-1.self_attn.q_proj.weight",
        "model.layers.{layer}.self_attn.q_proj.weight",
        "model.layers.0.self_attn.q_proj.weight\n",
        "model.layers.0.self_attn.q_proj.weight\0",
        "\ud800.layers.0",
    ],
    ids=lambda name: f"{name[:24]!r}-{len(name)}",
)
def test_no_name_does_harm_and_every_name_is_accounted_for(llama, headers, name: str) -> None:
    started = time.process_time()

    roles = resolve(llama() | headers({name: (4, 4)}), ModelConfig(), HeadsOverride(num_heads=4))

    assert roles.unassigned == (name,)
    assert len(roles.layers) == 2
    assert all(len(warning) < 1000 for warning in roles.warnings)
    assert time.process_time() - started < 2


def test_a_path_of_a_megabyte_is_a_tower_named_in_short(llama, headers) -> None:
    roles = resolve(llama() | headers({"x." * 500_000 + SUFFIX: (64, 64)}), ModelConfig())

    assert len(roles.layers) == 2
    assert all(len(warning) < 1000 for warning in roles.warnings)


def test_control_characters_of_a_path_are_escaped_in_warnings(llama) -> None:
    warnings = resolve(llama() | llama("\x1b[31m\n.", 1), ModelConfig()).warnings

    assert any(r"'\x1b[31m\n'" in warning for warning in warnings)
    assert not any("\x1b" in warning or "\n" in warning for warning in warnings)


def test_ten_thousand_different_problems_are_few_sentences(headers) -> None:
    shapes = {f"layers.{n}.self_attn.q_proj.weight": (n + 1, 7) for n in range(10_000)}

    roles = resolve(headers(shapes), ModelConfig(), HeadsOverride(4, 2, 16))

    assert len(roles.warnings) == MAX_SENTENCES
    assert roles.warnings[-1] == f"and {9_999 - MAX_SENTENCES + 1} more problems of this kind"


def mixture_of_experts(num_tensors: int) -> dict[str, TensorInfo]:
    """A Qwen3-MoE as large as it takes."""
    shapes: dict[str, tuple[int, ...]] = {}
    layer = 0
    while len(shapes) < num_tensors:
        block = f"module.model.layers.{layer}"
        shapes |= {f"{block}.self_attn.{role}_proj.weight": (4096, 2048) for role in "qo"}
        shapes |= {f"{block}.self_attn.{role}_proj.weight": (512, 2048) for role in "kv"}
        shapes |= {
            f"{block}.mlp.gate.weight": (128, 2048),
            f"{block}.post_attention_layernorm.weight": (2048,),
        }
        for expert in range(128):
            shapes |= {
                f"{block}.mlp.experts.{expert}.{part}_proj.weight": (768, 2048)
                for part in ("gate", "up", "down")
            }
        layer += 1
    return {name: TensorInfo(name, "bfloat16", shape) for name, shape in shapes.items()}


def only_attention(num_tensors: int) -> dict[str, TensorInfo]:
    """Far more layers than any model has."""
    names = [
        f"model.layers.{layer}.self_attn.{role}_proj.weight"
        for layer in range(num_tensors // 4)
        for role in "qkvo"
    ]
    return {name: TensorInfo(name, "bfloat16", (64, 64)) for name in names}


def nested_numbers(num_tensors: int) -> dict[str, TensorInfo]:
    """Names that can be read in many ways, none of them right."""
    tail = ".0.layers" * 30
    return {
        f"layers.{n}{tail}": TensorInfo(f"layers.{n}{tail}", "float32", (4, 4)) for n in range(num_tensors)
    }


@pytest.mark.parametrize(
    "make",
    [
        mixture_of_experts,
        pytest.param(only_attention, marks=pytest.mark.slow),
        pytest.param(nested_numbers, marks=pytest.mark.slow),
    ],
)
def test_a_hundred_thousand_tensors_take_a_couple_of_seconds(make) -> None:
    tensors = make(100_000)
    started = time.process_time()

    roles = resolve(tensors, ModelConfig(), HeadsOverride(head_dim=64))

    assert time.process_time() - started < 5
    assert len(roles.unassigned) + len(roles.parameters) == len(tensors)
