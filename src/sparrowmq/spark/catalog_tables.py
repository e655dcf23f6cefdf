"""The options of a table of Spark's catalog, which travel in its schema.

    CREATE TABLE orders USING rocketmq OPTIONS (nameServer 'host:9876', subscribe 'orders')
        │ Spark asks the source for the columns, and shows it the options
        ▼
    the first column gets them as metadata, and the catalog keeps columns as they are
        │ SELECT: Spark hands the columns to the source, and no options
        ▼
    the reader takes them out of the metadata

Spark 4.3 keeps the options of a table in its catalog, and `PythonDataSourceV2.getTable` drops them
(docs/decisions/0059). So they are there for tables that were created without columns only: for
others, Spark never asks the source. They are for reading: what is inserted carries the metadata of
the table it comes from, or none.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

OPTIONS = "sparrowmq.options"
"""The name in a column's metadata."""
_PREFIX = "option."
"""What Spark puts before OPTIONS among the properties of a table."""
_OF_CREATE = "provider"
"""A property of every table that is created, and of nothing else."""
_LOCATION = "path"


def given_to_create(options: Mapping[str, str]) -> dict[str, str] | None:
    """The OPTIONS of a CREATE TABLE that asks for its columns; None for anything else."""
    by_name = {name.lower(): text for name, text in options.items()}
    if _OF_CREATE not in by_name:
        return None
    given = {
        name[len(_PREFIX) :]: text for name, text in by_name.items() if name.startswith(_PREFIX)
    }
    # OPTIONS (path '…') is the table's LOCATION to Spark.
    return given | {name: text for name, text in by_name.items() if name == _LOCATION}


def with_options(schema: "StructType", options: Mapping[str, str]) -> "StructType":
    """The columns of a table that remembers its options."""
    from pyspark.sql.types import StructField, StructType

    first, *others = schema.fields
    kept = {**(first.metadata or {}), OPTIONS: json.dumps(dict(options), sort_keys=True)}
    return StructType([StructField(first.name, first.dataType, first.nullable, kept), *others])


def read_with(
    schema: "StructType", options: Mapping[str, str], chosen_by: frozenset[str]
) -> dict[str, str]:
    """The options of a read: of the table that the columns are of, and those given to the read.

    Columns may also be given to a read that is not of their table. It says by one of `chosen_by`
    what it reads, and then the table's options do not count.
    """
    given = {name.lower(): text for name, text in options.items()}
    kept = next((field.metadata[OPTIONS] for field in schema if _has_options(field)), None)
    if kept is None or given.keys() & chosen_by:
        return dict(options)
    return {**json.loads(kept), **given}


def _has_options(field: "StructField") -> bool:
    return OPTIONS in (field.metadata or {})
