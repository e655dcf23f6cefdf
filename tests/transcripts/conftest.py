"""`--update` writes the current output into the transcripts; review the difference."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write the transcripts anew")


@pytest.fixture
def updates(request: pytest.FixtureRequest) -> bool:
    """Whether transcripts are written instead of compared."""
    return bool(request.config.getoption("--update", default=False))
