package bench;

import com.google.gson.JsonObject;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/** Tries to send until it works. limit= (seconds; 0 tries once, to load the client's classes) */
final class Starting {
    private Starting() {
    }

    static JsonObject run(Command command) throws Exception {
        DefaultMQProducer producer = command.producer();
        producer.setRetryTimesWhenSendFailed(0);
        Message message = new Message("BenchStart", Values.numbered(0, 128));
        long end = System.nanoTime() + command.number("limit", 60) * 1_000_000_000L;
        JsonObject row = new JsonObject();
        try {
            do {
                row.addProperty("sent", sent(producer, message));
            } while (!row.get("sent").getAsBoolean() && System.nanoTime() < end);
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
