"""Settings of the machine do not reach these tests."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def no_settings_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(_empty_folder(tmp_path_factory)))
    for name in [each for each in os.environ if each.upper().startswith("SPARROWMQ_")]:
        monkeypatch.delenv(name)


def _empty_folder(factory: pytest.TempPathFactory) -> Path:
    """Where contexts would be. A folder that does not exist costs nothing."""
    return factory.getbasetemp() / "no-config"
