"""The options of a table of Spark's catalog, which travel in its schema.

    CREATE TABLE orders USING rocketmq OPTIONS (nameServer 'host:9876', subscribe 'orders')
        │ Spark asks the source for the columns, and shows it the options
        ▼
    the first column gets them as metadata, and the catalog keeps columns unchanged
        │ SELECT: Spark passes the columns to the source, but no options
        ▼
    the reader takes them out of the metadata

Spark 4.3 keeps the options of a table in its catalog, and `PythonDataSourceV2.getTable` drops them
(docs/decisions/0059). So only tables that were created without columns have them: for others, Spark
never asks the source. They serve reads only: inserted rows carry the metadata of the table they
come from, or none.
"""

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from sparrowmq.spark.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

OPTIONS = "sparrowmq.options"
"""The key in a column's metadata."""
_PREFIX = "option."
"""The prefix that Spark gives to OPTIONS among the properties of a table."""
_OF_CREATE = "provider"
"""A property that every created table has, and nothing else."""
_LOCATION = "path"


def given_to_create(options: Mapping[str, str]) -> dict[str, str] | None:
    """The OPTIONS of a CREATE TABLE that asks for its columns; None for anything else."""
    by_name = {name.lower(): text for name, text in options.items()}
    if _OF_CREATE not in by_name:
        return None
    given = {
        name[len(_PREFIX) :]: text for name, text in by_name.items() if name.startswith(_PREFIX)
    }
    # Spark takes OPTIONS (path '…') for the table's LOCATION.
    return given | {name: text for name, text in by_name.items() if name == _LOCATION}


def with_options(schema: "StructType", options: Mapping[str, str]) -> "StructType":
    """The columns of a table that remembers its options."""
    from pyspark.sql.types import StructField, StructType

    first, *others = schema.fields
    kept = {**(first.metadata or {}), OPTIONS: json.dumps(dict(options), sort_keys=True)}
    return StructType([StructField(first.name, first.dataType, first.nullable, kept), *others])


def read_with(
    schema: "StructType",
    options: Mapping[str, str],
    chosen_by: Collection[str],
    named_by: Collection[str] = (),
) -> dict[str, str]:
    """The options of a read: those of the columns' table, and those given to the read itself.

    The columns of one table may also be given to a read of something else, and Spark shows both
    in the same way. A read that chooses what it reads by one of `chosen_by`, and says by all of
    `named_by` where that lies, needs nothing of the table, and the table's options do not count.
    One that only chooses is refused, because it may mean the table's cluster or that of the
    environment: OptionError.
    """
    given = {name.lower(): text for name, text in options.items()}
    found = next((field.metadata[OPTIONS] for field in schema if _has_options(field)), None)
    if found is None:
        return dict(options)
    kept = json.loads(found)
    chosen = [name for name in chosen_by if name.lower() in given]
    if not chosen:
        return {**kept, **given}
    missing = [name for name in named_by if name.lower() not in given]
    if missing:
        reads = " and ".join(kept[name.lower()] for name in chosen_by if name.lower() in kept)
        raise OptionError(
            chosen[0],
            f'the table reads {reads}; for other topics use format("rocketmq").load(), and give'
            f" also the option {missing[0]} if its columns are those of a table",
        )
    return dict(options)


def _has_options(field: "StructField") -> bool:
    return OPTIONS in (field.metadata or {})
