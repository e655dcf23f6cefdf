package interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Finding messages and offsets through a producer's own administration methods. */
final class Lookups {
    private final Producers producers;

    Lookups(Producers producers) {
        this.producers = producers;
    }

    void register(Map<String, Driver.Op> ops) {
        ops.put("min_offset", command -> producers.get(command).minOffset(Values.queue(command)));
        ops.put("max_offset", command -> producers.get(command).maxOffset(Values.queue(command)));
        ops.put("earliest_store_time",
            command -> producers.get(command).earliestMsgStoreTime(Values.queue(command)));
        ops.put("search_offset", command -> producers.get(command).searchOffset(
            Values.queue(command), Values.number(command, "timestamp", 0)));
        ops.put("view_message", this::view);
        ops.put("query_by_key", this::query);
        ops.put("publish_queues", this::queues);
        ops.put("create_topic", this::create);
    }

    private Object view(JsonObject command) throws Exception {
        MessageExt found = producers.get(command).viewMessage(
            Values.text(command, "topic", null), Values.text(command, "id", null));
        return found == null ? null : Values.received(found);
    }

    private Object query(JsonObject command) throws Exception {
        QueryResult found = producers.get(command).queryMessage(Values.text(command, "topic", null),
            Values.text(command, "key", null), (int) Values.number(command, "max", 32),
            Values.number(command, "begin", 0), Values.number(command, "end", Long.MAX_VALUE));
        return Values.received(found.getMessageList());
    }

    private Object queues(JsonObject command) throws Exception {
        JsonArray out = new JsonArray();
        for (MessageQueue queue : producers.get(command)
                .fetchPublishMessageQueues(Values.text(command, "topic", null))) {
            out.add(Values.queue(queue));
        }
        return out;
    }

    /** The two versions have different signatures. */
    private Object create(JsonObject command) throws Exception {
        Object producer = producers.get(command);
        String key = Values.text(command, "key", "TBW102");
        String topic = Values.text(command, "topic", null);
        int queues = (int) Values.number(command, "queues", 4);
        try {
            producer.getClass().getMethod("createTopic", String.class, String.class, int.class, Map.class)
                .invoke(producer, key, topic, queues, new HashMap<String, String>());
        } catch (NoSuchMethodException older) {
            producer.getClass().getMethod("createTopic", String.class, String.class, int.class)
                .invoke(producer, key, topic, queues);
        }
        return null;
    }
}
