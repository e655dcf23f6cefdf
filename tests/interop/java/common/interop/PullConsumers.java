package interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.message.MessageQueue;

/** Pull consumers by name: the caller keeps the offsets. */
@SuppressWarnings("deprecation")
final class PullConsumers {
    private final Map<String, DefaultMQPullConsumer> consumers = new ConcurrentHashMap<>();

    void register(Map<String, Driver.Op> ops) {
        ops.put("pull_start", this::start);
        ops.put("pull_queues", this::queues);
        ops.put("pull", this::pull);
        ops.put("pull_commit", command -> {
            get(command).updateConsumeOffset(Values.queue(command), Values.number(command, "offset", 0));
            get(command).getDefaultMQPullConsumerImpl().getOffsetStore().persist(Values.queue(command));
            return null;
        });
        ops.put("pull_committed",
            command -> get(command).fetchConsumeOffset(Values.queue(command), true));
        ops.put("pull_stop", command -> {
            consumers.remove(Values.text(command, "name", null)).shutdown();
            return null;
        });
    }

    private DefaultMQPullConsumer get(JsonObject command) {
        return consumers.get(Values.text(command, "name", null));
    }

    private Object start(JsonObject command) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(Values.text(command, "group", null));
        Values.connect(consumer, command);
        consumer.setInstanceName(Values.text(command, "name", null));
        consumer.start();
        consumers.put(Values.text(command, "name", null), consumer);
        return null;
    }

    private Object queues(JsonObject command) throws Exception {
        JsonArray out = new JsonArray();
        for (MessageQueue queue : get(command)
                .fetchSubscribeMessageQueues(Values.text(command, "topic", null))) {
            out.add(Values.queue(queue));
        }
        return out;
    }

    private Object pull(JsonObject command) throws Exception {
        String tags = Values.text(command, "tags", "*");
        long offset = Values.number(command, "offset", 0);
        int max = (int) Values.number(command, "max", 32);
        PullResult result = Values.flag(command, "wait")
            ? get(command).pullBlockIfNotFound(Values.queue(command), tags, offset, max)
            : get(command).pull(Values.queue(command), tags, offset, max);
        JsonObject out = new JsonObject();
        out.addProperty("status", result.getPullStatus().name());
        out.addProperty("next_offset", result.getNextBeginOffset());
        out.addProperty("min_offset", result.getMinOffset());
        out.addProperty("max_offset", result.getMaxOffset());
        out.add("messages", result.getMsgFoundList() == null ? new JsonArray()
            : Values.received(result.getMsgFoundList()));
        return out;
    }
}
