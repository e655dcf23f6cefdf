"""What holds for every test: hypothesis prints how to repeat a failure and never judges by time,
and of several processes only one runs tests that start Spark."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

# The machine may be busy; a property that is slow is not wrong.
settings.register_profile("sparrowmq", deadline=None, print_blob=True)
settings.load_profile("sparrowmq")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """For `--dist loadgroup`: xdist 3.8 does not find its groups with pytest 9.2."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # has none

    class SparkInOneProcess(LoadScopeScheduling):  # type: ignore[misc]  # a class without types
        """A Java machine for every process would be too much; all other tests go anywhere."""

        def _split_scope(self, nodeid: str) -> str:
            return "spark" if "tests/spark/" in nodeid else nodeid

    return SparkInOneProcess(config, log)
