"""What operations raise.

AdminError               the operation cannot be done; the text says why and what to do
├── NameServersAway      no name server answers
├── NameServerRefusal    a name server answered with a code other than success
├── BrokerRefusal        a broker answered with a code other than success
├── Unanswered           a server got a request and did not answer: it may have acted
├── Unreachable          no connection to a server could be made: it has not acted
├── NoBrokerAnswers      every broker that was asked failed or refused
├── NotFound             a topic, group, broker, cluster, queue or message does not exist
├── TopicAway            a topic exists, but every broker that has it is gone
├── AlreadyExists        it exists, with settings other than the given ones
├── NotReadable          a broker's permission forbids reading a topic
├── InUse                members are consuming: stop them first
├── DrainUnfinished      a broker takes no new messages, but is not empty yet (in `drains`)
└── PartlyDone           done on some brokers and not on others; it names them
    └── PartlyReset      … and these offsets were moved

Wrong arguments are ValueErrors, raised before anything is sent.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from sparrowmq.admin.values import BrokerFailure
from sparrowmq.client.name_servers import NAME_SERVER_PORT, NOT_A_NAME_SERVER
from sparrowmq.errors import SparrowMQError
from sparrowmq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from sparrowmq.admin.offsets import OffsetMove

_ANSWERED = re.compile(r"^\S+ answered \d+( \(\w+\))?: ")
_SIMILAR = 0.7
"""How like a known name another one must be to be taken for a misspelling of it."""
_MOST_SHOWN = 10
"""The most names in an error text. A cluster may have thousands."""


class AdminError(SparrowMQError):
    """An operation failed as a whole; nothing was changed."""


class NameServersAway(AdminError):
    """None of the name servers at `addresses` answers; `failure` is the last one's failure and
    `origin` says where the addresses come from."""

    def __init__(self, addresses: Sequence[str], failure: str, origin: str = "") -> None:
        named_by = f", from {origin}" if origin else ""
        super().__init__(
            f"no name server answers ({', '.join(addresses)}{named_by}): {failure};"
            " is it running? start one with: sparrowmq up"
        )
        self.addresses = tuple(addresses)
        self.failure = failure
        self.origin = origin


class NameServerRefusal(AdminError):
    """One of the name servers at `addresses` answered `code` with `remark`; `origin` says where the
    addresses come from. Brokers do not know what name servers are asked."""

    def __init__(self, addresses: Sequence[str], code: int, remark: str, origin: str) -> None:
        unknown = f"; that {NOT_A_NAME_SERVER}; {NAME_SERVER_PORT}"
        super().__init__(
            f"the name server ({', '.join(addresses)}, from {origin}) answered {code}: {remark}"
            + (unknown if code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED else "")
        )
        self.addresses = tuple(addresses)
        self.origin = origin
        self.code = code
        self.remark = remark


class BrokerRefusal(AdminError):
    """The server at `address` answered `code` with `remark`."""

    def __init__(self, address: str, code: int, remark: str) -> None:
        is_known = code in ResponseCode.__members__.values()
        name = f" ({ResponseCode(code).name})" if is_known else ""
        super().__init__(f"{address} answered {code}{name}: {remark or 'no reason given'}")
        self.address = address
        self.code = code
        self.remark = remark


class Unanswered(AdminError):
    """A server was sent a request and did not answer in time. It may have acted, or act later."""


class Unreachable(AdminError):
    """No connection to a server could be made. It has not acted, and will not."""


def is_unsupported(error: AdminError) -> bool:
    """Whether a server does not know the request: Apache's lack some of ours."""
    if not isinstance(error, BrokerRefusal):
        return False
    return error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def failure_of(broker: str, address: str, error: AdminError) -> BrokerFailure:
    """A broker's failure as a value, for a result with the answers of other brokers."""
    return BrokerFailure(
        broker,
        address,
        str(error),
        may_have_acted=isinstance(error, Unanswered),
        is_refusal=isinstance(error, BrokerRefusal),
        is_away=isinstance(error, Unreachable),
    )


class NoBrokerAnswers(AdminError):
    """No broker answered; every broker that was asked is in `errors`."""

    def __init__(self, errors: Sequence[BrokerFailure]) -> None:
        super().__init__(f"every broker failed: {'; '.join(map(str, errors))}")
        self.errors = tuple(errors)


def failures_of(subject: str, error: AdminError) -> tuple[BrokerFailure, ...]:
    """Why nothing is known about a part of a result, such as one group: what its brokers said, else
    the error under the name of that part."""
    if isinstance(error, NoBrokerAnswers):
        return error.errors
    return (failure_of(subject, "", error),)


class NotFound(AdminError):
    """There is no `kind` ("topic", "group", "broker", …) called `name`."""

    def __init__(self, kind: str, name: str, hint: str) -> None:
        super().__init__(f"{kind} {name} does not exist; {hint}")
        self.kind = kind
        self.name = name
        self.hint = hint


class TopicAway(AdminError):
    """`topic` exists, but every broker that has it is gone; they may come back with it."""

    def __init__(self, topic: str, hint: str) -> None:
        super().__init__(f"topic {topic} has no route; {hint}")
        self.topic = topic


