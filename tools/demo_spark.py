"""The end of the demo: the orders as a Spark stream, as Parquet, as a table and as a chart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from tools.chart import bar_chart

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ATTEMPTS = 5
SLOW_START = "Python worker failed to connect back"
FIELDS = "`order` string, city string, amount int"


@dataclass(frozen=True)
class City:
    """What was ordered in one city, in euros."""

    name: str
    orders: int
    created: int
    """The value of all orders …"""
    paid: int
    """… and of those that were paid."""


def stream_to_parquet(spark: SparkSession, name_server: str, topic: str, folder: Path) -> DataFrame:
    """Stream a whole topic into Parquet files; returns them as a DataFrame."""
    stream = (
        spark.readStream.format("rocketmq")
        .option("nameServer", name_server)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("group", "analytics")
        .load()
    )
    writer = (
        with_orders(stream)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
    )
    run_patiently(lambda: writer.start(str(folder / "orders")).awaitTermination())
    return spark.read.parquet(str(folder / "orders"))


def run_patiently(query: Callable[[], object]) -> None:
    """Runs a query again if a Python worker started too slowly; it continues at its checkpoint.

    Spark allows a worker ten seconds to start; on a loaded machine that may not be enough.
    """
    from pyspark.errors import StreamingQueryException

    for attempts_left in reversed(range(ATTEMPTS)):
        try:
            query()
        except StreamingQueryException as error:
            if not attempts_left or SLOW_START not in str(error):
                raise
        else:
            return


def with_orders(messages: DataFrame) -> DataFrame:
    """Messages to orders: the fields of the JSON body, plus the tag."""
    from pyspark.sql import functions as F

    order = F.from_json(F.col("body").cast("string"), FIELDS)
    return messages.select(order.alias("order"), "tags").select("order.*", "tags")


def by_city(orders: DataFrame) -> DataFrame:
    """Orders and amounts of every city, largest first."""
    from pyspark.sql import functions as F

    def amount(tag: str) -> Column:
        return F.sum(F.when(F.col("tags") == tag, F.col("amount")).otherwise(0)).alias(tag)

    counted = F.countDistinct("order").alias("orders")
    grouped = orders.groupBy("city").agg(counted, amount("created"), amount("paid"))
    return grouped.orderBy(F.desc("created"), "city")


def cities(orders: DataFrame) -> list[City]:
    """The aggregate, computed by Spark."""
    return [
        City(row["city"], row["orders"], row["created"], row["paid"])
        for row in by_city(orders).collect()
    ]


def show(console: Console, found: list[City]) -> None:
    """The aggregate as a table."""
    table = Table("", "city", "orders", "created €", "paid €", box=None, padding=(0, 1))
    for column in table.columns[2:]:
        column.justify = "right"
    for city in found:
        numbers = (city.orders, city.created, city.paid)
        table.add_row("", city.name, *(f"{number:,}" for number in numbers))
    console.print(table)


def write_chart(found: list[City], path: Path) -> Path:
    """The aggregate as a chart."""
    orders = sum(city.orders for city in found)
    text = bar_chart(
        "Order value by city",
        f"in euros, from {orders:,} orders that Spark read from the broker",
        ("created", "paid"),
        {city.name: (city.created, city.paid) for city in found},
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
