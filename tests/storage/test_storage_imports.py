"""What may be imported where."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["records", "errors", "values"])
def test_the_nouns_need_no_database_library(module):
    program = (
        f"import sys, foreshock.storage.{module};"
        "print(sorted({'sqlalchemy', 'alembic', 'sqlite3', 'torch', 'numpy'} & set(sys.modules)))"
    )
    command = [sys.executable, "-I", "-c", program]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "[]\n"
