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
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.exception.RemotingException;

/** Producers by name: every way to send, request-reply, and a steady load in the background. */
final class Producers {
    private final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();
    private final Map<String, Load> loads = new ConcurrentHashMap<>();

    void register(Map<String, Driver.Op> ops) {
        ops.put("producer_start", this::start);
        ops.put("producer_stop", command -> {
            producers.remove(name(command)).shutdown();
            return null;
        });
        ops.put("send", this::send);
        ops.put("send_async", this::sendAsync);
        ops.put("send_one_way", this::sendOneWay);
        ops.put("send_batch", this::sendBatch);
        ops.put("send_selected", this::sendSelected);
        ops.put("send_to_queue", this::sendToQueue);
        ops.put("request", this::request);
        ops.put("load_start", this::startLoad);
        ops.put("load_stop", this::stopLoad);
    }

    DefaultMQProducer get(JsonObject command) {
        DefaultMQProducer producer = producers.get(name(command));
        if (producer == null) {
            throw new IllegalArgumentException("no producer " + name(command));
        }
        return producer;
    }

    private static String name(JsonObject command) {
        return Values.text(command, "name", null);
    }

    private Object start(JsonObject command) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(Values.text(command, "group", null));
        Values.connect(producer, command);
        producer.setInstanceName(name(command));
        producer.setVipChannelEnabled(Values.flag(command, "vip_channel"));
        producer.setDefaultTopicQueueNums((int) Values.number(command, "queues", 4));
        producer.setSendMsgTimeout((int) Values.number(command, "timeout_ms", 15_000));
        producer.setMaxMessageSize((int) Values.number(command, "max_message_bytes", 4 * 1024 * 1024));
        producer.setPollNameServerInterval((int) Values.number(command, "route_poll_ms", 30_000));
        limitRequests(producer, (int) Values.number(command, "per_request_ms", -1));
        producer.start();
        producers.put(name(command), producer);
        return null;
    }

    /** Only 5.x can wait less for one attempt than for all of them. */
    private static void limitRequests(DefaultMQProducer producer, int timeoutMs) throws Exception {
        for (Method method : DefaultMQProducer.class.getMethods()) {
            if (method.getName().equals("setSendMsgMaxTimeoutPerRequest")) {
                method.invoke(producer, timeoutMs);
            }
        }
    }

    private List<Message> messages(JsonObject command) {
        List<Message> messages = new ArrayList<>();
        for (JsonElement one : command.getAsJsonArray("messages")) {
            messages.add(Values.message(Values.text(command, "topic", null), one.getAsJsonObject()));
        }
        return messages;
    }

    /** Each message so many times, always as the same object; only the last time must go well. */
    private Object send(JsonObject command) throws Exception {
        JsonArray results = new JsonArray();
        for (Message message : messages(command)) {
            for (long left = Values.number(command, "times", 1); left > 0; left--) {
                try {
                    results.add(Values.sent(get(command).send(message)));
                } catch (RemotingException noAnswer) {
                    if (left == 1) {
                        throw noAnswer;
                    }
                }
            }
        }
        return results;
    }

    private Object sendToQueue(JsonObject command) throws Exception {
        JsonArray results = new JsonArray();
        for (Message message : messages(command)) {
            results.add(Values.sent(get(command).send(message, Values.queue(command))));
        }
        return results;
    }

    private Object sendAsync(JsonObject command) throws Exception {
        List<Message> messages = messages(command);
        JsonObject[] results = new JsonObject[messages.size()];
        CountDownLatch done = new CountDownLatch(results.length);
        for (int i = 0; i < results.length; i++) {
            int slot = i;
            get(command).send(messages.get(i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    results[slot] = Values.sent(result);
                    done.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    results[slot] = new JsonObject();
                    results[slot].add("error", Values.error(error));
                    done.countDown();
                }
            });
        }
        if (!done.await(20, TimeUnit.SECONDS)) {
            throw new IllegalStateException(done.getCount() + " callbacks never came");
        }
        JsonArray all = new JsonArray();
        for (JsonObject result : results) {
            all.add(result);
        }
        return all;
    }

    private Object sendOneWay(JsonObject command) throws Exception {
        for (Message message : messages(command)) {
            get(command).sendOneway(message);
        }
        return null;
    }

    private Object sendBatch(JsonObject command) throws Exception {
        return Values.sent(get(command).send(messages(command)));
    }

    private Object sendSelected(JsonObject command) throws Exception {
        MessageQueueSelector byHash = new SelectMessageQueueByHash();
        JsonArray results = new JsonArray();
        JsonArray given = command.getAsJsonArray("messages");
        List<Message> messages = messages(command);
        for (int i = 0; i < messages.size(); i++) {
            String key = Values.text(given.get(i).getAsJsonObject(), "sharding_key", "");
            results.add(Values.sent(get(command).send(messages.get(i), byHash, key)));
        }
        return results;
    }

    private Object request(JsonObject command) throws Exception {
        Message reply = get(command).request(messages(command).get(0),
            Values.number(command, "timeout_ms", 10_000));
        JsonObject out = new JsonObject();
        out.addProperty("body", Values.shown(reply.getBody()));
        return out;
    }

    private Object startLoad(JsonObject command) {
        Load load = new Load(get(command), Values.text(command, "topic", null));
        loads.put(name(command), load);
        load.start(Values.number(command, "per_second", 100));
        return null;
    }

    private Object stopLoad(JsonObject command) throws Exception {
        return loads.remove(name(command)).stop();
    }

    /** Sends at a fixed rate and remembers which bodies were acknowledged. */
    private static final class Load {
        private final DefaultMQProducer producer;
        private final String topic;
        private final ScheduledExecutorService pool = Executors.newScheduledThreadPool(16);
        private final ConcurrentLinkedQueue<String> acknowledged = new ConcurrentLinkedQueue<>();
        private final AtomicInteger next = new AtomicInteger();
        private final AtomicInteger failed = new AtomicInteger();

        Load(DefaultMQProducer producer, String topic) {
            this.producer = producer;
            this.topic = topic;
        }

        void start(long perSecond) {
            pool.scheduleAtFixedRate(() -> pool.execute(this::sendOne), 0, 1_000_000 / perSecond,
                TimeUnit.MICROSECONDS);
        }

        private void sendOne() {
            String body = "load " + next.getAndIncrement();
            try {
                SendResult result = producer.send(new Message(topic, body.getBytes()));
                if (result.getSendStatus().name().equals("SEND_OK")) {
                    acknowledged.add(body);
                } else {
                    failed.incrementAndGet();
                }
            } catch (Exception expectedWhileTheBrokerIsGone) {
                failed.incrementAndGet();
            }
        }

        JsonObject stop() throws InterruptedException {
            pool.shutdown();
            pool.awaitTermination(20, TimeUnit.SECONDS);
            JsonObject out = new JsonObject();
            out.add("acknowledged", Driver.GSON.toJsonTree(new ArrayList<>(acknowledged)));
            out.addProperty("attempted", next.get());
            out.addProperty("failed", failed.get());
            return out;
        }
    }
}
