package interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/** All of mqadmin's commands, run in this process, with the request codes that each sends. */
public final class CommandLines {
    private static final long INTERRUPTED_MS = 15_000;

    /** Notes what a command asks servers for. */
    private static final class Codes implements RPCHook {
        private final Set<Integer> seen = new ConcurrentSkipListSet<>();

        @Override
        public synchronized void doBeforeRequest(String address, RemotingCommand request) {
            seen.add(request.getCode());
            notifyAll();
        }

        /** Returns when a request with this code was sent, or the time is over; at once for 0. */
        synchronized void await(int code, long limitMs) throws InterruptedException {
            long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(limitMs);
            for (long left = limitMs; code != 0 && !seen.contains(code) && left > 0;
                    left = TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime())) {
                wait(left);
            }
        }

        @Override
        public void doAfterResponse(String address, RemotingCommand request, RemotingCommand response) {
        }
    }

    public void register(Map<String, Driver.Op> ops) {
        ops.put("mqadmin_names", this::names);
        ops.put("mqadmin_run", this::run);
    }

    /** The names of all commands that these jars know. */
    private Object names(JsonObject command) throws Exception {
        if (commands().isEmpty()) {
            MQAdminStartup.initCommand();
        }
        Set<String> names = new TreeSet<>();
        for (SubCommand one : commands()) {
            names.add(one.commandName());
        }
        return Driver.GSON.toJsonTree(names);
    }

    @SuppressWarnings("unchecked")
    private static List<SubCommand> commands() throws Exception {
        Field commands = MQAdminStartup.class.getDeclaredField("SUB_COMMANDS");
        commands.setAccessible(true);
        return (List<SubCommand>) commands.get(null);
    }

    /** Runs one command, for "limit_ms" at most: some watch for ever. One that goes on in the background
     * is given this time, too, to send a request with the code "until_code". */
    private Object run(JsonObject command) throws Exception {
        JsonArray given = command.getAsJsonArray("args");
        String[] args = new String[given.size()];
        for (int i = 0; i < args.length; i++) {
            args[i] = given.get(i).getAsString();
        }
        commands().clear();  // it adds all of them each time it is started
        Codes codes = new Codes();
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream capture = new PrintStream(printed, true, "UTF-8");
        System.setOut(capture);
        System.setErr(capture);
        boolean ended;
        try {
            Thread thread = new Thread(() -> MQAdminStartup.main0(args, codes), "mqadmin");
            thread.setDaemon(true);
            thread.start();
            long limitMs = command.get("limit_ms").getAsLong();
            thread.join(limitMs);
            codes.await(command.get("until_code").getAsInt(), limitMs);
            ended = !thread.isAlive();
            thread.interrupt();
            thread.join(INTERRUPTED_MS);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        JsonObject answer = new JsonObject();
        answer.addProperty("printed", new String(printed.toByteArray(), StandardCharsets.UTF_8));
        answer.addProperty("ended", ended);
        answer.add("codes", Driver.GSON.toJsonTree(codes.seen));
        return answer;
    }
}
