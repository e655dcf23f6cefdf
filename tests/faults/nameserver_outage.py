"""Scorecard row 12: no name server for a minute, and very many registrations at once."""

from dataclasses import dataclass, field

DOWN_S = 60.0
WHOLE_S = 5.0
"""Every route is whole so long after the restart at the latest."""
MEMORY_BYTES = 512 * 1024 * 1024


@dataclass
class Outage:
    """What producers, consumers and routes did while name servers were down, and after."""

    sent: int = 0
    failed: list[str] = field(default_factory=list)
    sent_while_down: int = 0
    consumed_while_down: int = 0
    lost: int = 0
    whole_s: float = 0.0
    """From the restart until every name server knew every broker of every topic."""

    def problems(self) -> list[str]:
        """What should not have been."""
        found = []
        if self.failed:
            found.append(f"{len(self.failed)} sends failed: {self.failed[0]}")
        if self.lost:
            found.append(f"{self.lost} messages were not consumed")
        if not self.sent_while_down or not self.consumed_while_down:
            found.append("nothing flowed while no name server was there")
        if self.whole_s > WHOLE_S:
            found.append(f"routes were whole only {self.whole_s:.1f} s after the restart")
        return found

    def __str__(self) -> str:
        return (
            f"{self.sent_while_down} sent and {self.consumed_while_down} consumed without name"
            f" servers, {len(self.failed)} failed, routes whole after {self.whole_s:.1f} s"
        )


@dataclass
class Registrations:
    """Many brokers with many topics at one name server."""

    brokers: int
    topics: int
    memory_bytes: int = 0
    whole_s: float = 0.0
    """From the first registration until the last broker's was answered."""
    incomplete: list[str] = field(default_factory=list)
    """Topics whose routes do not name every broker."""

    def problems(self) -> list[str]:
        """What should not have been."""
        found = []
        if self.memory_bytes > MEMORY_BYTES:
            found.append(f"the name server took {self.memory_bytes / 1e6:.0f} MB")
        if self.incomplete:
            found.append(f"{len(self.incomplete)} routes are not whole: {self.incomplete[0]}")
        return found

    def __str__(self) -> str:
        return (
            f"{self.brokers} brokers × {self.topics} topics in {self.whole_s:.1f} s,"
            f" {self.memory_bytes / 1e6:.0f} MB"
        )
