package bench;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Many topics with one message in every queue. count= queues= broker= (its name) */
final class Topics {
    private Topics() {
    }

    static JsonObject run(Command command) throws Exception {
        DefaultMQProducer producer = command.producer();
        int count = command.number("count", 1000);
        int queues = command.number("queues", 8);
        String broker = command.text("broker", "broker-a");
        try {
            Values.parallel(4, thread -> {
                for (int topic = thread; topic < count; topic += 4) {
                    fill(producer, "Topic" + topic, queues, broker);
                }
            });
            JsonObject row = new JsonObject();
            row.addProperty("messages", count * queues);
            return row;
        } finally {
            producer.shutdown();
        }
    }

    private static void fill(DefaultMQProducer producer, String topic, int queues, String broker)
        throws Exception {
        // The first one creates the topic, wherever it goes.
        List<Message> first = new ArrayList<>();
        first.add(new Message(topic, Values.numbered(0, 128)));
        Values.sendSurely(producer, first);
        for (int queue = 0; queue < queues; queue++) {
            Message message = new Message(topic, Values.numbered(queue, 128));
            producer.send(message, new MessageQueue(topic, broker, queue), 5000);
        }
    }
}