def unknown_name(kind: str, name: str, known: Iterable[str], more: str = "") -> NotFound:
    """The error for a topic or group that does not exist, where these do. `more` ends the text."""
    meant = get_close_matches(name, [each for each in known if each != name], n=1, cutoff=_SIMILAR)
    maybe = f"did you mean {meant[0]}? " if meant else ""
    hint = (
        f"{maybe}those that do: sparrowmq {kind} list;"
        f" create it with: sparrowmq {kind} create {name}{more}"
    )
    return NotFound(kind, name, hint)


class NotAllAnswered(AdminError):
    """No `kind` called `name` was found on the brokers that answered. Those in `errors` did not
    answer, and may have it."""

    def __init__(self, kind: str, name: str, errors: Sequence[BrokerFailure]) -> None:
        self.summary = (
            f"{kind} {name} was not found on the brokers that answered; the others may have it"
        )
        super().__init__(f"{self.summary}: {'; '.join(map(str, errors))}")
        self.kind = kind
        self.name = name
        self.errors = tuple(errors)


class AlreadyExists(AdminError):
    """The `kind` called `name` exists and differs in `differences`."""

    def __init__(self, kind: str, name: str, differences: Iterable[str]) -> None:
        self.differences = tuple(differences)
        super().__init__(
            f"{kind} {name} exists with other settings ({'; '.join(self.differences)});"
            f" nothing was changed; change it with: sparrowmq {kind} update {name}"
        )
        self.kind = kind
        self.name = name


class NotReadable(AdminError):
    """`brokers` do not allow reading `topic`."""

    def __init__(self, topic: str, brokers: Sequence[str]) -> None:
        self.topic = topic
        self.brokers = tuple(sorted(brokers))
        super().__init__(
            f"topic {topic} cannot be read on {', '.join(self.brokers)} (its permission has no"
            f" read); allow it with: sparrowmq topic update '{topic}' --perm 6"
        )


class InUse(AdminError):
    """`group` has live `members`, by client id."""

    def __init__(self, group: str, members: Sequence[str], hint: str) -> None:
        super().__init__(f"group {group} has live members ({shown(members)}); {hint}")
        self.group = group
        self.members = tuple(members)


class PartlyDone(AdminError):
    """The brokers in `done` have the change, those in `failed` do not (name → reason). Of the
    failed ones, `unknown` got the change and did not answer: they may have made it, or make it
    later."""

    def __init__(
        self, what: str, done: list[str], failed: dict[str, str], unknown: Collection[str] = ()
    ) -> None:
        sure = {broker: reason for broker, reason in failed.items() if broker not in unknown}
        unsure = {broker: reason for broker, reason in failed.items() if broker in unknown}
        parts = [f"{what} on {', '.join(done)}"]
        if sure:
            parts.append(f"but not on {_with_reasons(sure)}")
        if unsure:
            parts.append(f"and it is not known whether on {_with_reasons(unsure)}")
        super().__init__(
            f"{', '.join(parts)}; when that is mended run it again, it changes nothing twice"
        )
        self.done = done
        self.failed = failed
        self.unknown = tuple(unsure)


class PartlyReset(PartlyDone):
    """`moves` were made. Brokers in `failed` may have made some of theirs."""

    def __init__(
        self,
        what: str,
        done: list[str],
        failed: dict[str, str],
        moves: Sequence[OffsetMove],
        unknown: Collection[str] = (),
    ) -> None:
        super().__init__(what, done, failed, unknown)
        self.moves = tuple(moves)


def not_done(failures: Sequence[BrokerFailure]) -> AdminError:
    """The error for a change that no server confirmed."""
    refused = _told_once([each for each in failures if not each.may_have_acted])
    unanswered = [str(each) for each in failures if each.may_have_acted]
    parts = [f"not done: {'; '.join(refused)}"] if refused else []
    if unanswered:
        parts.append(f"it is not known whether it was done: {'; '.join(unanswered)}")
    return AdminError("; ".join(parts))


def _told_once(failures: Sequence[BrokerFailure]) -> list[str]:
    """The same refusal of several brokers is one text, with its words first."""
    alike: dict[str, list[BrokerFailure]] = {}
    for each in failures:
        words = _ANSWERED.sub("", each.reason) if each.is_refusal else each.reason
        alike.setdefault(words, []).append(each)
    return [
        f"{words} (said by {', '.join(each.broker for each in same)})"
        if len(same) > 1
        else str(same[0])
        for words, same in alike.items()
    ]


def _with_reasons(failed: Mapping[str, str]) -> str:
    reasons = "; ".join(f"{broker}: {reason}" for broker, reason in failed.items())
    return f"{', '.join(failed)} ({reasons})"


def shown(names: Iterable[str]) -> str:
    """Names for a text: sorted, and few enough to be readable."""
    known = sorted(names)
    more = f" and {len(known) - _MOST_SHOWN} more" if len(known) > _MOST_SHOWN else ""
    return f"{', '.join(known[:_MOST_SHOWN]) or 'none'}{more}"
