"""The pytest plugin: a cluster as a fixture, and nothing imported before it is used."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


def run_pytest(directory: Path, test: str) -> subprocess.CompletedProcess[str]:
    (directory / "test_it.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "sparrowmq.testing.plugin"]
    options = ["-p", "no:cacheprovider", "--strict-markers", "-W", "error"]
    # An installed SparrowMQ brings its plugin along, and pytest does not take it twice.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [*command, *options, "test_it.py"],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
    )


def test_a_test_gets_its_own_cluster_and_the_tests_of_a_session_may_share_one(
    tmp_path: Path,
) -> None:
    test = """
import pytest
seen = []

@pytest.mark.parametrize("number", range(2))
def test_own(sparrowmq_cluster, number):
    assert list(sparrowmq_cluster.broker_addresses) == ["broker-a"]
    seen.append(sparrowmq_cluster.data_dir)

def test_they_are_two():
    assert len(set(seen)) == 2

@pytest.mark.sparrowmq(brokers=2)
def test_marked(sparrowmq_cluster):
    assert list(sparrowmq_cluster.broker_addresses) == ["broker-a", "broker-b"]

@pytest.mark.sparrowmq(2)
def test_marked_in_short(sparrowmq_cluster):
    assert list(sparrowmq_cluster.broker_addresses) == ["broker-a", "broker-b"]

shared = []

@pytest.mark.parametrize("number", range(2))
def test_shared(sparrowmq_session_cluster, number):
    shared.append(sparrowmq_session_cluster.name_server)

def test_it_is_one():
    assert len(set(shared)) == 1
"""
    result = run_pytest(tmp_path, test)
    assert "8 passed" in result.stdout, result.stdout + result.stderr


def test_a_mistyped_setting_of_the_mark_is_refused_with_the_one_that_is_near(
    tmp_path: Path,
) -> None:
    test = """
import pytest

@pytest.mark.sparrowmq(broker=2)
def test_marked(sparrowmq_cluster):
    pass
"""
    result = run_pytest(tmp_path, test)
    assert "TypeError: the cluster has no setting named broker; did you mean brokers" in (
        result.stdout
    ), result.stdout + result.stderr


def test_a_mark_that_the_shared_cluster_would_ignore_is_refused(tmp_path: Path) -> None:
    test = """
import pytest

@pytest.mark.sparrowmq(brokers=2)
def test_marked(sparrowmq_session_cluster):
    pass
"""
    result = run_pytest(tmp_path, test)
    assert result.returncode == pytest.ExitCode.USAGE_ERROR, result.stdout + result.stderr
    assert "test_marked: the mark sparrowmq does not change sparrowmq_session_cluster" in (
        result.stderr
    ), result.stdout + result.stderr


def test_the_mark_of_a_class_may_be_for_some_of_its_tests(tmp_path: Path) -> None:
    test = """
import pytest

@pytest.mark.sparrowmq(brokers=2)
class TestBoth:
    def test_own(self, sparrowmq_cluster):
        assert list(sparrowmq_cluster.broker_addresses) == ["broker-a", "broker-b"]

    def test_shared(self, sparrowmq_session_cluster):
        assert list(sparrowmq_session_cluster.broker_addresses) == ["broker-a"]
"""
    result = run_pytest(tmp_path, test)
    assert "2 passed" in result.stdout, result.stdout + result.stderr


@pytest.mark.slow
def test_the_examples_of_the_document_pass_as_pasted(tmp_path: Path) -> None:
    document = Path(__file__).parents[2] / "docs" / "testing.md"
    text = document.read_text("utf-8")
    examples = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(examples) == 5
    for example in examples:
        result = run_pytest(tmp_path, example)
        passed = f"{len(re.findall(r'^def test_', example, re.MULTILINE))} passed"
        assert passed in result.stdout, result.stdout + result.stderr


def test_loading_it_imports_nothing_of_the_servers(tmp_path: Path) -> None:
    code = (
        "import sys, sparrowmq.testing.plugin\n"
        "print(sorted(name for name in sys.modules if name.startswith(('sparrowmq', 'msgspec',"
        " 'uvloop'))))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert result.stdout.strip() == str(
        ["sparrowmq", "sparrowmq.testing", "sparrowmq.testing.plugin"]
    )
