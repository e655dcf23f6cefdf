package bench;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * As many sends as possible, or "rate" a second.
 * mode=sync|async|batch threads= seconds= warm= body= batch= topic= rate=
 */
final class Sending {
    private static final int IN_FLIGHT = 512;
    /** By name server; kept from run to run, as a program keeps its producer. */
    private static final Map<String, DefaultMQProducer> producers = new HashMap<>();

    private final Command command;
    private final DefaultMQProducer producer;
    private final String topic;
    private final String mode;
    private final int size;
    /** Nanoseconds between two sends of one thread; 0 when they follow at once. */
    private final double gap;
    private final AtomicLong sent = new AtomicLong();
    private final AtomicLong errors = new AtomicLong();
    private final AtomicReference<String> firstError = new AtomicReference<>();
    private final Semaphore window = new Semaphore(IN_FLIGHT);
    private double seconds;
    private long[] times = {};

    private Sending(Command command, DefaultMQProducer producer) {
        this.command = command;
        this.producer = producer;
        topic = command.text("topic", "BenchSend");
        mode = command.text("mode", "sync");
        size = command.number("body", 128);
        int rate = command.number("rate", 0);
        gap = rate == 0 ? 0 : 1e9 * command.number("threads", 1) / rate;
    }

    static JsonObject run(Command command) throws Exception {
        DefaultMQProducer producer = producers.get(command.nameServer());
        if (producer == null) {
            producer = command.producer();
            producers.put(command.nameServer(), producer);
        }
        new Sending(command, producer).sendFor(command.decimal("warm", 2));
        Usage before = new Usage(command);
        Sending measured = new Sending(command, producer);
        measured.sendFor(command.decimal("seconds", 5));
        JsonObject row = new JsonObject();
        row.addProperty("messages", measured.sent.get());
        row.addProperty("errors", measured.errors.get());
        if (measured.firstError.get() != null) {
            row.addProperty("first_error", measured.firstError.get());
        }
        row.addProperty("per_s", measured.sent.get() / measured.seconds);
        Values.percentiles(row, "send", measured.times);
        before.into(row, measured.sent.get());
        return row;
    }

    private void sendFor(double wanted) throws Exception {
        int threads = command.number("threads", 1);
        long[][] all = new long[threads][];
        long start = System.nanoTime();
        long end = start + (long) (wanted * 1e9);
        Values.parallel(threads, thread -> all[thread] = sendUntil(end, thread));
        // The answers still under way count, and so does the time they take.
        window.tryAcquire(IN_FLIGHT, 10, TimeUnit.SECONDS);
        seconds = (System.nanoTime() - start) / 1e9;
        times = Arrays.stream(all).flatMapToLong(Arrays::stream).toArray();
    }

    private long[] sendUntil(long end, int thread) throws Exception {
        byte[] body = Values.numbered(thread, size);
        long[] took = new long[1024];
        int n = 0;
        long attempts = 0;
        long start = System.nanoTime();
        for (long begin = start; begin < end; begin = System.nanoTime()) {
            // By plan, not by pause: what a stall delayed is made up for.
            Values.waitUntil(start + (long) (attempts++ * gap));
            if (mode.equals("async")) {
                sendAsync(body);
                continue;
            }
            try {
                int many = sendAndWait(body);
                sent.addAndGet(many);
            } catch (Exception e) {
                failed(e.toString());
                LockSupport.parkNanos(1_000_000);
                continue;
            }
            if (n == took.length) {
                took = Arrays.copyOf(took, n * 2);
            }
            took[n++] = System.nanoTime() - begin;
        }
        return Arrays.copyOf(took, n);
    }

    private void failed(String why) {
        errors.incrementAndGet();
        firstError.compareAndSet(null, why);
    }

    private int sendAndWait(byte[] body) throws Exception {
        int many = mode.equals("batch") ? command.number("batch", 32) : 1;
        SendResult result;
        if (many == 1) {
            result = producer.send(new Message(topic, body));
        } else {
            List<Message> messages = new ArrayList<>(many);
            for (int i = 0; i < many; i++) {
                messages.add(new Message(topic, body));
            }
            result = producer.send(messages);
        }
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(result.getSendStatus().name());
        }
        return many;
    }

    private void sendAsync(byte[] body) throws Exception {
        window.acquire();
        producer.send(new Message(topic, body), new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    sent.incrementAndGet();
                } else {
                    failed(result.getSendStatus().name());
                }
                window.release();
            }

            @Override
            public void onException(Throwable e) {
                failed(e.toString());
                window.release();
            }
        });
    }
}
