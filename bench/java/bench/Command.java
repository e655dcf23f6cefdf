package bench;

import com.google.gson.JsonObject;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/** What is to be done, and against which broker. */
final class Command {
    private final JsonObject fields;

    Command(JsonObject fields) {
        this.fields = fields;
    }

    String text(String name, String otherwise) {
        return fields.has(name) ? fields.get(name).getAsString() : otherwise;
    }

    int number(String name, int otherwise) {
        return fields.has(name) ? fields.get(name).getAsInt() : otherwise;
    }

    double decimal(String name, double otherwise) {
        return fields.has(name) ? fields.get(name).getAsDouble() : otherwise;
    }

    String nameServer() {
        return text("name_server", "127.0.0.1:9876");
    }

    /** The broker's processes: the one that serves and those it started. */
    String[] pids() {
        return text("pids", "").isEmpty() ? new String[0] : text("pids", "").split(",");
    }

    /** A started producer; topics it creates get "queues" queues. */
    DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("GP_" + unique());
        producer.setNamesrvAddr(nameServer());
        producer.setDefaultTopicQueueNums(number("queues", 8));
        producer.start();
        return producer;
    }

    static String unique() {
        return Long.toString(System.nanoTime(), 36);
    }
}
