"""Two hosts on one machine: network namespaces that a cable joins, which can be unplugged.

A proxy ends a connection or holds its bytes; a cable that is unplugged does neither. Both systems
keep running, nothing is refused or reset, and TCP resends the data when the cable is back.

```
┌─ west ──────────────┐   cable   ┌─ east ──────────────┐
│ 198.18.0.1, 127/8   │ ═════════ │ 198.18.0.2, 127/8   │     no way to anywhere else
└─────────────────────┘           └─────────────────────┘
```
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from shutil import which

_NEEDED = ("unshare", "nsenter", "ip")
_HOLD = "ip link set lo up && echo ready && exec sleep infinity"


class Host:
    """A network namespace, held by a process that sleeps."""

    def __init__(self, ip: str, *before: str) -> None:
        self.ip = ip
        self._holder = subprocess.Popen(
            [*before, "sh", "-c", _HOLD], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert self._holder.stdout is not None
        answer = self._holder.stdout.readline()
        if answer != b"ready\n":
            self.close()
            raise NotAllowed(f"no network namespace: {answer.decode().strip()}")

    @property
    def pid(self) -> int:
        """Of the process that holds the namespace."""
        return self._holder.pid

    @property
    def inside(self) -> tuple[str, ...]:
        """What to put before a command that shall run on this host."""
        target = ("--target", str(self.pid), "--user", "--net", "--preserve-credentials")
        return ("nsenter", *target, "--")

    def ip_command(self, *words: str) -> None:
        """Run `ip` on this host. Raises NotAllowed."""
        ran = subprocess.run([*self.inside, "ip", *words], capture_output=True, text=True)
        if ran.returncode:
            raise NotAllowed(f"ip {' '.join(words)}: {ran.stderr.strip()}")

    def close(self) -> None:
        """The namespace ends with its last process."""
        self._holder.kill()
        assert self._holder.stdout is not None
        self._holder.stdout.close()
        self._holder.wait()


class TwoHosts:
    """Both hosts, and the cable."""

    def __init__(self, west: Host, east: Host) -> None:
        self.west = west
        self.east = east
        west.ip_command(
            *("link", "add", "cable", "type", "veth"),
            *("peer", "name", "cable", "netns", str(east.pid)),
        )
        for host in (west, east):
            host.ip_command("addr", "add", f"{host.ip}/24", "dev", "cable")
            host.ip_command("link", "set", "cable", "up")

    def unplug(self) -> None:
        """Nothing passes any more. Connections stay, and get no answer."""
        self.west.ip_command("link", "set", "cable", "down")

    def plug(self) -> None:
        """Everything passes again."""
        self.west.ip_command("link", "set", "cable", "up")


class NotAllowed(Exception):
    """This machine does not let its users make network namespaces; the text says what failed."""


@contextmanager
def two_hosts() -> Iterator[TwoHosts]:
    """Both exist while the block runs. Raises NotAllowed."""
    missing = [program for program in _NEEDED if which(program) is None]
    if missing:
        raise NotAllowed(f"there is no {', '.join(missing)} on this machine")
    west = Host("198.18.0.1", "unshare", "--user", "--map-root-user", "--net")
    try:
        # The same user namespace, so that one command can reach both.
        enter = ("nsenter", "--target", str(west.pid), "--user", "--preserve-credentials", "--")
        east = Host("198.18.0.2", *enter, "unshare", "--net")
        try:
            yield TwoHosts(west, east)
        finally:
            east.close()
    finally:
        west.close()
