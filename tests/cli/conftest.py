"""Settings of the machine do not reach these tests."""

import os

import pytest


@pytest.fixture(autouse=True)
def no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.upper().startswith("SPARROWMQ_")]:
        monkeypatch.delenv(name)
