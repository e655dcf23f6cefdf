package interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Push consumers by name. They remember what came; "fails" makes them refuse a body so many times,
 * and one that "hangs" on a body keeps it until it is stopped. */
final class PushConsumers {
    private final Map<String, Member> members = new ConcurrentHashMap<>();
    private final Producers producers;

    PushConsumers(Producers producers) {
        this.producers = producers;
    }

    void register(Map<String, Driver.Op> ops) {
        ops.put("push_start", this::start);
        ops.put("push_received", command -> member(command).received(
            (int) Values.number(command, "count", 0), Values.number(command, "timeout_ms", 0),
            (int) Values.number(command, "from", 0)));
        ops.put("push_assigned", command -> member(command).assigned());
        ops.put("push_persist", command -> {
            member(command).consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
            return null;
        });
        ops.put("push_suspend", command -> {
            member(command).consumer.suspend();
            return null;
        });
        ops.put("push_resume", command -> {
            member(command).consumer.resume();
            return null;
        });
        ops.put("push_stop", command -> {
            // It stays listed: what it was given while it stopped can still be asked for.
            member(command).stopping.countDown();
            member(command).consumer.shutdown();
            return null;
        });
    }

    private Member member(JsonObject command) {
        return members.get(Values.text(command, "name", null));
    }

    private Object start(JsonObject command) throws Exception {
        Member member = new Member(command);
        member.consumer.start();
        members.put(Values.text(command, "name", null), member);
        return null;
    }

    private final class Member {
        private final DefaultMQPushConsumer consumer;
        private final JsonArray received = new JsonArray();
        private final Map<String, Integer> failures = new ConcurrentHashMap<>();
        private final CountDownLatch stopping = new CountDownLatch(1);
        private final JsonObject command;

        Member(JsonObject command) throws Exception {
            this.command = command;
            consumer = new DefaultMQPushConsumer(Values.text(command, "group", null));
            Values.connect(consumer, command);
            consumer.setInstanceName(Values.text(command, "name", null));
            consumer.setVipChannelEnabled(Values.flag(command, "vip_channel"));
            consumer.setPollNameServerInterval((int) Values.number(command, "route_poll_ms", 30_000));
            // A rebalance right after the start may skip its heartbeat, and the broker then refuses pulls
            // with "subscription not latest" until the next one: do not wait the usual 30 s for it.
            consumer.setHeartbeatBrokerInterval((int) Values.number(command, "heartbeat_ms", 1000));
            consumer.setPersistConsumerOffsetInterval((int) Values.number(command, "persist_ms", 5000));
            consumer.setMaxReconsumeTimes((int) Values.number(command, "max_reconsume_times", -1));
            consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(
                Values.text(command, "from_where", "CONSUME_FROM_LAST_OFFSET")));
            if (command.has("from_timestamp")) {
                consumer.setConsumeTimestamp(Values.text(command, "from_timestamp", null));
            }
            model(Values.text(command, "model", "CLUSTERING"));
            String topic = Values.text(command, "topic", null);
            if (command.has("sql")) {
                consumer.subscribe(topic, MessageSelector.bySql(Values.text(command, "sql", null)));
            } else {
                consumer.subscribe(topic, Values.text(command, "tags", "*"));
            }
            if (Values.flag(command, "orderly")) {
                consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                    context.setSuspendCurrentQueueTimeMillis(200);
                    return took(messages) ? ConsumeOrderlyStatus.SUCCESS
                        : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                });
            } else {
                consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                    context.setDelayLevelWhenNextConsume((int) Values.number(command, "retry_level", 0));
                    return took(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                        : ConsumeConcurrentlyStatus.RECONSUME_LATER;
                });
            }
        }

        /** The enumeration lives in different packages in the two versions. */
        @SuppressWarnings({"unchecked", "rawtypes"})
        private void model(String name) throws Exception {
            for (Method method : DefaultMQPushConsumer.class.getMethods()) {
                if (method.getName().equals("setMessageModel")) {
                    method.invoke(consumer, Enum.valueOf((Class) method.getParameterTypes()[0], name));
                }
            }
        }

        private boolean took(List<MessageExt> messages) {
            boolean good = true;
            for (MessageExt message : messages) {
                String body = Values.shown(message.getBody());
                int refused = failures.merge(body, 1, Integer::sum);
                good &= refused > refusals(body);
                remember(message);
                if (body.equals(Values.text(command, "hangs", null))) {
                    hang();
                }
                if (command.has("reply_producer")) {
                    reply(message, body);
                }
            }
            return good;
        }

        private void hang() {
            try {
                stopping.await();
            } catch (InterruptedException stopped) {
                Thread.currentThread().interrupt();
            }
        }

        private long refusals(String body) {
            JsonElement fails = command.get("fails");
            return fails == null ? 0 : Values.number(fails.getAsJsonObject(), body, 0);
        }

        private void reply(MessageExt message, String body) {
            JsonObject producer = new JsonObject();
            producer.add("name", command.get("reply_producer"));
            try {
                producers.get(producer).send(
                    MessageUtil.createReplyMessage(message, ("reply to " + body).getBytes()), 15_000);
            } catch (Exception error) {
                error.printStackTrace();
            }
        }

        private void remember(MessageExt message) {
            synchronized (received) {
                received.add(Values.received(message));
                received.notifyAll();
            }
        }

        /** Waits until so many came, or the time is over, and answers what came after "from". */
        JsonArray received(int count, long timeoutMs, int from) throws InterruptedException {
            long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
            synchronized (received) {
                for (long left = timeoutMs; received.size() < count && left > 0;
                        left = TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime())) {
                    received.wait(left);
                }
                JsonArray out = new JsonArray();
                for (int i = from; i < received.size(); i++) {
                    out.add(received.get(i));
                }
                return out;
            }
        }

        JsonArray assigned() {
            List<MessageQueue> held = new ArrayList<>(consumer.getDefaultMQPushConsumerImpl()
                .getRebalanceImpl().getProcessQueueTable().keySet());
            JsonArray out = new JsonArray();
            for (MessageQueue queue : held) {
                if (queue.getTopic().equals(Values.text(command, "topic", null))) {
                    out.add(Values.queue(queue));
                }
            }
            return out;
        }
    }
}
