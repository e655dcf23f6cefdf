package interop;

import com.google.gson.ExclusionStrategy;
import com.google.gson.FieldAttributes;
import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Apache's administration client, method by method, and its mqadmin command line. */
public final class Admin {
    private static final Gson GSON = new GsonBuilder().enableComplexMapKeySerialization()
        .disableHtmlEscaping().serializeNulls().setExclusionStrategies(new WithoutRandom()).create();

    /** A broker's route data carries a random generator, which nobody can show. */
    private static final class WithoutRandom implements ExclusionStrategy {
        @Override
        public boolean shouldSkipField(FieldAttributes field) {
            return false;
        }

        @Override
        public boolean shouldSkipClass(Class<?> type) {
            return type == Random.class;
        }
    }

    private final Map<String, DefaultMQAdminExt> admins = new ConcurrentHashMap<>();

    public void register(Map<String, Driver.Op> ops) {
        ops.put("admin", this::call);
        ops.put("mqadmin", this::commandLine);
        new CommandLines().register(ops);
        new Delivery().register(ops);
    }

    /** Calls the method of that name with that many arguments. */
    private Object call(JsonObject command) throws Throwable {
        DefaultMQAdminExt admin = admin(Values.text(command, "name_server", null));
        JsonArray given = command.getAsJsonArray("args");
        String signature = Values.text(command, "signature", null);
        for (Method method : DefaultMQAdminExt.class.getMethods()) {
            if (method.getName().equals(Values.text(command, "method", null))
                    && method.getParameterCount() == given.size() && fits(method, signature)) {
                Object[] args = new Object[given.size()];
                for (int i = 0; i < args.length; i++) {
                    args[i] = GSON.fromJson(given.get(i), method.getGenericParameterTypes()[i]);
                }
                try {
                    return GSON.toJsonTree(method.invoke(admin, args));
                } catch (InvocationTargetException wrapped) {
                    throw wrapped.getCause();
                }
            }
        }
        throw new NoSuchMethodException(command.toString());
    }

    /** Where methods share name and number of arguments, "signature" lists the simple type names. */
    private static boolean fits(Method method, String signature) {
        if (signature == null) {
            return true;
        }
        StringBuilder names = new StringBuilder();
        for (Class<?> type : method.getParameterTypes()) {
            names.append(names.length() == 0 ? "" : ",").append(type.getSimpleName());
        }
        return names.toString().equals(signature);
    }

    private DefaultMQAdminExt admin(String nameServer) throws Exception {
        DefaultMQAdminExt admin = admins.get(nameServer);
        if (admin == null) {
            admin = new DefaultMQAdminExt(30_000);
            admin.setNamesrvAddr(nameServer);
            admin.setInstanceName("admin-" + nameServer.replace(':', '-'));
            admin.start();
            admins.put(nameServer, admin);
        }
        return admin;
    }

    /** Runs one mqadmin command in this process and answers what it printed. */
    private Object commandLine(JsonObject command) throws Exception {
        JsonArray given = command.getAsJsonArray("args");
        String[] args = new String[given.size()];
        int i = 0;
        for (JsonElement one : given) {
            args[i++] = one.getAsString();
        }
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream capture = new PrintStream(printed, true, "UTF-8");
        System.setOut(capture);
        System.setErr(capture);
        try {
            MQAdminStartup.main0(args, null);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return new String(printed.toByteArray(), StandardCharsets.UTF_8);
    }
}
