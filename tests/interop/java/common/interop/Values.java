package interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Between the driver's JSON and the client's values. */
final class Values {
    private static final int LONGEST_SHOWN_BODY = 256;

    private Values() {
    }

    /** Name server and patience: on a busy machine an answer may take longer than the usual 3 s. */
    static void connect(ClientConfig client, JsonObject command) {
        client.setNamesrvAddr(text(command, "name_server", null));
        client.setMqClientApiTimeout(15_000);
    }

    static String text(JsonObject from, String name, String fallback) {
        JsonElement value = from.get(name);
        return value == null || value.isJsonNull() ? fallback : value.getAsString();
    }

    static long number(JsonObject from, String name, long fallback) {
        JsonElement value = from.get(name);
        return value == null || value.isJsonNull() ? fallback : value.getAsLong();
    }

    static boolean flag(JsonObject from, String name) {
        JsonElement value = from.get(name);
        return value != null && !value.isJsonNull() && value.getAsBoolean();
    }

    /** A body is given as text; "fill" makes it that many bytes long by repeating the text. */
    static Message message(String topic, JsonObject from) {
        byte[] body = text(from, "body", "").getBytes(StandardCharsets.UTF_8);
        int fill = (int) number(from, "fill", 0);
        if (fill > 0) {
            byte[] filled = new byte[fill];
            for (int i = 0; i < fill; i++) {
                filled[i] = body[i % body.length];
            }
            body = filled;
        }
        if (from.has("noise")) {
            body = new byte[(int) number(from, "noise", 0)];
            new Random(7).nextBytes(body);   // no compression makes it shorter
        }
        Message message = new Message(topic, text(from, "tags", null), text(from, "keys", null), body);
        message.setFlag((int) number(from, "flag", 0));
        if (from.has("delay_level")) {
            message.setDelayTimeLevel((int) number(from, "delay_level", 0));
        }
        if (from.has("properties")) {
            for (Map.Entry<String, JsonElement> entry : from.getAsJsonObject("properties").entrySet()) {
                message.putUserProperty(entry.getKey(), entry.getValue().getAsString());
            }
        }
        if (from.has("system_properties")) {
            for (Map.Entry<String, JsonElement> e : from.getAsJsonObject("system_properties").entrySet()) {
                MessageAccessor.putProperty(message, e.getKey(), e.getValue().getAsString());
            }
        }
        return message;
    }

    static JsonObject sent(SendResult result) {
        JsonObject out = new JsonObject();
        out.addProperty("status", result.getSendStatus().name());
        out.addProperty("queue_id", result.getMessageQueue().getQueueId());
        out.addProperty("broker", result.getMessageQueue().getBrokerName());
        out.addProperty("queue_offset", result.getQueueOffset());
        out.addProperty("unique_id", result.getMsgId());
        out.addProperty("offset_id", result.getOffsetMsgId());
        out.addProperty("transaction_id", result.getTransactionId());
        return out;
    }

    static JsonObject received(MessageExt message) {
        JsonObject out = new JsonObject();
        out.addProperty("topic", message.getTopic());
        out.addProperty("body", shown(message.getBody()));
        out.addProperty("queue_id", message.getQueueId());
        out.addProperty("queue_offset", message.getQueueOffset());
        out.addProperty("flag", message.getFlag());
        out.addProperty("sys_flag", message.getSysFlag());
        out.addProperty("reconsume_times", message.getReconsumeTimes());
        out.addProperty("unique_id", message.getMsgId());
        out.addProperty("born_at", message.getBornTimestamp());
        out.addProperty("stored_at", message.getStoreTimestamp());
        out.addProperty("at", System.currentTimeMillis());
        out.add("properties", Driver.GSON.toJsonTree(new TreeMap<>(message.getProperties())));
        return out;
    }

    static JsonArray received(List<MessageExt> messages) {
        JsonArray out = new JsonArray();
        messages.forEach(message -> out.add(received(message)));
        return out;
    }

    static JsonObject queue(MessageQueue queue) {
        JsonObject out = new JsonObject();
        out.addProperty("broker", queue.getBrokerName());
        out.addProperty("queue_id", queue.getQueueId());
        return out;
    }

    static MessageQueue queue(JsonObject command) {
        return new MessageQueue(text(command, "topic", null), text(command, "broker", "broker-a"),
            (int) number(command, "queue_id", 0));
    }

    /** Long bodies travel as their length and digest. */
    static String shown(byte[] body) {
        if (body.length <= LONGEST_SHOWN_BODY) {
            return new String(body, StandardCharsets.UTF_8);
        }
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(body);
            StringBuilder hex = new StringBuilder();
            for (byte one : Arrays.copyOf(digest, 8)) {
                hex.append(String.format("%02x", one));
            }
            return body.length + " bytes " + hex;
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    static JsonObject error(Throwable error) {
        JsonObject out = new JsonObject();
        out.addProperty("class", error.getClass().getSimpleName());
        out.addProperty("text", String.valueOf(error.getMessage()));
        if (error instanceof MQBrokerException) {
            out.addProperty("code", ((MQBrokerException) error).getResponseCode());
        } else if (error instanceof MQClientException) {
            out.addProperty("code", ((MQClientException) error).getResponseCode());
        }
        if (error.getCause() != null && error.getCause() != error) {
            out.add("cause", error(error.getCause()));
        }
        return out;
    }
}
