"""Reads tests/protocol/vectors: what Apache RocketMQ's own classes wrote."""

import json
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "vectors"


def cases(file: str, name: str | None = None) -> list[dict[str, Any]]:
    """All cases of a file, or those of one name; never an empty list."""
    found = json.loads((_FOLDER / f"{file}.json").read_text())["cases"]
    chosen = [case for case in found if name is None or case["name"] == name]
    assert chosen, f"no case {name} in {file}.json"
    return chosen


def case_id(case: dict[str, Any]) -> str:
    """What pytest shows of a case."""
    return str(case.get("name", ""))
