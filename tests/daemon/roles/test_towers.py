"""Of several sets of weights in one checkpoint, one is measured."""

from __future__ import annotations

import pytest

from foreshock.daemon.roles import ARCHITECTURES, ModelConfig, resolve
from foreshock.daemon.roles.base import Role
from foreshock.daemon.roles.towers import MAX_SUFFIX_CHARACTERS, Place, places

CANONICAL = "model.layers.0.self_attn.q_proj.weight"


@pytest.mark.parametrize("path", ["model.", "", "app.model.", "state.model.", "base_model.model.model."])
def test_whatever_stands_before_the_blocks_series_have_one_name(llama, path: str) -> None:
    roles = resolve(llama(path), ModelConfig())

    assert roles.architecture == "llama"
    assert roles.layers[0].names[Role.Q] == CANONICAL
    assert roles.layers[0].parts[Role.Q].parameter == f"{path}layers.0.self_attn.q_proj.weight"
    assert roles.unassigned == ()


def test_a_suffix_counts_only_after_a_dot(llama) -> None:
    assert resolve(llama("model.my_"), ModelConfig()).architecture == "unknown"


def test_the_tower_with_most_layers_is_measured_and_the_other_named(llama) -> None:
    roles = resolve(llama("language.", 3) | llama("vision.", 2), ModelConfig())

    assert {name.split(".")[0] for name in roles.parameters} == {"language"}
    assert roles.unassigned == tuple(sorted(llama("vision.", 2)))
    assert (
        "only 'language' (3 layers) is measured; parameters of the same names are left out below"
        in (roles.warnings[0])
    )
    assert "'vision' (2 layers)" in roles.warnings[0]


def test_a_deeper_vision_tower_without_o_does_not_win(llama) -> None:
    vision = {name: info for name, info in llama("vision.", 9).items() if "o_proj" not in name}

    roles = resolve(vision | llama("model.", 2), ModelConfig())

    assert len(roles.layers) == 2


def test_without_any_whole_attention_the_deeper_tower_is_measured(llama) -> None:
    tensors = llama("a.", 2) | llama("deeper.tower.", 3)
    queries = {name: info for name, info in tensors.items() if "q_proj" in name}

    assert len(resolve(queries, ModelConfig()).layers) == 3


@pytest.mark.parametrize("copy", ["ema.", "ema.model.", "optimizer.state.fp32_param.model.", "swa."])
def test_a_copy_of_equal_size_is_left_out(llama, copy: str) -> None:
    roles = resolve(llama(copy) | llama("model."), ModelConfig())

    assert roles.parameters == tuple(sorted(llama("model.")))


def test_ties_go_to_the_shortest_path(llama) -> None:
    roles = resolve(llama("b.model.") | llama("z.") | llama("yy."), ModelConfig())

    assert roles.parameters == tuple(sorted(llama("z.")))


def test_a_copy_alone_is_measured(llama) -> None:
    assert len(resolve(llama("ema.model."), ModelConfig()).layers) == 2


def test_optimizer_moments_are_no_weights(llama, headers) -> None:
    moments = headers({f"optim.{name}.exp_avg": info.shape for name, info in llama().items()})

    roles = resolve(llama() | moments, ModelConfig())

    assert roles.unassigned == tuple(sorted(moments))
    assert not any("left out" in warning for warning in roles.warnings)


def test_many_towers_are_named_in_one_bounded_sentence(llama) -> None:
    tensors = llama("model.", 3)
    for number in range(50):
        tensors |= llama(f"copy{number}.")

    warning = resolve(tensors, ModelConfig()).warnings[0]

    assert "and 45 more" in warning
    assert len(warning) < 400


def test_a_name_is_read_at_the_number_before_a_known_suffix() -> None:
    [place] = places("a.layers.3.layers.12.w", {"w": {"layers"}})

    assert place == Place("a.layers.3", "layers", 12, "w")


def test_a_suffix_means_nothing_below_another_container() -> None:
    assert list(places("a.experts.12.w", {"w": {"layers"}})) == []


@pytest.mark.parametrize(
    "number", ["99999999999999999999", "100000", "00", "007", "-1", "+1", "1_0", "\u0663", " 1", "1e3", ""]
)
def test_what_is_no_layer_number_below_100000_is_none(number: str) -> None:
    assert list(places(f"model.layers.{number}.w", {"w": {"layers", "model"}})) == []


def test_the_largest_layer_number_is_99999(headers) -> None:
    roles = resolve(headers({"layers.99999.self_attn.q_proj.weight": (4, 4)}), ModelConfig())

    assert [layer.index for layer in roles.layers] == [99999]


def test_every_suffix_is_short_enough_to_be_found() -> None:
    suffixes = [suffix for table in ARCHITECTURES for suffix in table.roles_by_suffix()]

    assert max(map(len, suffixes)) + len(".99999.") < MAX_SUFFIX_CHARACTERS
