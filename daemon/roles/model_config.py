"""What is known of a model beside its tensors: `config.json`, or arguments that the checkpoint carries.

Values are data only: nothing is imported, built or looked up by what they say.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from foreshock.daemon.errors import ConfigError

CONFIG_FILE: Final = "config.json"
MAX_CONFIG_BYTES: Final = 4 << 20
MAX_INTEGER: Final = 1 << 31

_LANGUAGE_PARTS = ("text_config", "llm_config", "language_config")
"""Where multimodal models keep the language model's own configuration."""

_OWN_ARGUMENTS = ("model_args", "args", "hyper_parameters")
"""Keys beside the tensors: of nanoGPT, Megatron-LM and GPT-NeoX, Lightning."""

_TELLING = ("num_attention_heads", "n_head", "n_heads")
"""A mapping with one of these speaks of a transformer."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Configuration values of one language model; empty when nothing is known.

    Attributes:
        source: where they come from, for people: the path of a file, or a key of the checkpoint.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""

    @classmethod
    def from_json(cls, values: Mapping[str, Any], source: str) -> ModelConfig:
        """From a parsed `config.json`; of a multimodal model only the language part counts."""
        for key in _LANGUAGE_PARTS:
            part = values.get(key)
            if isinstance(part, Mapping):
                return cls(part, f"{source} ({key})")
        return cls(values, source)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], source: str) -> ModelConfig | None:
        """From the arguments that a checkpoint carries beside its tensors; None if they tell no heads.

        Args:
            metadata: `Checkpoint.metadata`.
            source: the checkpoint's path.
        """
        for key in _OWN_ARGUMENTS:
            for arguments in _mappings(metadata.get(key)):
                if any(telling in arguments for telling in _TELLING):
                    return cls.from_json(_without_idle_groups(arguments), f"{key} in {source}")
        return None

    def integer(self, keys: Iterable[str]) -> int | None:
        """The first of the keys that holds a whole number from 1 to 2³¹; None when none does."""
        for key in keys:
            value = self.values.get(key)
            if type(value) is int and 1 <= value <= MAX_INTEGER:
                return value
        return None

    def text(self, keys: Iterable[str]) -> str:
        """The first of the keys that holds a string; empty when none does."""
        held = (self.values.get(key) for key in keys)
        return next((value for value in held if isinstance(value, str)), "")


def find_model_config(checkpoint: Path) -> ModelConfig | None:
    """The `config.json` beside a checkpoint, or up to two directories above; None if there is none.

    Args:
        checkpoint: a directory, or a file in one.

    Raises:
        ConfigError: the nearest one cannot be read or is no JSON object.
    """
    # Path.is_dir raises where a directory may not be searched; opening then says so as ConfigError.
    directory = checkpoint if os.path.isdir(checkpoint) else checkpoint.parent  # noqa: PTH112
    for place in (directory, *directory.absolute().parents[:2]):
        path = place / CONFIG_FILE
        content = _read(path)
        if content is not None:
            return ModelConfig.from_json(_parsed(content, path), str(path))
    return None


def read_model_config(path: Path) -> ModelConfig:
    """The configuration in a file that the user names.

    Raises:
        ConfigError: it is not there, cannot be read or is no JSON object.
    """
    content = _read(path)
    if content is None:
        raise ConfigError(f"{path}: not there")
    return ModelConfig.from_json(_parsed(content, path), str(path))


def _mappings(value: Any) -> Iterable[Mapping[str, Any]]:
    """The mapping itself, then those directly below it."""
    if isinstance(value, Mapping):
        yield value
        yield from (nested for nested in value.values() if isinstance(nested, Mapping))


def _without_idle_groups(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Megatron saves `num_query_groups` (as 1) even when grouped-query attention is off."""
    if arguments.get("group_query_attention") is not False:
        return arguments
    return {key: value for key, value in arguments.items() if key != "num_query_groups"}


def _read(path: Path) -> bytes | None:
    """The file's bytes; None if there is no such file."""
    try:
        with open(path, "rb", opener=_open_quietly) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{path}: not a regular file")
            content = file.read(MAX_CONFIG_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(content) > MAX_CONFIG_BYTES:
        raise ConfigError(f"{path}: larger than {MAX_CONFIG_BYTES} bytes, which no model's configuration is")
    return content


def _open_quietly(path: str, flags: int) -> int:
    """Leave the access time alone where that is allowed, and do not wait for the writer of a FIFO."""
    try:
        return os.open(path, flags | os.O_NONBLOCK | os.O_NOATIME)
    except PermissionError:  # O_NOATIME is for the owner only
        return os.open(path, flags | os.O_NONBLOCK)


def _parsed(content: bytes, path: Path) -> Mapping[str, Any]:
    try:
        values = json.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not JSON: {error!s:.200}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: a JSON {type(values).__name__} where an object is expected")
    return values
