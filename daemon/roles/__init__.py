"""Parameter name and configuration → layer, role, heads; one table per family of models.

To add a family: write one file with one `Architecture`, and name it in `ARCHITECTURES`.
"""

from __future__ import annotations

from collections.abc import Mapping

from foreshock.daemon.formats.base import TensorInfo
from foreshock.daemon.roles.architecture import Architecture
from foreshock.daemon.roles.base import RoleMap
from foreshock.daemon.roles.deepseek import DEEPSEEK_V2, DEEPSEEK_V3
from foreshock.daemon.roles.gpt2 import GPT2
from foreshock.daemon.roles.gpt_neox import GPT_NEOX
from foreshock.daemon.roles.heads import HeadsOverride
from foreshock.daemon.roles.llama import GEMMA, LLAMA
from foreshock.daemon.roles.llama_moe import MIXTRAL, QWEN_MOE
from foreshock.daemon.roles.model_config import ModelConfig, find_model_config
from foreshock.daemon.roles.resolution import resolve_with
from foreshock.daemon.roles.torchtitan import TORCHTITAN

__all__ = ["ARCHITECTURES", "HeadsOverride", "ModelConfig", "find_model_config", "resolve"]

ARCHITECTURES: tuple[Architecture, ...] = (
    LLAMA,
    QWEN_MOE,
    MIXTRAL,
    DEEPSEEK_V2,
    DEEPSEEK_V3,
    GEMMA,
    GPT2,
    GPT_NEOX,
    TORCHTITAN,
)
"""Where two tables fit a checkpoint equally well and no `model_type` decides, the first is taken."""


def resolve(
    tensors: Mapping[str, TensorInfo], config: ModelConfig, heads: HeadsOverride | None = None
) -> RoleMap:
    """Find what every tensor of a checkpoint is for.

    Args:
        tensors: headers by saved name.
        config: what is known of the model; `ModelConfig()` when nothing is.
        heads: numbers that the user states; they win over the configuration.

    Returns:
        The layers of one model. What cannot be told is left out (a role, a layer's heads), and a
        warning says so; nothing is guessed in silence. Of a checkpoint that no table knows, the architecture
        is `unknown` and every name unassigned.
    """
    return resolve_with(ARCHITECTURES, tensors, config, heads)
