package bench;

import com.google.gson.JsonObject;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * From the call of send to the listener, at a constant rate. rate= seconds= warm= groups=
 * With groups=0 nobody consumes: what a send costs the broker by itself. Producer and consumers
 * stay for the next run of the same kind, as programs keep theirs.
 */
final class Latency {
    private static Latency kept;

    private final Command command;
    private final String topic = "BenchLatency" + Command.unique();
    private final DefaultMQProducer producer;
    private final DefaultMQPushConsumer[] consumers;
    private final AtomicLong seen = new AtomicLong();
    private volatile long[] called = {};
    private volatile long[] arrived = {};
    private volatile long round;

    private Latency(Command command) throws Exception {
        this.command = command;
        producer = command.producer();
        consumers = new DefaultMQPushConsumer[groups(command)];
    }

    static JsonObject run(Command command) throws Exception {
        Latency latency = open(command);
        if (command.decimal("warm", 2) > 0) {
            latency.send(command.decimal("warm", 2), new JsonObject());
        }
        JsonObject row = new JsonObject();
        Usage before = new Usage(command);
        int sent = latency.send(command.decimal("seconds", 5), row);
        before.into(row, sent);
        return row;
    }

    private static Latency open(Command command) throws Exception {
        if (kept == null || !kept.serves(command)) {
            if (kept != null) {
                kept.close();
            }
            kept = new Latency(command);
            kept.open();
        }
        return kept;
    }

    private static int groups(Command command) {
        return command.number("groups", 1);
    }

    private boolean serves(Command other) {
        return other.nameServer().equals(command.nameServer())
            && groups(other) == groups(command)
            && other.number("rate", 500) == command.number("rate", 500);
    }

    private void close() {
        for (DefaultMQPushConsumer consumer : consumers) {
            consumer.shutdown();
        }
        producer.shutdown();
    }

    /** Creates the topic and waits, within a bound, until every group has got its first message. */
    private void open() throws Exception {
        Values.sendSurely(producer, List.of(new Message(topic, body(0, 0))));
        for (int i = 0; i < consumers.length; i++) {
            consumers[i] = Draining.consumer(command, topic);
            boolean measures = i == 0;
            consumers[i].registerMessageListener((MessageListenerConcurrently) (list, context) -> {
                took(list, measures);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumers[i].start();
        }
        for (int i = 0; i < 300 && seen.get() < consumers.length; i++) {
            Thread.sleep(100);
        }
    }

    private int send(double seconds, JsonObject row) throws Exception {
        int rate = command.number("rate", 500);
        int count = (int) (rate * seconds);
        called = new long[count];
        arrived = new long[count];
        round++;
        int errors = 0;
        long start = System.nanoTime() + 10_000_000;
        for (int i = 0; i < count; i++) {
            Values.waitUntil(start + (long) (i * 1e9 / rate));
            called[i] = System.nanoTime();
            try {
                producer.send(new Message(topic, body(round, i)));
            } catch (Exception e) {
                errors++;
            }
        }
        Thread.sleep(500);
        long[] took = new long[count];
        int got = 0;
        for (int i = 0; i < count; i++) {
            if (arrived[i] != 0) {
                took[got++] = arrived[i] - called[i];
            }
        }
        row.addProperty("messages", count);
        row.addProperty("errors", errors);
        row.addProperty("missing", groups(command) == 0 ? 0 : count - errors - got);
        Values.percentiles(row, "e2e", Arrays.copyOf(took, got));
        return count;
    }

    private void took(List<MessageExt> messages, boolean measures) {
        long now = System.nanoTime();
        seen.addAndGet(messages.size());
        for (MessageExt message : messages) {
            ByteBuffer body = ByteBuffer.wrap(message.getBody());
            if (body.getLong() == round && measures && round > 0) {
                arrived[(int) body.getLong()] = now;
            }
        }
    }

    private byte[] body(long number, long index) {
        byte[] body = Values.numbered(number, command.number("body", 128));
        ByteBuffer.wrap(body).putLong(8, index);
        return body;
    }
}
