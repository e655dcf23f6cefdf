package bench;

import com.google.gson.JsonObject;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Tries to send until it works. limit= (seconds; 0 tries once, to load the client's classes)
 * took_s ends with the acknowledgement: closing a client takes 3 s now and then.
 */
final class Starting {
    private Starting() {
    }

    static JsonObject run(Command command) throws Exception {
        long began = System.nanoTime();
        DefaultMQProducer producer = command.producer();
        producer.setRetryTimesWhenSendFailed(0);
        Message message = new Message("BenchStart", Values.numbered(0, 128));
        long end = began + command.number("limit", 60) * 1_000_000_000L;
        JsonObject row = new JsonObject();
        try {
            do {
                row.addProperty("sent", sent(producer, message));
            } while (!row.get("sent").getAsBoolean() && System.nanoTime() < end);
            row.addProperty("took_s", (System.nanoTime() - began) / 1e9);
            return row;
        } finally {
            producer.shutdown();
        }
    }

    private static boolean sent(DefaultMQProducer producer, Message message) throws Exception {
        try {
            return producer.send(message, 2000).getSendStatus() == SendStatus.SEND_OK;
        } catch (Exception e) {
            Thread.sleep(20);
            return false;
        }
    }
}
