"""What the doctor reports: findings, and checks that could not be made.

A check that a peer does not answer becomes a `NotMade` with the reason, and is never silently left
out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sparrowmq.admin.doctor.catalogue import CATALOGUE, Severity
from sparrowmq.admin.values import BrokerFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is wrong with, or worth knowing about, a subject."""

    id: str
    severity: Severity
    subject: str
    """Such as `group billing`."""
    what: str
    evidence: str
    """The figures on which it is based."""
    cause: str
    remedy: str
    command: str
    """To paste into a shell."""

    def __str__(self) -> str:
        return f"{self.severity} {self.id}: {self.subject}: {self.evidence}"


@dataclass(frozen=True, slots=True)
class NotMade:
    """Checks that a peer cannot answer."""

    ids: tuple[str, ...]
    subject: str
    reason: str

    def __str__(self) -> str:
        return f"not made for {self.subject}: {', '.join(self.ids)} ({self.reason})"


@dataclass(frozen=True, slots=True)
class Examination:
    """Everything that the doctor found, worst first."""

    findings: tuple[Finding, ...]
    not_made: tuple[NotMade, ...]
    checked: str
    """What was examined, in one sentence."""
    errors: tuple[BrokerFailure, ...] = ()
    """Brokers that did not answer."""

    @property
    def worst(self) -> Severity | None:
        """The severity of the worst finding, or None."""
        return min(
            (each.severity for each in self.findings), key=lambda each: each.rank, default=None
        )

    @property
    def is_healthy(self) -> bool:
        """Whether there is nothing beyond notes."""
        return self.worst in (None, Severity.NOTE)

    def at_least(self, severity: Severity) -> tuple[Finding, ...]:
        """The findings that are at least this severe."""
        return tuple(each for each in self.findings if each.severity.rank <= severity.rank)


@dataclass(frozen=True, slots=True)
class Decided:
    """What one group of checks found in the facts about one subject."""

    findings: Sequence[Finding] = ()
    not_made: Sequence[NotMade] = ()


def found(
    diagnosis: str, subject: str, evidence: str, command: str, *, cause: str = "", remedy: str = ""
) -> Finding:
    """A finding of the catalogue, with what the facts say beyond it."""
    known = CATALOGUE[diagnosis]
    return Finding(
        id=diagnosis,
        severity=known.severity,
        subject=subject,
        what=known.what,
        evidence=evidence,
        cause=cause or known.cause,
        remedy=remedy or known.remedy,
        command=command,
    )


def examination(
    decided: Iterable[Decided], checked: str, errors: Iterable[BrokerFailure] = ()
) -> Examination:
    """The complete examination: each finding once, worst first."""
    findings: dict[object, Finding] = {}
    not_made: dict[NotMade, None] = {}
    for each in decided:
        for one in each.findings:
            # Every question fails in words of its own at a broker that is silent.
            key = (one.id, one.subject) if one.id == "broker-silent" else one
            findings.setdefault(key, one)
        not_made |= dict.fromkeys(each.not_made)
    ordered = sorted(findings.values(), key=lambda each: each.severity.rank)
    return Examination(tuple(ordered), tuple(not_made), checked, tuple(dict.fromkeys(errors)))


def shorten(names: Iterable[object], most: int = 5) -> str:
    """A few of many names, and how many more there are."""
    texts = [str(each) for each in names]
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more
