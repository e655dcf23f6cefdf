"""One Spark session and one cluster for all Spark tests of a run, in one process of it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from sparrowmq.spark.wire.cluster import RemoteCluster
from sparrowmq.spark.wire.remoting import Remoting
from sparrowmq.testing import Cluster, cluster
from tests.patience import PATIENCE_S
from tests.spark.standalone import QUICK_JAVA
from tests.spark.topics import SHORT_LOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.stream_readers import Open

IS_MISSING = importlib.util.find_spec("pyspark") is None


def pytest_itemcollected(item: pytest.Item) -> None:
    """`-m "not spark"` leaves out this folder."""
    item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session", autouse=True)
def patient_sockets() -> Iterator[None]:
    """A machine that freezes for longer than the default of 3 s is not a failure."""
    with pytest.MonkeyPatch.context() as patch:
        for kind in (RemoteCluster, Remoting):
            patch.setattr(kind.__init__, "__defaults__", (PATIENCE_S,))
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small session; made once, because starting Java takes seconds."""
    if IS_MISSING:
        pytest.skip("needs the spark extra: pip install sparrowmq[spark]")
    from sparrowmq.spark.session import spark_session

    folder = tmp_path_factory.mktemp("spark")
    session = spark_session(
        "tests",
        master="local[2]",
        settings={
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": QUICK_JAVA,
            "spark.python.daemon.module": "tests.spark.warm_daemon",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "1",
            # A hundred queries over a few rows: compiling each to Java costs more than running it,
            # and so does planning it again after every stage.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
        },
    )
    try:
        yield session
    finally:
        session.stop()


@pytest.fixture(scope="session")
def running() -> Iterator[Cluster]:
    """A name server and a broker; every test uses its own topics."""
    with cluster(store=SHORT_LOG) as started:
        yield started


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic that no other test has."""
    return f"{request.node.path.stem}-{request.node.name}".replace("test_", "")


@pytest.fixture
def reader_of() -> Iterator[Open]:
    """Makes stream readers that are stopped when the test ends."""
    from tests.spark.stream_readers import stream_readers

    with stream_readers() as made:
        yield made
