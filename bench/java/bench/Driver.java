package bench;

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/**
 * The load: one JSON command a line on standard input, one JSON answer a line on standard output.
 * It outlives its commands, so that one warm JVM drives all brokers in turn. "op" names the work;
 * an answer holds "error" when it failed.
 */
public final class Driver {
    private Driver() {
    }

    public static void main(String[] args) throws Exception {
        // The client libraries print to standard output; the answers must stand there alone.
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader commands =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            answers.println(new Gson().toJson(answer(line)));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);   // the clients' own threads need no orderly end here
    }

    private static JsonObject answer(String line) {
        try {
            return run(new Command(JsonParser.parseString(line).getAsJsonObject()));
        } catch (Exception e) {
            JsonObject failed = new JsonObject();
            failed.addProperty("error", e.toString());
            return failed;
        }
    }

    private static JsonObject run(Command command) throws Exception {
        switch (command.text("op", "")) {
            case "send":
                return Sending.run(command);
            case "pace":
                return Pacing.run(command);
            case "fill":
                return Filling.run(command);
            case "drain":
                return Draining.run(command);
            case "latency":
                return Latency.run(command);
            case "first_send":
                return Starting.run(command);
            case "topics":
                return Topics.run(command);
            default:
                throw new IllegalArgumentException("no such op: " + command.text("op", ""));
        }
    }
}
