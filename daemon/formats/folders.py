"""Frameworks that keep the model as a PyTorch Distributed Checkpoint in a folder of their own checkpoint.

The optimizer's state lies in a folder beside it, which is never read.
"""

from __future__ import annotations

from foreshock.daemon.formats.dcp import TorchDistributedCheckpoint
from foreshock.daemon.formats.within import Within

_DCP = TorchDistributedCheckpoint()

ACCELERATE_FSDP = Within("accelerate_fsdp", r"pytorch_model_fsdp_\d+", _DCP)
"""Accelerate's `save_state` and Trainer with FSDP and sharded state dicts."""

OLMO_CORE = Within("olmo_core", "model_and_optim", _DCP, marker=".metadata.json")
"""OLMo-core: a directory is renamed before asynchronous savers fill it, so the marker counts."""

LLAMA_FACTORY = Within("llama_factory", "model", _DCP, marker="CHECKPOINT_COMPLETE")
"""LLaMA-Factory v1."""
