package interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/** What only the clients of 5.x can do: recalling timed messages, and tracing by a setting. */
public final class Delivery {
    /** Clients read it when a producer starts; without it, trace leaves out recalls. */
    private static final String TRACES_RECALLS = "com.rocketmq.recall.default.trace.enable";

    private final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();

    public void register(Map<String, Driver.Op> ops) {
        ops.put("recalling_start", this::start);
        ops.put("recalling_send", this::send);
        ops.put("recalling_recall", command -> producer(command)
            .recallMessage(Values.text(command, "topic", null), Values.text(command, "handle", null)));
        ops.put("recalling_stop", command -> {
            producers.remove(Values.text(command, "name", null)).shutdown();
            return null;
        });
        ops.put("traced", this::traced);
    }

    private DefaultMQProducer producer(JsonObject command) {
        return producers.get(Values.text(command, "name", null));
    }

    private Object start(JsonObject command) throws Exception {
        System.setProperty(TRACES_RECALLS, "true");
        DefaultMQProducer producer = newProducer(command);
        producer.setEnableTrace(true);
        producer.start();
        producers.put(Values.text(command, "name", null), producer);
        return null;
    }

    private static DefaultMQProducer newProducer(JsonObject command) {
        DefaultMQProducer producer = new DefaultMQProducer(Values.text(command, "group", null));
        Values.connect(producer, command);
        producer.setInstanceName(Values.text(command, "name", null));
        producer.setSendMsgTimeout(15_000);
        return producer;
    }

    /** Sends and answers the handles. */
    private Object send(JsonObject command) throws Exception {
        JsonArray handles = new JsonArray();
        String topic = Values.text(command, "topic", null);
        for (JsonElement one : command.getAsJsonArray("messages")) {
            SendResult sent = producer(command).send(Values.message(topic, one.getAsJsonObject()));
            JsonObject handle = new JsonObject();
            handle.addProperty("handle", sent.getRecallHandle());
            handle.addProperty("unique_id", sent.getMsgId());
            handles.add(handle);
        }
        return handles;
    }

    /** A producer and a consumer with trace on: sends, consumes, and ends both, which sends traces. */
    private Object traced(JsonObject command) throws Exception {
        String topic = Values.text(command, "topic", null);
        JsonArray messages = command.getAsJsonArray("messages");
        CountDownLatch left = new CountDownLatch(messages.size());
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(Values.text(command, "consumers", null));
        Values.connect(consumer, command);
        consumer.setInstanceName(Values.text(command, "name", null) + "-consumer");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setEnableTrace(true);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (came, context) -> {
            came.forEach(message -> left.countDown());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        DefaultMQProducer producer = newProducer(command);
        producer.setEnableTrace(true);
        producer.start();
        consumer.start();
        try {
            for (JsonElement one : messages) {
                producer.send(Values.message(topic, one.getAsJsonObject()));
            }
            return left.await(Values.number(command, "timeout_ms", 60_000), TimeUnit.MILLISECONDS);
        } finally {
            consumer.shutdown();
            producer.shutdown();
        }
    }
}
