"""What the real Megatron-Core writes as `torch_dist` is read bit for bit under the whole model's names."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest
import torch

from foreshock.daemon.formats import open_checkpoint
from foreshock.daemon.formats.files import Files
from foreshock.daemon.formats.reading import read_tensor
from tests.genuine.environments import generate, interpreter
from tests.writers.weights import same_bits

LAYER = re.compile(r"(?<=\blayers\.)\d+")
EXPERT = re.compile(r"experts\.local_experts\.\d+\.")
SAVED_AS = {
    "input_layernorm.": "self_attention.linear_qkv.layer_norm_",
    "pre_mlp_layernorm.": "mlp.linear_fc1.layer_norm_",
}
"""Its plain layers are saved under the names of Transformer Engine's fused ones."""


def expected_of(directory: Path, kind: str) -> dict[str, torch.Tensor]:
    """The whole model's tensors, put together from the ranks' plain dumps."""
    shards: dict[str, dict[int, torch.Tensor]] = defaultdict(dict)
    dims: dict[str, int] = {}
    for file in sorted(directory.glob("expected_*.pt")):
        dump = torch.load(file, weights_only=True)
        for local, tensor in dump[kind].items():
            name = LAYER.sub(lambda found, first=dump["first_layer"]: str(int(found[0]) + first), local)
            shards[name][dump["tp"]] = tensor
            if local in dump["split_along"]:
                dims[name] = dump["split_along"][local]
    whole: dict[str, torch.Tensor] = {}
    experts: dict[str, list[torch.Tensor]] = defaultdict(list)
    for name, of_rank in shards.items():
        ranks = [of_rank[rank] for rank in sorted(of_rank)]
        tensor = torch.cat(ranks, dims[name]) if name in dims else ranks[0]
        saved, is_expert = EXPERT.subn("experts.experts.", name)
        if is_expert:
            experts[saved].append(tensor)
            continue
        for module, saved_as in SAVED_AS.items():
            saved = saved.replace(module, saved_as)
        whole[saved] = tensor
    return whole | {name: torch.stack(each) for name, each in experts.items()}


@pytest.mark.genuine
@pytest.mark.parametrize(
    ("tp", "pp", "options"),
    [
        (2, 1, []),
        (1, 2, []),
        (2, 1, ["--moe"]),
        (1, 2, ["--layers-apart"]),
        (2, 1, ["--bf16"]),
    ],
    ids=["tp2", "pp2", "moe", "layers-apart", "bf16-with-masters"],
)
def test_torch_dist(tp: int, pp: int, options: list[str], tmp_path: Path) -> None:
    generate(interpreter("megatron"), "megatron_core", [tmp_path, str(tp), str(pp), *options], ranks=2)
    expected = expected_of(tmp_path, "masters")

    checkpoint = open_checkpoint(tmp_path / "iter_0000010")

    assert checkpoint.format == "megatron_core"
    assert expected.keys() <= checkpoint.tensors.keys()
    files = Files(checkpoint.root)
    for name, tensor in expected.items():
        assert same_bits(read_tensor(checkpoint, name, files), tensor), name
