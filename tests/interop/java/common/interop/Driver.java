package interop;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/**
 * A long-lived peer: one JSON command a line on standard input, one JSON answer a line on standard
 * output, in order. A command names its operation in "op"; an answer holds "ok" or "error".
 */
public final class Driver {
    static final Gson GSON = new GsonBuilder().disableHtmlEscaping().serializeNulls().create();

    /** One operation of the driver. */
    public interface Op {
        Object run(JsonObject command) throws Throwable;
    }

    private final Map<String, Op> ops = new HashMap<>();

    private Driver() {
    }

    public static void main(String[] args) throws Exception {
        // The client libraries print to standard output; the answers must stand there alone.
        PrintStream answers = System.out;
        System.setOut(System.err);
        Driver driver = new Driver();
        Producers producers = new Producers();
        producers.register(driver.ops);
        new Lookups(producers).register(driver.ops);
        new Transactions().register(driver.ops);
        new PushConsumers(producers).register(driver.ops);
        new PullConsumers().register(driver.ops);
        new LitePullConsumers().register(driver.ops);
        driver.registerAdmin();
        driver.ops.put("ping", command -> "pong");
        driver.serve(answers);
        Runtime.getRuntime().halt(0);   // the clients' own threads need no orderly end here
    }

    /** The administration client exists for one of the two versions only. */
    private void registerAdmin() throws Exception {
        try {
            Class<?> admin = Class.forName("interop.Admin");
            admin.getMethod("register", Map.class).invoke(admin.getConstructor().newInstance(), ops);
        } catch (ClassNotFoundException absent) {
            return;
        }
    }

    private void serve(PrintStream answers) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer = GSON.toJson(answer(line));
            answers.write((answer + "\n").getBytes(StandardCharsets.UTF_8));
            answers.flush();
        }
    }

    private JsonObject answer(String line) {
        JsonObject answer = new JsonObject();
        try {
            JsonObject command = JsonParser.parseString(line).getAsJsonObject();
            Op op = ops.get(command.get("op").getAsString());
            if (op == null) {
                throw new UnsupportedOperationException(line);
            }
            Object result = op.run(command);
            answer.add("ok", result instanceof JsonElement ? (JsonElement) result : GSON.toJsonTree(result));
        } catch (Throwable error) {
            answer.add("error", Values.error(error));
        }
        return answer;
    }
}
