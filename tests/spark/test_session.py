"""What our session adds to Spark's own."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs the spark extra: pip install sparrowmq[spark]")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_parquet_keeps_dictionaries_of_tags_and_gives_up_those_of_ids_early(
    spark: "SparkSession", tmp_path: Path
) -> None:
    rows = spark.range(0, 20_000, 1, 1)
    # 5,000 ids of 36 bytes are more than 128 KiB, and less than Parquet's own limit of 1 MiB.
    frame = rows.selectExpr("concat('tag-', id % 100) as tags", "lpad(id % 5000, 36, 'x') as msgId")
    frame.write.parquet(str(tmp_path / "written"))
    [file] = (tmp_path / "written").glob("*.parquet")
    assert _with_dictionary(file) == {"tags": True, "msgId": False}


def _with_dictionary(file: Path) -> dict[str, bool]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as opened:
        group: Any = opened.metadata.row_group(0)
        columns = [group.column(place) for place in range(group.num_columns)]
        return {column.path_in_schema: column.has_dictionary_page for column in columns}
