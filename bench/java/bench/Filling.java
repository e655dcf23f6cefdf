package bench;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** A backlog whose bodies are numbered from 0. topic= count= body= queues= */
final class Filling {
    private static final int BATCH = 32;

    private Filling() {
    }

    static JsonObject run(Command command) throws Exception {
        int count = command.number("count", 300_000);
        int size = command.number("body", 128);
        String topic = command.text("topic", "BenchBacklog");
        DefaultMQProducer producer = command.producer();
        try {
            // The first message makes the topic; the others need its route.
            Values.sendSurely(producer, List.of(new Message(topic, Values.numbered(0, size))));
            AtomicInteger next = new AtomicInteger(1);
            AtomicLong errors = new AtomicLong();
            Values.parallel(4, thread -> {
                for (int from = next.getAndAdd(BATCH); from < count; from = next.getAndAdd(BATCH)) {
                    List<Message> messages = new ArrayList<>(BATCH);
                    for (int i = from; i < Math.min(count, from + BATCH); i++) {
                        messages.add(new Message(topic, Values.numbered(i, size)));
                    }
                    errors.addAndGet(Values.sendSurely(producer, messages));
                }
            });
            JsonObject row = new JsonObject();
            row.addProperty("messages", count);
            row.addProperty("errors", errors.get());
            return row;
        } finally {
            producer.shutdown();
        }
    }
}
