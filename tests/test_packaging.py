"""What is built is what runs: a wheel from the sdist, in a virtual environment of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.daemon.watch.watching import Job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[1]


def run(*command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=cwd, check=False)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """sdist and, made from it, the wheel; from a copy of what git tracks."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    archive = source / "tree.tar"
    tracked = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).stdout
    with tarfile.open(archive, "w") as tar:
        for name in filter(None, tracked.split("\0")):
            if (ROOT / name).is_symlink() or (ROOT / name).exists():
                tar.add(ROOT / name, name, recursive=False)
    run("tar", "xf", archive, "-C", source)
    archive.unlink()
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source)
    return out


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel; only its dependencies are borrowed from ours."""
    place = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", place)
    (wheel,) = built.glob("*.whl")
    run(place / "bin" / "python", "-m", "pip", "install", "--no-deps", "--no-index", wheel)
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place / "bin"


def test_the_wheel_holds_all_three_packages_with_their_data(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in (
        "foreshock/daemon/py.typed",
        "foreshock/api/py.typed",
        "foreshock/storage/py.typed",
        "foreshock/api/dashboard/index.html",
        "foreshock/api/dashboard/main.js",
        "foreshock/storage/migrations/env.py",
        "foreshock/storage/migrations/script.py.mako",
    ):
        assert wanted in names
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"foreshock"}
    assert any(re.fullmatch(r"foreshock/storage/migrations/versions/0001_.*\.py", name) for name in names)


def test_the_installed_command_runs_the_installed_files(installed: Path, tmp_path: Path) -> None:
    code = "import foreshock.daemon as d, foreshock.storage as s; print(d.__file__, s.__file__)"
    for file in run(installed / "python", "-c", code, cwd=tmp_path).stdout.split():
        assert Path(file).is_relative_to(installed.parent)
    assert run(installed / "foreshock", "--version").stdout.startswith("foreshock 0.")


def test_the_installed_command_measures_and_stores(installed: Path, tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    for step in (10, 20):
        job.save(step)
    done = run(
        installed / "foreshock",
        "measure",
        job.root,
        "--json",
        "--state-dir",
        tmp_path / "state",
        cwd=tmp_path,
    )
    assert [each["state"] for each in json.loads(done.stdout)["checkpoints"]] == ["measured"] * 2
    assert run(installed / "foreshock", "db", "check", "--state-dir", tmp_path / "state").stdout == "sound\n"
