package bench;

import com.google.gson.JsonObject;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** A new group consumes a backlog made by Filling. topic= count= limit= (seconds) */
final class Draining {
    private final AtomicLong all = new AtomicLong();
    private final AtomicLong unique = new AtomicLong();
    private final AtomicIntegerArray seen;
    private final CountDownLatch done = new CountDownLatch(1);
    private final int expected;
    private volatile long first;
    private volatile long last;

    private Draining(int expected) {
        this.expected = expected;
        seen = new AtomicIntegerArray((expected + 31) / 32);
    }

    static JsonObject run(Command command) throws Exception {
        Draining drain = new Draining(command.number("count", 300_000));
        Usage before = new Usage(command);
        DefaultMQPushConsumer consumer = consumer(command, command.text("topic", "BenchBacklog"));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            drain.took(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            drain.done.await(command.number("limit", 90), TimeUnit.SECONDS);
            long found = drain.unique.get();
            JsonObject row = new JsonObject();
            row.addProperty("messages", found);
            row.addProperty("missing", drain.expected - found);
            row.addProperty("duplicates", drain.all.get() - found);
            row.addProperty("per_s", found / Math.max(1e-9, (drain.last - drain.first) / 1e9));
            before.into(row, found);
            return row;
        } finally {
            consumer.shutdown();
        }
    }

    /** A push consumer of a new group, with the defaults of the client. */
    static DefaultMQPushConsumer consumer(Command command, String topic) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("G_" + Command.unique());
        consumer.setNamesrvAddr(command.nameServer());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    private void took(List<MessageExt> messages) {
        long now = System.nanoTime();
        if (first == 0) {
            first = now;
        }
        int fresh = 0;
        for (MessageExt message : messages) {
            int number = (int) ByteBuffer.wrap(message.getBody()).getLong();
            int bit = 1 << (number & 31);
            if ((seen.getAndUpdate(number >>> 5, bits -> bits | bit) & bit) == 0) {
                fresh++;
            }
        }
        all.addAndGet(messages.size());
        if (done.getCount() > 0) {
            last = now;
        }
        if (unique.addAndGet(fresh) == expected) {
            done.countDown();
        }
    }
}
