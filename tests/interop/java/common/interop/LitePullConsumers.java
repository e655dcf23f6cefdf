package interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Lite pull consumers by name: subscribe or assign, poll, seek, commit. */
@SuppressWarnings("deprecation")
final class LitePullConsumers {
    private final Map<String, DefaultLitePullConsumer> consumers = new ConcurrentHashMap<>();

    void register(Map<String, Driver.Op> ops) {
        ops.put("lite_start", this::start);
        ops.put("lite_assign", this::assign);
        ops.put("lite_poll", this::poll);
        ops.put("lite_seek", command -> {
            get(command).seek(Values.queue(command), Values.number(command, "offset", 0));
            return null;
        });
        ops.put("lite_seek_to_begin", command -> {
            get(command).seekToBegin(Values.queue(command));
            return null;
        });
        ops.put("lite_seek_to_end", command -> {
            get(command).seekToEnd(Values.queue(command));
            return null;
        });
        ops.put("lite_commit", command -> {
            get(command).commitSync();
            return null;
        });
        ops.put("lite_committed", command -> get(command).committed(Values.queue(command)));
        ops.put("lite_offset_for_timestamp", command -> get(command).offsetForTimestamp(
            Values.queue(command), Values.number(command, "timestamp", 0)));
        ops.put("lite_stop", command -> {
            consumers.remove(Values.text(command, "name", null)).shutdown();
            return null;
        });
    }

    private DefaultLitePullConsumer get(JsonObject command) {
        return consumers.get(Values.text(command, "name", null));
    }

    private Object start(JsonObject command) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(Values.text(command, "group", null));
        Values.connect(consumer, command);
        consumer.setInstanceName(Values.text(command, "name", null));
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setAutoCommit(Values.flag(command, "auto_commit"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (command.has("topic")) {
            consumer.subscribe(Values.text(command, "topic", null), Values.text(command, "tags", "*"));
        }
        consumer.start();
        consumers.put(Values.text(command, "name", null), consumer);
        return null;
    }

    private Object assign(JsonObject command) throws Exception {
        List<MessageQueue> queues = new ArrayList<>();
        for (JsonElement id : command.getAsJsonArray("queue_ids")) {
            queues.add(new MessageQueue(Values.text(command, "topic", null),
                Values.text(command, "broker", "broker-a"), id.getAsInt()));
        }
        get(command).assign(queues);
        return null;
    }

    /** Polls until so many messages came or the time is over. */
    private Object poll(JsonObject command) {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(Values.number(command, "timeout_ms", 0));
        List<MessageExt> messages = new ArrayList<>();
        while (messages.size() < Values.number(command, "count", 1) && System.nanoTime() < end) {
            messages.addAll(get(command).poll(200));
        }
        return Values.received(messages);
    }
}
