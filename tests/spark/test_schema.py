"""The columns: one declaration, from which Spark's and Arrow's schemas follow."""

import pytest

from sparrowmq.spark.schema import (
    READ_COLUMNS,
    READ_NAMES,
    WRITE_COLUMNS,
    SparkColumn,
    arrow_schema,
    read_columns,
    struct_type,
)

pytest.importorskip("pyspark", reason="needs the spark extra: pip install sparrowmq[spark]")


@pytest.mark.parametrize("columns", [READ_COLUMNS, WRITE_COLUMNS], ids=["read", "write"])
def test_the_arrow_schema_equals_the_one_spark_derives(
    columns: tuple[SparkColumn, ...],
) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    derived = to_arrow_schema(struct_type(columns), timezone="UTC")
    assert arrow_schema(columns).equals(derived)


def test_chosen_columns_come_in_the_order_they_are_named_each_once() -> None:
    chosen = read_columns(["body", "Topic", "BODY"])
    assert [column.name for column in chosen] == ["body", "topic"]
    assert read_columns() == READ_COLUMNS


def test_an_unknown_column_is_named_with_the_existing_ones() -> None:
    with pytest.raises(ValueError, match=r"no column 'boddy', allowed are topic, brokerName"):
        read_columns(["boddy"])


def test_every_sql_type_matches_sparks_type() -> None:
    spark = {field.name: field.dataType.simpleString() for field in struct_type(READ_COLUMNS)}
    assert spark == {column.name: column.sql_type for column in READ_COLUMNS}
    assert tuple(spark) == READ_NAMES
