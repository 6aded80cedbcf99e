from __future__ import annotations

from pathlib import Path

import pytest

from foreshock.daemon.config import load_settings, state_directory
from foreshock.daemon.errors import ConfigError


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORESHOCK_CONFIG", "FORESHOCK_TOKEN", "FORESHOCK_PORT", "STATE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)


def toml(path: Path, text: str) -> Path:
    file = path / "foreshock.toml"
    file.write_text(text)
    return file


def test_the_command_line_wins_over_the_environment_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = toml(tmp_path, "port = 1001\nthreads = 3\ninterval_seconds = 7.0\n")
    monkeypatch.setenv("FORESHOCK_PORT", "1002")
    monkeypatch.setenv("FORESHOCK_THREADS", "4")
    settings = load_settings(file, port=1003, run=None)
    assert (settings.port, settings.threads, settings.interval_seconds) == (1003, 4, 7.0)


def test_the_file_may_be_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORESHOCK_CONFIG", str(toml(tmp_path, "lags = [8, 2, 2]\n")))
    assert load_settings().lags == (2, 8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot = 1", "prot: unknown key"),
        ("port = 'http'", "port: "),
        ("port = 99999", "port: "),
        ("lags = [0]", "lags: "),
        ("interval_seconds = nan", "interval_seconds: "),
        ("port = ", "not TOML"),
        ("device = 'gpu'", "device: "),
        ("log_level = 'LOUD'", "log_level: "),
    ],
)
def test_a_wrong_setting_is_named_with_its_file(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_settings(toml(tmp_path, text))
    assert "foreshock.toml" in str(caught.value)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_settings(tmp_path / "absent.toml")


def test_an_open_address_needs_a_token() -> None:
    with pytest.raises(ConfigError, match="not loopback"):
        load_settings(host="0.0.0.0")
    assert load_settings(host="0.0.0.0", token="t" * 32).secret == "t" * 32


def test_a_short_token_is_refused_and_never_shown(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="fewer than 32") as caught:
        load_settings(token="hunter2")
    assert "hunter2" not in str(caught.value)


def test_a_token_is_read_from_a_file_and_hidden_in_what_is_printed(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("s" * 40 + "\n")
    settings = load_settings(token_file=file)
    assert settings.secret == "s" * 40
    assert "s" * 40 not in repr(settings)
    assert "s" * 40 not in repr(load_settings(token="s" * 40))


def test_a_token_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="absent"):
        load_settings(token_file=tmp_path / "absent")


def test_state_lies_where_systemd_or_xdg_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/x")
    assert state_directory() == Path("/x/foreshock")
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/foreshock")
    assert state_directory() == Path("/var/lib/foreshock")


def test_the_default_database_is_sqlite_in_the_state_directory(tmp_path: Path) -> None:
    assert load_settings(state_dir=tmp_path).url == f"sqlite:///{tmp_path}/foreshock.sqlite"
