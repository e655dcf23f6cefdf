"""Liveness and readiness of a broker, in words.

Alive means that a restart would not help: this fails only when the store has stopped. Ready means
that clients find the broker and that it fulfils its role; a full disk makes it unready, but no
restart would make room.
"""

from collections.abc import Iterator

from sparrowmq.broker.broker import Broker, BrokerState
from sparrowmq.broker.registration import BrokerRegistration
from sparrowmq.disk.errors import DiskFull
from sparrowmq.net.health import Check
from sparrowmq.store.errors import StoreStopped


def liveness(broker: Broker) -> list[Check]:
    """Checks of what only a restart could fix."""
    refusal = broker.store.admission.refusal if broker.store.has_failed else None
    return [Check("the store is open", "" if refusal is None else str(refusal))]


def readiness(broker: Broker, registration: BrokerRegistration) -> list[Check]:
    """Checks of what clients need from this broker."""
    return [
        *liveness(broker),
        Check(
            "it serves",
            "" if broker.state is BrokerState.SERVING else f"it is {broker.state.value}",
        ),
        *_registered(broker, registration),
        *(_takes_messages(broker) if broker.replication.is_master else _copies(broker)),
    ]


def _registered(broker: Broker, registration: BrokerRegistration) -> Iterator[Check]:
    """One name server is enough: clients ask the next one."""
    state = registration.state()
    known = [server for server, fault in state.items() if not fault]
    if not state:
        yield Check("no name server is configured, so clients have to know its address")
    elif known:
        yield Check(f"it is registered with {', '.join(known)}")
    else:
        faults = "; ".join(f"{server}: {fault}" for server, fault in state.items())
        yield Check("it is registered", faults)


def _takes_messages(broker: Broker) -> Iterator[Check]:
    refusal = broker.store.admission.refusal
    fault = broker.send_refusal or ("" if refusal is None else str(refusal))
    # While it drains, consumers still need it; `_registered` says when they no longer do.
    drains = f"it {broker.drain.words}" if broker.drain.is_on else ""
    yield Check(drains or "it takes messages, and the disk has room", fault)


def _copies(broker: Broker) -> Iterator[Check]:
    follower = broker.replication.follower
    is_accepted = follower is not None and follower.accepted.is_set()
    fault = "" if is_accepted else "no master has accepted it yet"
    yield Check("it copies the log of its master", fault)
    yield Check("the disk has room", _no_room(broker))


def _no_room(broker: Broker) -> str:
    """Why nothing can be stored; not why sends are refused, which a slave's role does anyway."""
    try:
        broker.store.admission.check_copying()
    except (DiskFull, StoreStopped) as error:
        return str(error)
    return ""
