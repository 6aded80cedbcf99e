"""One checkpoint per layout, written once; tests that change files get them as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.writers.layout import Layout
from tests.writers.layouts import LAYOUTS
from tests.writers.opening import Saved, files_below
from tests.writers.weights import sample_counters, sample_weights


@pytest.fixture(params=LAYOUTS, ids=str, scope="session")
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    layout: Layout = request.param
    path = tmp_path_factory.mktemp(layout.name)
    weights, counters = sample_weights(), sample_counters()
    layout.write(path, weights | counters)
    return Saved(layout, path, weights, counters)


@pytest.fixture(params=LAYOUTS, ids=str)
def layout(request: pytest.FixtureRequest) -> Layout:
    chosen: Layout = request.param
    return chosen


@cache
def _written(layout: Layout, root: Path) -> Mapping[str, bytes]:
    root.mkdir()
    layout.write(root, sample_weights())
    return {name: (root / name).read_bytes() for name in files_below(root)}


@pytest.fixture
def originals(layout: Layout, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, bytes]:
    """The files of a sound checkpoint by name, for a test to put down again, changed."""
    return _written(layout, tmp_path_factory.getbasetemp() / f"originals-{layout.name}")
