"""Nobody's own settings reach these tests."""

import os

import pytest


@pytest.fixture(autouse=True)
def nobodys_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.upper().startswith("SPARROWMQ_")]:
        monkeypatch.delenv(name)
