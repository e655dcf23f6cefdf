package interop.vectors;

import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.compression.CompressorFactory;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.index.IndexFile;

/** Small values: properties strings, ids, hashes, compressed bodies. */
final class ValueVectors {
    private ValueVectors() {
    }

    static List<Map<String, Object>> properties() {
        List<Map<String, Object>> rows = new ArrayList<>();
        Map<String, String> some = new LinkedHashMap<>();
        some.put("KEYS", "o-1 o-2");
        some.put("TAGS", "paid");
        some.put("UNIQ_KEY", "7F0000010000123456780000000A0000");
        some.put("empty", "");
        some.put("caf\u00e9", "\u65e5\u672c");
        some.put("equals", "a=b;c d");
        String encoded = MessageDecoder.messageProperties2String(some);
        rows.add(Vectors.row("name", "encoded_by_java", "encoded", encoded, "decoded", decode(encoded)));
        for (String text : Arrays.asList("", "a\u00011", "a\u00011\u0002", "a\u00011\u0002b", "a\u0001\u0002",
                "\u0001x\u0002", "a\u00011\u0002\u0002b\u00012\u0002", "a\u00011\u00012\u0002",
                "a\u00011\u0002a\u00012\u0002", "a\u0002b\u00012\u0002")) {
            rows.add(Vectors.row("name", "decoded_by_java", "encoded", text, "decoded", decode(text)));
        }
        rows.add(Vectors.row("name", "null_value_left_out", "encoded",
            MessageDecoder.messageProperties2String(withNull()), "decoded", Vectors.row("a", "1")));
        return rows;
    }

    private static Map<String, String> withNull() {
        Map<String, String> map = new LinkedHashMap<>();
        map.put("a", "1");
        map.put("gone", null);
        return map;
    }

    private static Map<String, String> decode(String text) {
        return new TreeMap<>(MessageDecoder.string2messageProperties(text));
    }

    static List<Map<String, Object>> ids() throws Exception {
        List<Map<String, Object>> rows = new ArrayList<>();
        for (String host : Arrays.asList("127.0.0.1", "10.20.30.40", "255.255.255.255", "::1", "2001:db8::1:2")) {
            for (long offset : new long[] {0, 1000, 123_456_789_012L, Long.MAX_VALUE}) {
                String id = MessageDecoder.createMessageId(new InetSocketAddress(host, 10911), offset);
                rows.add(Vectors.row("name", "offset_id", "host",
                    ((InetSocketAddress) MessageDecoder.decodeMessageId(id).getAddress()).getAddress()
                        .getHostAddress(),
                    "port", 10911, "log_offset", offset, "id", id));
            }
        }
        for (String id : Arrays.asList("7F0000010000123456780000000A0000",
                "0A141E2800FF18B4AAC206A1B2C3FFFF", "C0A80001FFFF0000000000000000000A")) {
            rows.add(Vectors.row("name", "unique_id", "id", id,
                "address", Vectors.hex(MessageClientIDSetter.getIPFromID(id)),
                "address_text", MessageClientIDSetter.getIPStrFromID(id),
                "pid", MessageClientIDSetter.getPidFromID(id)));
        }
        return rows;
    }

    static List<Map<String, Object>> hashes() throws Exception {
        Path scratch = Files.createTempDirectory("vectors");
        IndexFile index = new IndexFile(scratch.resolve("0").toString(), 4, 4, 0, 0);
        List<Map<String, Object>> rows = new ArrayList<>();
        for (String text : Arrays.asList("", "a", "paid", "created", "TagA", "orders#o-1", "caf\u00e9",
                "\u65e5\u672c\u8a9e", "\ud83d\ude80 rocket", "polygenelubricants", "Aa", "BB",
                "orders#7F0000010000123456780000000A0000", "DESIGNING WORKHOUSES")) {
            rows.add(Vectors.row("text", text, "hash_code", text.hashCode(),
                "tags_code", MessageExtBrokerInner.tagsString2tagsCode(null, text),
                "index_key_hash", index.indexKeyHashMethod(text)));
        }
        index.destroy(0);
        Files.delete(scratch);
        return rows;
    }

    static List<Map<String, Object>> compression() throws Exception {
        List<Map<String, Object>> rows = new ArrayList<>();
        byte[] noise = new byte[200];
        new Random(7).nextBytes(noise);
        byte[] words = String.join(" ", Collections.nCopies(40, "caf\u00e9 orders paid"))
            .getBytes(StandardCharsets.UTF_8);
        for (CompressionType type : CompressionType.values()) {
            for (int level : new int[] {1, 5, 9}) {
                rows.add(compressed(type, level, "words", words));
            }
            rows.add(compressed(type, 5, "noise", noise));
        }
        return rows;
    }

    private static Map<String, Object> compressed(CompressionType type, int level, String name, byte[] plain)
            throws Exception {
        byte[] packed = CompressorFactory.getCompressor(type).compress(plain, level);
        return Vectors.row("name", name, "type", type.name().toLowerCase(), "level", level,
            "sys_flag", type.getCompressionFlag(), "plain", Vectors.hex(plain),
            "compressed", Vectors.hex(packed));
    }
}
