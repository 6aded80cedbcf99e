import sysconfig
from pathlib import Path

import pytest
import torch

from foreshock.daemon.demo.corpus import Batches, standard_library_text

ALPHABET = torch.frombuffer(bytearray(b"abcdefghijklmnopqrstuvwxyz"), dtype=torch.uint8)


def test_the_text_is_every_module_in_order_of_name() -> None:
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    assert bytes(standard_library_text().numpy()) == b"".join(path.read_bytes() for path in modules)
    assert {"abc.py", "zipapp.py"} <= {path.name for path in modules}


def test_a_python_without_source_files_is_said_to_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(FileNotFoundError, match="no Python source files"):
        standard_library_text()


def test_rows_are_stretches_of_the_text() -> None:
    rows = Batches(ALPHABET, num_sequences=100, num_tokens=5, seed=0).draw()
    assert rows.shape == (100, 5)
    assert {bytes(row.tolist()) for row in rows} <= {
        bytes(ALPHABET[start : start + 5].tolist()) for start in range(22)
    }


def test_first_and_last_stretch_are_drawn_like_all_others() -> None:
    rows = Batches(ALPHABET[:6], num_sequences=50, num_tokens=5, seed=0).draw()
    assert {bytes(row.tolist()) for row in rows} == {b"abcde", b"bcdef"}


def test_the_seed_decides_what_is_drawn() -> None:
    def two_draws(seed: int) -> torch.Tensor:
        batches = Batches(ALPHABET, num_sequences=8, num_tokens=3, seed=seed)
        return torch.cat([batches.draw(), batches.draw()])

    assert torch.equal(two_draws(4), two_draws(4))
    assert not torch.equal(two_draws(4), two_draws(5))
    assert not torch.equal(two_draws(4)[:8], two_draws(4)[8:])
