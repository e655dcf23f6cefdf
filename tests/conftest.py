"""What holds for every test: hypothesis prints how to repeat a failure and never judges by time,
clients of real servers are patient, and of several processes only one runs tests that start Spark.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.patience import be_patient

# The machine may be busy; a property that is slow is not wrong, and neither are slow examples.
PATIENT = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
# A test run is to say the same every time. `--hypothesis-profile explore` looks for what is new.
settings.register_profile("sparrowmq", PATIENT, derandomize=True)
settings.register_profile("explore", PATIENT, max_examples=1000)
settings.load_profile("sparrowmq")

REAL_SERVERS = {"sparrowmq_cluster", "sparrowmq_session_cluster"}


@pytest.fixture(autouse=True)
def patient_clients(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where time is not virtual, a client that gives up after 3 s would judge the machine."""
    if REAL_SERVERS & set(request.fixturenames):
        be_patient(monkeypatch.setitem)


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
