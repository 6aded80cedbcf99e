from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from foreshock.daemon.cli.session import observed_run
from foreshock.daemon.config import load_settings
from foreshock.daemon.errors import ConfigError

Name = Callable[..., str]


@pytest.fixture
def name_of(tmp_path: Path) -> Name:
    settings = load_settings(state_dir=tmp_path / "state")

    def name(directory: str, run: str | None = None) -> str:
        chosen = settings if run is None else load_settings(state_dir=tmp_path / "state", run=run)
        with observed_run(chosen, Path(directory), caching=False) as observer:
            return observer.run.name

    return name


def test_a_run_is_called_by_its_directory(name_of: Name) -> None:
    assert name_of("/jobs/llama") == "llama"
    assert name_of("/jobs/llama/") == "llama"


def test_a_directory_name_that_says_nothing_is_led_by_its_parent(name_of: Name) -> None:
    assert name_of("/jobs/llama/checkpoints") == "llama-checkpoints"


def test_two_directories_of_one_name_are_two_runs(name_of: Name) -> None:
    assert [name_of(f"/{user}/x/llama") for user in "abc"] == ["llama", "x-llama", "x-llama-2"]
    assert name_of("/b/x/llama") == "x-llama"


def test_a_given_name_holds(name_of: Name) -> None:
    assert name_of("/jobs/llama", "mine") == "mine"


def test_one_run_has_one_observer(tmp_path: Path) -> None:
    settings = load_settings(state_dir=tmp_path / "state")
    with (
        observed_run(settings, tmp_path / "run", caching=False),
        pytest.raises(ConfigError, match="already observed"),
        observed_run(settings, tmp_path / "run", caching=False),
    ):
        pass


def test_state_in_the_run_s_directory_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    settings = load_settings(state_dir=tmp_path / "run" / "state")
    with (
        pytest.raises(ConfigError, match="nothing may be written"),
        observed_run(settings, tmp_path / "run", caching=False),
    ):
        pass
    assert not (tmp_path / "run").exists()
