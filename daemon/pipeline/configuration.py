"""The model's configuration for a checkpoint, from whoever knows it."""

from __future__ import annotations

import json
from pathlib import Path

from foreshock.daemon.formats.base import Checkpoint
from foreshock.daemon.roles.model_config import ModelConfig, find_model_config, read_model_config

CONFIG_KEY = "foreshock.model_config"
"""Under which a cached checkpoint keeps the configuration it was read with."""


def model_config(checkpoint: Checkpoint, path: Path, config_path: str = "") -> ModelConfig:
    """The model's configuration: the file given, the checkpoint's own, or a config.json near it.

    Raises:
        ConfigError: a file that cannot be read.
    """
    if config_path:
        return read_model_config(Path(config_path))
    cached = checkpoint.metadata.get(CONFIG_KEY)
    if isinstance(cached, str):
        return ModelConfig(json.loads(cached), "base cache")
    own = ModelConfig.from_metadata(checkpoint.metadata, str(path))
    return own or find_model_config(path) or ModelConfig()
