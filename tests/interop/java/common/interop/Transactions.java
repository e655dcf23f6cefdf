package interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Transactional producers whose answers are written in the messages' own properties. */
final class Transactions {
    private final Map<String, TransactionMQProducer> producers = new ConcurrentHashMap<>();
    private final Map<String, Integer> checks = new ConcurrentHashMap<>();

    void register(Map<String, Driver.Op> ops) {
        ops.put("transaction_start", this::start);
        ops.put("transaction_send", this::send);
        ops.put("transaction_checks", command -> checks);
        ops.put("transaction_stop", command -> {
            producers.remove(Values.text(command, "name", null)).shutdown();
            return null;
        });
    }

    private Object start(JsonObject command) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(Values.text(command, "group", null));
        Values.connect(producer, command);
        producer.setInstanceName(Values.text(command, "name", null));
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.valueOf(message.getUserProperty("execute"));
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                checks.merge(new String(message.getBody()), 1, Integer::sum);
                return LocalTransactionState.valueOf(message.getUserProperty("check"));
            }
        });
        producer.start();
        producers.put(Values.text(command, "name", null), producer);
        return null;
    }

    private Object send(JsonObject command) throws Exception {
        TransactionMQProducer producer = producers.get(Values.text(command, "name", null));
        JsonArray results = new JsonArray();
        for (JsonElement one : command.getAsJsonArray("messages")) {
            Message message = Values.message(Values.text(command, "topic", null), one.getAsJsonObject());
            results.add(Values.sent(producer.sendMessageInTransaction(message, null)));
        }
        return results;
    }
}
