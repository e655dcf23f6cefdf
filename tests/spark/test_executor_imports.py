"""What runs on executors needs the standard library, numpy and pyarrow, and nothing else."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""
OURS = {"click", "lark", "lz4", "msgspec", "rich", "uvloop", "zstandard"}
DRIVER = "import sparrowmq.spark.schema, sparrowmq.spark.wire.cluster, sparrowmq.spark.options"
READ = "import sparrowmq.spark.wire.puller, sparrowmq.spark.decode.decoder"
READ_FILES = "import sparrowmq.spark.log_files.reader, sparrowmq.spark.log_files.rows"
WRITE = "import sparrowmq.spark.write_task"
SPARK = (
    "import pyspark_rocketmq, pyspark_rocketmq_log, sparrowmq.spark.stream, sparrowmq.spark.sink"
)
ZSTD = """
from sparrowmq.spark.decode.decoder import Decoder
data = bytes.fromhex({record!r})
Decoder().decode(data)
"""


def run(code: str, blocked: set[str]) -> subprocess.CompletedProcess[str]:
    script = WITHOUT.format(blocked=blocked) + code
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("code", "blocked"),
    [
        (DRIVER, OURS | {"numpy", "pyarrow", "pandas", "pyspark"}),
        (READ, OURS | {"pandas", "pyspark"}),
        (READ_FILES, OURS | {"pandas", "pyspark"}),
        (WRITE, OURS | {"pandas", "pyspark"}),
        (SPARK, OURS),
    ],
    ids=["schema, routes and options", "reading", "reading files", "writing", "Spark's classes"],
)
def test_modules_load_without_packages_executors_may_lack(code: str, blocked: set[str]) -> None:
    if find_spec("pyspark") is None:
        pytest.skip("needs the spark extra: pip install sparrowmq[spark]")
    ended = run(code, blocked)
    assert ended.returncode == 0, ended.stderr


def test_a_condition_is_left_to_the_broker_if_its_parser_is_missing() -> None:
    condition = (
        "from sparrowmq.spark.options import parse_options\n"
        "parse_options({'subscribe': 'orders', 'sql': 'amount >'})"
    )
    assert run(condition, OURS).returncode == 0
    assert "column 9" in run(condition, set()).stderr


def test_a_missing_compression_library_is_named_with_the_remedy() -> None:
    if find_spec("pyarrow") is None:
        pytest.skip("needs the spark extra: pip install sparrowmq[spark]")
    from sparrowmq.protocol.compression import CompressionType
    from sparrowmq.protocol.sys_flag import COMPRESSED
    from tests.spark.records import record

    packed = record(body=b"?", sys_flag=COMPRESSED | CompressionType.ZSTD.flag)
    ended = run(ZSTD.format(record=packed.hex()), OURS)
    assert ended.returncode == 1
    assert "bodies compressed with zstd" in ended.stderr
    assert "pip install zstandard" in ended.stderr
