"""A store against a plain list: after any operations, stored messages are read back in order."""

from random import Random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sparrowmq.testing.recording_disk import RecordingDisk
from tests.store.stores import SMALL, Told, batch, flush, message, number_of, open_store, read_all

QUEUES = st.integers(0, 2)
TOPICS = st.sampled_from(("orders", "payments"))


class StoreMachine(RuleBasedStateMachine):
    """Append, batch, tick, flush, reopen, kill, tear the tail, delete what is derived."""

    @initialize()
    def make(self) -> None:
        self.disk = RecordingDisk()
        self.told = Told()
        self.store = open_store(self.disk, report=self.told)
        self.model: dict[tuple[str, int], list[int]] = {}
        self.ends: list[tuple[int, str, int]] = []
        self.number = 0
        self.now = 0
        self.any_topic_deleted = False

    @rule(topic=TOPICS, queue_id=QUEUES, size=st.sampled_from((20, 200, 3_000)))
    def append(self, topic: str, queue_id: int, size: int) -> None:
        put = message(self.number, topic, queue_id, size)
        self.number += 1
        self.now += 1
        stored = self.store.append(put, self.now)
        kept = self.model.setdefault((topic, queue_id), [])
        assert stored.queue_offset == len(kept)
        kept.append(self.number - 1)
        self.ends.append((stored.log_offset + stored.size, topic, queue_id))

    @rule(topic=TOPICS, queue_id=QUEUES, count=st.integers(1, 20))
    def append_batch(self, topic: str, queue_id: int, count: int) -> None:
        puts = [message(self.number + i, topic, queue_id) for i in range(count)]
        kept = self.model.setdefault((topic, queue_id), [])
        stored = self.store.append_batch(batch(puts), self.now)
        assert stored.queue_offset == len(kept)
        for put, end in zip(puts, [*stored.log_offsets[1:], stored.end], strict=True):
            kept.append(int(put.uniq_key[2:]))
            self.ends.append((end, topic, queue_id))
        self.number += count

    @rule()
    def tick(self) -> None:
        self.now += 60
        self.store.tick(self.now)

    @rule()
    def flush(self) -> None:
        flush(self.store, self.disk)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self._open()

    @rule()
    def kill(self) -> None:
        self.disk = self.disk.killed()
        self._open()

    @rule()
    def delete_queues(self) -> None:
        self.store.close()
        before = self._queue_files()
        for path in before:
            self.disk.unlink(path)
        self._open()
        self.store.close()
        assert self._queue_files() == before
        self._open()

    # That a topic was deleted is known by our own marks only.
    @precondition(lambda self: not self.any_topic_deleted)
    @rule()
    def delete_everything_but_the_log(self) -> None:
        self.store.close()
        before = self._queue_files()
        for path in self.disk.files():
            if not path.startswith("commitlog/"):
                self.disk.unlink(path)
        self._open()
        self.store.close()
        assert self._queue_files() == before
        self._open()

    @rule(lost=st.integers(1, 200))
    def kill_with_torn_tail(self, lost: int) -> None:
        """The last bytes that were written but never synced are gone."""
        end = self.store.max_log_offset
        start = end - end % SMALL.log_file_size
        path = f"commitlog/{start:020d}"
        cut = max(end - lost, start, self.store.durable_log_offset)
        self.disk = self.disk.killed()
        data = self.disk.files().get(path)
        if data is None or cut >= end:
            return self._open()
        kept = data[: cut - start]
        self.disk.poke(path, kept + bytes(len(data) - len(kept)))
        while self.ends and self.ends[-1][0] > cut:
            _, topic, queue_id = self.ends.pop()
            self.model[topic, queue_id].pop()
        return self._open()

    @rule(topic=TOPICS)
    def delete_topic(self, topic: str) -> None:
        self.any_topic_deleted |= self.store.delete_topic(topic, 1)
        for key in [key for key in self.model if key[0] == topic]:
            del self.model[key]
        self.ends = [entry for entry in self.ends if entry[1] != topic]

    def _open(self) -> None:
        self.store = open_store(self.disk, now_ms=self.now, report=self.told)

    def _queue_files(self) -> dict[str, bytes]:
        files = self.disk.files()
        return {path: data for path, data in files.items() if path.startswith("consumequeue/")}

    @invariant()
    def reads_back_what_it_kept(self) -> None:
        for (topic, queue_id), kept in self.model.items():
            assert self.store.queue_range(topic, queue_id) == (0, len(kept))
            records = read_all(self.store, topic, queue_id)
            assert [number_of(record) for record in records] == kept
            assert [record.queue_offset for record in records] == list(range(len(kept)))

    @invariant()
    def finds_a_message_by_its_key(self) -> None:
        for (topic, queue_id), kept in self.model.items():
            if kept:
                number = Random(len(kept)).choice(kept)
                found = self.store.find_by_key(topic, f"k{number}", 0, 1 << 60, 8)
                records = [self.store.read_message(at) for at in found.log_offsets]
                assert any(f"k{number}\x02".encode() in (data or b"") for data in records), (
                    topic,
                    queue_id,
                    number,
                )


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
