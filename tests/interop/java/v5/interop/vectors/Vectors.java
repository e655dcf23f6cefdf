package interop.vectors;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.MQVersion;

/**
 * Writes what Apache's own classes produce as JSON files that the codec tests read: bytes as hex,
 * names in snake_case, every value that went in beside the bytes that came out.
 *
 * <pre>Vectors OUTPUT_DIRECTORY</pre>
 */
public final class Vectors {
    private static final Gson GSON =
        new GsonBuilder().setPrettyPrinting().disableHtmlEscaping().serializeNulls().create();

    private Vectors() {
    }

    public static void main(String[] args) throws Exception {
        System.setProperty("rocketmq.remoting.version", Integer.toString(MQVersion.CURRENT_VERSION));
        Path out = Paths.get(args[0]);
        Files.createDirectories(out);
        write(out, "frames", FrameVectors.all());
        write(out, "records", RecordVectors.all());
        write(out, "batches", RecordVectors.batches());
        write(out, "properties", ValueVectors.properties());
        write(out, "ids", ValueVectors.ids());
        write(out, "hashes", ValueVectors.hashes());
        write(out, "compression", ValueVectors.compression());
        write(out, "bodies", BodyVectors.all());
        write(out, "store", StoreVectors.all());
        System.exit(0);   // a message store leaves threads behind
    }

    private static void write(Path out, String name, List<Map<String, Object>> cases) throws Exception {
        Map<String, Object> file = new LinkedHashMap<>();
        file.put("made_by", "Apache RocketMQ " + MQVersion.getVersionDesc(MQVersion.CURRENT_VERSION));
        file.put("cases", cases);
        Files.write(out.resolve(name + ".json"),
            (GSON.toJson(file) + "\n").getBytes(StandardCharsets.UTF_8));
    }

    /** An ordered map from alternating names and values. */
    static Map<String, Object> row(Object... namesAndValues) {
        Map<String, Object> row = new LinkedHashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            row.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return row;
    }

    static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder(bytes.length * 2);
        for (byte one : bytes) {
            text.append(Character.forDigit((one >> 4) & 15, 16)).append(Character.forDigit(one & 15, 16));
        }
        return text.toString();
    }
}
