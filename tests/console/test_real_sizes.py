"""10,000 topics and 1,000 groups of a real broker: lists are paged and searched."""

import re
import time
import urllib.request
from collections.abc import Iterator

import pytest

from sparrowmq.testing import cluster
from tests.cli.test_large_clusters import write_tables
from tests.console.serving import serving
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow  # the same pages over answers that are made up: test_many_names.py


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a console whose broker has that many from its start."""
    folder = tmp_path_factory.mktemp("large")
    write_tables(folder / "broker-a" / "config")
    with (
        cluster(data_dir=folder, max_topics=20_000) as running,
        serving(running.name_server) as found,
    ):
        yield found


@pytest.mark.parametrize(
    ("path", "shown", "count"),
    [
        ("/topics", "topic-00000", "10,000 topics"),
        ("/topics?page=200", "topic-09999", "Page 200 of 200"),
        ("/topics?match=*-0999*", "topic-09990", "10 of 10,000 topics"),
        ("/topics?sort=-name", "topic-09999", "Page 1 of 200"),
        ("/groups", "group-0000", "1,000 groups"),
        ("/groups?page=20", "group-0999", "Page 20 of 20"),
        ("/groups?match=group-00*&page=2", "group-0099", "100 of 1,000 groups"),
        ("/search?q=topic-0999", "topic-09998", "No group has this"),
    ],
)
def test_a_list_of_many_is_answered(path: str, shown: str, count: str, address: str) -> None:
    began = time.perf_counter()
    with urllib.request.urlopen(address + path, timeout=PATIENCE_S) as page:
        html = page.read().decode()
    print(f"{path}: {time.perf_counter() - began:.2f} s, {len(html) / 1024:.0f} KiB")
    text = " ".join(re.sub(r"<[^>]*>", " ", html).split())
    assert shown in text
    assert count in text
    assert html.count('<th scope="row"') <= 50
