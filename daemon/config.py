"""Settings: command line over environment (`FORESHOCK_…`) over one TOML file over defaults."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from foreshock.daemon.errors import ConfigError

DEFAULT_PORT = 8742
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
MIN_TOKEN_CHARACTERS = 32


def state_directory() -> Path:
    """Where what must survive a restart lies: systemd's, else XDG's, else below the home directory."""
    for variable in ("STATE_DIRECTORY", "XDG_STATE_HOME"):
        value = os.environ.get(variable, "").split(":")[0]
        if value:
            return Path(value) / "foreshock" if variable == "XDG_STATE_HOME" else Path(value)
    return Path("~/.local/state/foreshock").expanduser()


class Settings(BaseSettings):
    """Everything that can be configured; unknown keys are errors."""

    model_config = SettingsConfigDict(
        env_prefix="FORESHOCK_", extra="forbid", hide_input_in_errors=True, frozen=True
    )

    state_dir: Path = Field(default_factory=state_directory, description="database and base cache")
    database_url: str = Field("", description="SQLAlchemy URL; SQLite in the state directory when empty")
    run: str = Field("", description="name of the run; the directory's name when empty")

    interval_seconds: float = Field(10.0, ge=0.2, le=3600, description="between two scans")
    settle_seconds: float = Field(3.0, ge=0, le=3600, description="how long a checkpoint must lie still")
    incomplete_limit_seconds: float = Field(3600.0, gt=0, description="when an unfinished one is given up")
    silence_seconds: float = Field(900.0, gt=1, description="when a reading process counts as hung")

    lags: tuple[int, ...] = Field((1, 4, 16), description="checkpoints between the ends of a difference")
    cache_bytes: int = Field(32 << 30, ge=0, description="bound of the base cache")
    device: str = Field(
        "cpu",
        pattern=r"^(cpu|cuda(:[0-9]+)?)$",
        description="cpu, cuda or cuda:N; never a GPU that was not named",
    )
    threads: int = Field(1, ge=1, le=256, description="CPU threads that compute")

    heads: int | None = Field(None, ge=1, description="query heads, when no configuration tells")
    kv_heads: int | None = Field(None, ge=1, description="key and value heads")
    head_dim: int | None = Field(None, ge=1, description="rows per head")
    model_config_file: Path | None = Field(None, description="config.json of the model")

    host: str = Field("127.0.0.1", description="address of the API; others than loopback need a token")
    port: int = Field(DEFAULT_PORT, ge=0, le=65535)
    allowed_hosts: tuple[str, ...] = Field(
        (), description="further names that clients may call the API by; * for any"
    )
    token: SecretStr = Field(SecretStr(""), description="bearer token of the API")
    token_file: Path | None = Field(None, description="file that holds the token")

    log_level: str = Field("INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")

    @field_validator("lags")
    @classmethod
    def _sorted_lags(cls, lags: tuple[int, ...]) -> tuple[int, ...]:
        if not lags or min(lags) < 1 or max(lags) > 1024:
            raise ValueError("lags lie between 1 and 1024")
        return tuple(sorted(set(lags)))

    @model_validator(mode="after")
    def _closed_by_default(self) -> Settings:
        if self.host not in LOOPBACK and not self.secret:
            raise ValueError(f"host {self.host} is not loopback: give a token (FORESHOCK_TOKEN, token_file)")
        if self.secret and len(self.secret) < MIN_TOKEN_CHARACTERS:
            raise ValueError(f"the token has fewer than {MIN_TOKEN_CHARACTERS} characters")
        return self

    @property
    def secret(self) -> str:
        """The bearer token, from wherever it was given; empty when there is none."""
        if self.token_file is not None:
            try:
                return self.token_file.read_text(encoding="utf-8").strip()
            except OSError as error:
                raise ValueError(f"token_file {self.token_file}: {error.strerror}") from error
        return self.token.get_secret_value()

    @property
    def url(self) -> str:
        """Of the database."""
        file = self.state_dir.expanduser().absolute() / "foreshock.sqlite"
        return self.database_url or f"sqlite:///{quote(str(file))}"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Command line, then environment; the file is merged by `load_settings`."""
        del settings_cls, dotenv_settings, file_secret_settings
        return init_settings, env_settings


def load_settings(file: Path | None = None, **given: Any) -> Settings:
    """The settings that hold.

    Args:
        file: TOML; `FORESHOCK_CONFIG` when None, and no file when that is unset too.
        given: from the command line; None means not given.

    Raises:
        ConfigError: names each wrong key and says why, never a value.
    """
    variable = os.environ.get("FORESHOCK_CONFIG", "")
    path = file or (Path(variable) if variable else None)
    values = _read_toml(path) if path else {}
    environment = {key.upper() for key in os.environ}
    values = {key: value for key, value in values.items() if f"FORESHOCK_{key.upper()}" not in environment}
    values.update({key: value for key, value in given.items() if value is not None})
    try:
        return Settings(**values)
    except ValidationError as error:
        problems = "; ".join(_problem(each) for each in error.errors(include_input=False, include_url=False))
        raise ConfigError(f"{path or 'settings'}: {problems}") from None


def _problem(error: Any) -> str:
    key = ".".join(str(part) for part in error["loc"])
    text = "unknown key" if error["type"] == "extra_forbidden" else str(error["msg"])
    return f"{key}: {text}" if key else text.removeprefix("Value error, ")


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as stream:
            return tomllib.load(stream)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
