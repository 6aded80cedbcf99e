"""Where a model's configuration is found, and what is believed of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from foreshock.daemon.errors import ConfigError
from foreshock.daemon.roles import ModelConfig, find_model_config, resolve
from foreshock.daemon.roles.base import Heads
from foreshock.daemon.roles.model_config import MAX_CONFIG_BYTES


def write(path: Path, values: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


@pytest.mark.parametrize("place", ["run/out/checkpoint-10", "run/out", "run"])
def test_it_is_found_in_the_checkpoint_and_up_to_two_directories_above(tmp_path: Path, place: str) -> None:
    checkpoint = tmp_path / "run/out/checkpoint-10"
    checkpoint.mkdir(parents=True)
    path = write(tmp_path / place / "config.json", {"n_head": 4})

    found = find_model_config(checkpoint)

    assert found == ModelConfig({"n_head": 4}, str(path))


def test_three_directories_above_is_too_far(tmp_path: Path) -> None:
    checkpoint = tmp_path / "a/b/c"
    checkpoint.mkdir(parents=True)
    write(tmp_path / "config.json", {"n_head": 4})

    assert find_model_config(checkpoint) is None


def test_for_a_file_the_search_starts_in_its_directory(tmp_path: Path) -> None:
    file = tmp_path / "a/b/ckpt.pt"
    write(tmp_path / "config.json", {"n_head": 4})
    file.parent.mkdir(parents=True)
    file.touch()

    assert find_model_config(file).values == {"n_head": 4}


def test_the_nearest_counts(tmp_path: Path) -> None:
    write(tmp_path / "config.json", {"n_head": 8})
    write(tmp_path / "checkpoint-10/config.json", {"n_head": 4})

    assert find_model_config(tmp_path / "checkpoint-10").values == {"n_head": 4}


def test_a_link_is_followed_and_a_dangling_one_is_absent(tmp_path: Path) -> None:
    blob = write(tmp_path / "blobs/abc", {"n_head": 4})
    linked, dangling = tmp_path / "snapshot/x", tmp_path / "dangling/a/b"
    for directory, target in ((linked, blob), (dangling, tmp_path / "nowhere")):
        directory.mkdir(parents=True)
        (directory / "config.json").symlink_to(target)

    assert find_model_config(linked).values == {"n_head": 4}
    assert find_model_config(dangling) is None


def test_a_relative_path_is_searched_upwards_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "config.json", {"n_head": 4})
    (tmp_path / "checkpoint-10").mkdir()
    monkeypatch.chdir(tmp_path / "checkpoint-10")

    assert find_model_config(Path()).values == {"n_head": 4}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe{}", "not UTF-8: invalid start byte at byte 0"),
        (b"[1]", "a JSON list where an object is expected"),
        (b"[" * 200_000, "not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
        (b" " * (MAX_CONFIG_BYTES + 1), "larger than 4194304 bytes"),
    ],
    ids=["empty", "cut", "not-utf8", "list", "deep", "long-number", "large"],
)
def test_a_bad_file_is_an_error_that_names_it_and_the_reason(tmp_path: Path, content, reason) -> None:
    (tmp_path / "config.json").write_bytes(content)

    with pytest.raises(ConfigError) as caught:
        find_model_config(tmp_path)

    assert str(caught.value).startswith(f"{tmp_path / 'config.json'}: ")
    assert reason in str(caught.value)


def test_a_fifo_does_not_block_and_a_directory_is_no_configuration(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    os.mkfifo(tmp_path / "a/config.json")
    (tmp_path / "b/config.json").mkdir(parents=True)

    for place in ("a", "b"):
        with pytest.raises(ConfigError, match=r"config\.json: (not a regular file|cannot be read)"):
            find_model_config(tmp_path / place)


def test_reading_leaves_the_access_time_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "config.json", {})
    os.utime(path, ns=(0, 0))

    find_model_config(tmp_path)

    assert path.stat().st_atime_ns == 0


@pytest.mark.parametrize("key", ["text_config", "llm_config", "language_config"])
def test_of_a_multimodal_model_only_the_language_part_counts(key: str) -> None:
    values = {"num_attention_heads": 99, "vision_config": {"num_attention_heads": 16}, key: {"n_head": 4}}

    assert ModelConfig.from_json(values, "config.json") == ModelConfig({"n_head": 4}, f"config.json ({key})")


@pytest.mark.parametrize(
    "metadata",
    [
        {"iter_num": 3, "model_args": {"n_head": 4, "n_embd": 64, "n_layer": 2}},
        {"args": {"num_attention_heads": 4, "kv_channels": 16, "num_query_groups": 2}},
        {"hyper_parameters": {"num_attention_heads": 4}},
        {"hyper_parameters": {"lr": 1e-3, "model": {"num_attention_heads": 4}}},
        {"model_args": "unreadable", "args": {"n_heads": 4}},
    ],
)
def test_the_checkpoints_own_arguments_are_a_configuration(metadata) -> None:
    found = ModelConfig.from_metadata(metadata, "ckpt.pt")

    assert found.integer(("n_head", "n_heads", "num_attention_heads")) == 4
    assert found.source.endswith(" in ckpt.pt")


@pytest.mark.parametrize("metadata", [{}, {"model_args": {}}, {"args": {"lr": 1}}, {"config": {"n_head": 4}}])
def test_metadata_that_tells_no_heads_is_no_configuration(metadata) -> None:
    assert ModelConfig.from_metadata(metadata, "ckpt.pt") is None


@pytest.mark.parametrize("value", [True, 0, -1, 4.0, "4", [4], None, 1 << 40, float("nan")])
def test_only_whole_numbers_from_1_are_integers(value) -> None:
    config = ModelConfig({"first": value, "second": 3})

    assert config.integer(("first", "second")) == 3
    assert config.integer(("first",)) is None


@pytest.mark.parametrize(("grouped", "num_kv_heads"), [(True, 2), (False, None)])
def test_megatrons_query_groups_count_only_where_they_are_in_use(grouped: bool, num_kv_heads) -> None:
    args = {"num_attention_heads": 4, "num_query_groups": 2, "group_query_attention": grouped}

    found = ModelConfig.from_metadata({"args": args}, "ckpt.pt")

    assert found.integer(("num_query_groups",)) == num_kv_heads


def test_nanogpt_tells_its_own_heads(headers) -> None:
    names = {"transformer.h.0.attn.c_attn.weight": (192, 64), "transformer.h.0.attn.c_proj.weight": (64, 64)}
    own = ModelConfig.from_metadata({"model_args": {"n_head": 4, "n_embd": 64, "n_layer": 1}}, "ckpt.pt")

    [layer] = resolve(headers(names), own).layers

    assert layer.heads == Heads(4, 4, 16, "model_args in ckpt.pt")
