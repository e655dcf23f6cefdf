package bench;

import com.google.gson.JsonObject;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** CPU time of the broker, of this client and of everybody else since it was made. */
final class Usage {
    private static final double HZ = 100.0;   // USER_HZ of Linux
    private static final String[] SELF = {"self"};

    private final String[] pids;
    private final double broker;
    private final double client;
    private final double machine;
    private final long start = System.nanoTime();

    Usage(Command command) throws InterruptedException {
        Thread.sleep(200);   // what was asked before is not part of it
        pids = command.pids();
        broker = cpu(pids);
        client = cpu(SELF);
        machine = machine();
    }

    /** Adds CPU per message in microseconds, and how many CPUs others used meanwhile. */
    void into(JsonObject row, long messages) throws InterruptedException {
        Thread.sleep(200);   // what the broker does after its last answer belongs to the run
        double ofBroker = cpu(pids) - broker;
        double ofClient = cpu(SELF) - client;
        double span = (System.nanoTime() - start) / 1e9;
        row.addProperty("broker_cpu_s", ofBroker);
        row.addProperty("other_cpus", (machine() - machine - ofBroker - ofClient) / span);
        if (messages > 0) {
            row.addProperty("broker_cpu_us", ofBroker * 1e6 / messages);
            row.addProperty("client_cpu_us", ofClient * 1e6 / messages);
        }
    }

    private static double cpu(String[] pids) {
        double sum = 0;
        for (String pid : pids) {
            String[] fields = read("/proc/" + pid + "/stat");
            if (fields.length > 14) {
                sum += (Double.parseDouble(fields[11]) + Double.parseDouble(fields[12])) / HZ;
            }
        }
        return sum;
    }

    /** The fields behind the process's name, which may hold blanks itself. */
    private static String[] read(String path) {
        try {
            String text = Files.readString(Path.of(path));
            return text.substring(text.lastIndexOf(')') + 2).split(" ");
        } catch (IOException gone) {
            return new String[0];
        }
    }

    private static double machine() {
        try {
            String[] fields =
                Files.readAllLines(Path.of("/proc/stat")).get(0).trim().split("\\s+");
            double busy = 0;
            for (int i = 1; i < fields.length && i <= 8; i++) {
                if (i != 4 && i != 5) {   // idle, waiting for devices
                    busy += Double.parseDouble(fields[i]);
                }
            }
            return busy / HZ;
        } catch (IOException e) {
            return 0;
        }
    }
}
