package bench;

import com.google.gson.JsonObject;
import java.util.Arrays;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** Sends at a constant rate from one thread and says how long each took. rate= seconds= body= */
final class Pacing {
    private Pacing() {
    }

    static JsonObject run(Command command) throws Exception {
        DefaultMQProducer producer = command.producer();
        try {
            pace(command, producer, command.decimal("warm", 2), new JsonObject());
            Usage before = new Usage(command);
            JsonObject row = new JsonObject();
            before.into(row, pace(command, producer, command.decimal("seconds", 5), row));
            return row;
        } finally {
            producer.shutdown();
        }
    }

    private static int pace(
        Command command, DefaultMQProducer producer, double seconds, JsonObject row) {
        int rate = command.number("rate", 500);
        String topic = command.text("topic", "BenchPace");
        byte[] body = Values.numbered(0, command.number("body", 128));
        long[] took = new long[(int) (rate * seconds)];
        int sent = 0;
        long start = System.nanoTime();
        for (int i = 0; i < took.length; i++) {
            long planned = start + (long) (i * 1e9 / rate);
            Values.waitUntil(planned);
            try {
                producer.send(new Message(topic, body));
                // From the planned moment on: a stall delays those behind it, and that counts.
                took[sent++] = System.nanoTime() - planned;
            } catch (Exception e) {
                // counted below as an error
            }
        }
        row.addProperty("messages", sent);
        row.addProperty("errors", took.length - sent);
        Values.percentiles(row, "send", Arrays.copyOf(took, sent));
        return sent;
    }
}
