"""What the README says is true: its commands run, its settings are the defaults, its names exist."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from foreshock.api.app import create_app
from foreshock.api.server import ApiServer
from foreshock.daemon.config import Settings
from foreshock.daemon.errors import IncompleteCheckpoint
from foreshock.daemon.formats.base import Location
from foreshock.daemon.formats.within import Within
from foreshock.daemon.monitors import CATALOGUE
from foreshock.daemon.monitors.base import LayerState
from foreshock.daemon.pipeline.training_log import METRICS
from foreshock.daemon.roles.base import Layer, Role
from foreshock.storage.store import Store
from tests.daemon.cli.test_command_line import foreshock
from tests.daemon.watch.watching import Job
from tests.writers.layouts import write_dcp_grid
from tests.writers.weights import sample_weights

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
NEEDS_A_VALUE = {"token", "token_file", "heads", "kv_heads", "head_dim", "model_config_file"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands() -> list[str]:
    lines = (line.split("#")[0].strip() for block in blocks("sh") for line in block.splitlines())
    return [line for line in lines if line]


def test_every_make_target_it_names_exists() -> None:
    targets = {line.split()[1] for line in commands() if line.startswith("make ")}
    targets |= set(re.findall(r"`make ([a-z-]+)", README))
    assert {"watch", "demo", "test", "check"} <= targets
    for target in targets:
        done = subprocess.run(
            ["make", "--dry-run", target, "CHECKPOINTS=x"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command", sorted({words.split()[0] for words in re.findall(r"`foreshock ([a-z ]+)", README)})
)
def test_every_command_it_names_exists(command: str) -> None:
    assert foreshock(command, "--help").returncode == 0


def test_its_settings_are_all_there_are_and_the_defaults() -> None:
    (text,) = blocks("toml")
    told = tomllib.loads(text)
    told.pop("token_file")
    defaults = Settings().model_dump()
    assert set(told) == set(defaults) - NEEDS_A_VALUE
    told["state_dir"] = Path(told["state_dir"]).expanduser()
    told = {key: tuple(value) if isinstance(value, list) else value for key, value in told.items()}
    defaults["state_dir"] = Path("~/.local/state/foreshock").expanduser()
    assert told == {key: defaults[key] for key in told}


def test_every_metric_it_names_is_measured() -> None:
    names = {metric.name for metric in (*CATALOGUE, *METRICS)}
    families = {name.split(".")[0] for name in names}
    table = README.split("## What it measures")[1].split("##")[0]
    for metric in re.findall(r"`((?:update|weight|qk\w*|router|training)\.[a-z_*]+)`", table):
        family, quantity = metric.split(".")
        if quantity == "*":
            assert family in families
        else:
            assert metric in names


def test_the_files_it_points_to_exist() -> None:
    for path in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"`((?:daemon|api|storage|deploy|\.ci)/[\w./]+)`", README):
        assert (ROOT / path).exists(), path


@pytest.fixture
def served(tmp_path: Path) -> Iterator[int]:
    job = Job(tmp_path / "run")
    for step in (10, 20):
        job.save(step)
    assert foreshock("measure", job.root, state=tmp_path / "state").returncode == 0
    with Store.open(f"sqlite:///{tmp_path}/state/foreshock.sqlite", migrate=False, read_only=True) as store:
        server = ApiServer(create_app(store, version="0"), "127.0.0.1", 0)
        port = server.start()
        yield port
        server.stop()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_its_curl_commands_answer(served: int) -> None:
    curls = [line for line in commands() if line.startswith("curl ")]
    assert curls
    for line in curls:
        done = subprocess.run(
            ["bash", "-c", line.replace("curl -s", "curl -sf").replace(":8742", f":{served}")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, line
        assert len(done.stdout) > 2, line


def test_its_example_of_a_format_works(tmp_path: Path) -> None:
    example, _ = blocks("python")
    names: dict[str, object] = {}
    exec(
        "from foreshock.daemon.formats.dcp import TorchDistributedCheckpoint\n"
        "from foreshock.daemon.formats.within import Within\n" + example,
        names,
    )
    acme = names["ACME"]
    assert isinstance(acme, Within)
    weights = sample_weights()
    write_dcp_grid(tmp_path / "weights", weights)
    with pytest.raises(IncompleteCheckpoint, match=r"done\.json"):
        acme.open(Location.of(tmp_path))
    (tmp_path / "done.json").write_text("{}")
    assert acme.claims(Location.of(tmp_path).names_meant()) == "weights/.metadata"
    assert acme.open(Location.of(tmp_path)).tensors.keys() == weights.keys()


def test_its_example_of_a_monitor_works() -> None:
    _, example = blocks("python")
    names: dict[str, object] = {}
    exec(
        "from collections.abc import Iterator\n"
        "from foreshock.daemon.linalg import Stored, frobenius_norm\n"
        "from foreshock.daemon.monitors.base import LayerState, Monitor, Reading\n"
        "from foreshock.daemon.roles.base import Role\n"
        "from foreshock.storage.records import Metric\n" + example,
        names,
    )
    monitor = names["QKBalance"]
    layer = Layer(0, {}, {Role.Q: "q", Role.K: "k"})
    tensors = {Role.Q: torch.full((4, 4), 2.0), Role.K: torch.ones(4, 4)}
    state = LayerState(layer, 1, tensors, dict.fromkeys(tensors, "float32"))
    (reading,) = monitor().of_state(state)  # type: ignore[operator]
    assert reading.value == pytest.approx(2.0)
