"""Names come and go with wrappers; series must not."""

from __future__ import annotations

import pytest

from foreshock.daemon.roles import ModelConfig, resolve
from foreshock.daemon.roles.wrappers import canonical_name, canonical_names


@pytest.mark.parametrize(
    "saved",
    [
        "layers.0.attn.q.weight",
        "module.layers.0.attn.q.weight",
        "module.module.layers.0.attn.q.weight",
        "module._orig_mod.layers.0._checkpoint_wrapped_module.attn.q.weight",
        "_fsdp_wrapped_module.layers.0._fsdp_wrapped_module._orig_mod.attn.q.weight",
    ],
)
def test_wrappers_vanish_anywhere_in_the_path(saved: str) -> None:
    assert canonical_name(saved) == "layers.0.attn.q.weight"


@pytest.mark.parametrize("name", ["my_module.weight", "modules.weight", "module", "a.module", ""])
def test_what_only_looks_like_a_wrapper_stays(name: str) -> None:
    assert canonical_name(name) == name


def test_names_that_would_collide_keep_their_saved_form_and_a_warning_says_so() -> None:
    names, [warning] = canonical_names(["module.a.w", "a.w", "module.b.w"])

    assert names == {"module.a.w": "module.a.w", "a.w": "a.w", "module.b.w": "b.w"}
    assert "2 names collide" in warning
    assert "'module.a.w'" in warning


def test_without_collisions_there_is_no_warning() -> None:
    assert canonical_names(["module.a.w", "b.w"]) == ({"module.a.w": "a.w", "b.w": "b.w"}, ())


def test_a_compiled_and_wrapped_model_has_the_series_of_the_plain_one(llama) -> None:
    plain = resolve(llama(), ModelConfig())
    wrapped = resolve(llama("module._orig_mod.model.") | {}, ModelConfig())

    assert [layer.names for layer in wrapped.layers] == [layer.names for layer in plain.layers]
    assert wrapped.parameters[0] == "module._orig_mod.model.layers.0.self_attn.k_proj.weight"


def test_a_model_saved_twice_under_a_wrapper_is_measured_once(llama) -> None:
    roles = resolve(llama("model.") | llama("module.model."), ModelConfig())

    assert roles.parameters == tuple(sorted(llama("model.")))
    assert roles.unassigned == tuple(sorted(llama("module.model.")))
    assert any("collide" in warning for warning in roles.warnings)
    assert any("'module.model' (2 layers)" in warning for warning in roles.warnings)
