package bench;

import com.google.gson.JsonObject;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/** Bodies, percentiles, threads: what several kinds of load share. */
final class Values {
    private Values() {
    }

    /** Work of one of several threads. */
    interface Work {
        void run(int thread) throws Exception;
    }

    static byte[] numbered(long number, int size) {
        byte[] body = new byte[size];
        Arrays.fill(body, (byte) 'x');
        ByteBuffer.wrap(body).putLong(number);
        return body;
    }

    static void percentiles(JsonObject row, String name, long[] nanos) {
        long[] sorted = nanos.clone();
        Arrays.sort(sorted);
        double[] parts = {50, 99, 99.9};
        String[] names = {"p50", "p99", "p999"};
        for (int i = 0; i < parts.length && sorted.length > 0; i++) {
            int at = (int) Math.ceil(sorted.length * parts[i] / 100) - 1;
            row.addProperty(name + "_" + names[i] + "_ms", sorted[Math.max(0, at)] / 1e6);
        }
    }

    static void parallel(int threads, Work work) throws Exception {
        Thread[] all = new Thread[threads];
        Throwable[] failures = new Throwable[threads];
        for (int t = 0; t < threads; t++) {
            int me = t;
            all[t] = new Thread(() -> {
                try {
                    work.run(me);
                } catch (Throwable e) {
                    failures[me] = e;
                }
            });
            all[t].start();
        }
        for (Thread thread : all) {
            thread.join();
        }
        for (Throwable failure : failures) {
            if (failure != null) {
                throw new IllegalStateException("a thread failed", failure);
            }
        }
    }

    /** Sends until it works, a bounded number of times; how many attempts failed. */
    static int sendSurely(DefaultMQProducer producer, List<Message> messages) {
        Exception last = null;
        for (int failed = 0; failed < 50; failed++) {
            try {
                if (producer.send(messages, 5000).getSendStatus() == SendStatus.SEND_OK) {
                    return failed;
                }
            } catch (Exception e) {
                last = e;
            }
            LockSupport.parkNanos(50_000_000);
        }
        throw new IllegalStateException("50 sends failed", last);
    }

    static void waitUntil(long nanoTime) {
        for (long left; (left = nanoTime - System.nanoTime()) > 0; ) {
            LockSupport.parkNanos(left);
        }
    }
}
