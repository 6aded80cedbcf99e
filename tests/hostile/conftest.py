"""One watched process for all hostile files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hostile.guard import Guard


@pytest.fixture(scope="session")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guard]:
    running = Guard(tmp_path_factory.mktemp("warm-up"))
    yield running
    running.close()
