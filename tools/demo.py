"""`./dev demo`: everything in one process, and what happened to every message."""

import sys

NOT_YET = """\
The demo cannot run yet: the Python client (sparrowmq.client) does not exist in this version.
What works today is listed in docs/status.md; `./dev test` shows it."""


def main() -> None:
    """Tells that there is nothing to show yet, and fails."""
    sys.exit(NOT_YET)


if __name__ == "__main__":
    main()
