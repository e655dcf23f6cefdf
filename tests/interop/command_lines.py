"""`sparrowmq` as a long-lived process: one command line a line in, what it printed a line out.

Every command runs through the program's own entry point. An interpreter that starts anew for each
would cost more than the commands do.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from sparrowmq.cli.main import app
from tests.interop.handles import PATIENCE_S
from tests.interop.peers import Peer
from tests.interop.registry import check
from tests.interop.scene import Scene

_ROOT = Path(__file__).parents[2]
_START = (
    f"import sys; sys.path.insert(0, {str(_ROOT)!r}); "
    "from tests.interop.command_lines import main; main()"
)
Row = dict[str, Any]


class CommandLine:
    """Commands that all go to the cluster of a scenario; their journal lies in its folder."""

    def __init__(self, scene: Scene) -> None:
        self._name_server = scene.cluster.name_server
        folder = Path(scene.folder) / "commands"
        self._peer = Peer("commands", [sys.executable, "-c", _START], folder)
        scene.closing(self._peer.close)

    def printed(self, *words: str, code: int = 0, timeout_s: float | None = PATIENCE_S) -> str:
        """Standard output of a command that ends with this code."""
        limit = () if timeout_s is None else ("--timeout", f"{timeout_s:g}s")
        ended = self._peer.call("run", args=[*words, "-n", self._name_server, *limit])
        said = f"{' '.join(words)} ended with {ended['code']}: {ended['errors']}"
        check(ended["code"] == code and "Traceback" not in ended["errors"], said)
        return str(ended["printed"])

    def document(self, *words: str, code: int = 0) -> Row:
        """What a command prints with --json."""
        found: Row = json.loads(self.printed(*words, "--json", code=code))
        check(found["errors"] == [], f"{' '.join(words)}: {found['errors']}")
        return found

    def items(self, *words: str, code: int = 0) -> list[Row]:
        """The rows of a command that every server answered."""
        rows: list[Row] = self.document(*words, code=code)["items"]
        return rows

    def lines(self, *words: str, timeout_s: float | None = PATIENCE_S) -> list[Row]:
        """What a command prints that has one object in a line."""
        return [
            json.loads(line)
            for line in self.printed(*words, "--json", timeout_s=timeout_s).splitlines()
        ]


def main() -> None:
    """Until standard input ends."""
    runner = CliRunner()
    os.environ.update({name: str(Path.cwd()) for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME")})
    for line in sys.stdin:
        ended = runner.invoke(app, json.loads(line)["args"], prog_name="sparrowmq")
        told: dict[str, Any] = {"code": ended.exit_code, "printed": ended.stdout}
        told["errors"] = ended.stderr
        if ended.exception is not None and not isinstance(ended.exception, SystemExit):
            told["errors"] += f"Traceback: {ended.exception!r}"
        sys.stdout.write(json.dumps({"ok": told}) + "\n")
        sys.stdout.flush()
