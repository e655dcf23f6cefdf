package interop.vectors;

import java.io.File;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** The files of a real message store after a few appends, with file sizes small enough to roll. */
final class StoreVectors {
    private static final int LOG_FILE_SIZE = 4096;
    private static final int UNITS_PER_FILE = 5;
    private static final int SLOTS = 8;
    private static final int ENTRIES = 80;

    private StoreVectors() {
    }

    static List<Map<String, Object>> all() throws Exception {
        List<Map<String, Object>> rows = new ArrayList<>();
        rows.add(store("rolled_files", false));
        rows.add(store("rolled_files_with_record_crc", true));
        return rows;
    }

    private static Map<String, Object> store(String name, boolean recordCrc) throws Exception {
        Path root = Files.createTempDirectory("vectors");
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root.toString());
        config.setStorePathCommitLog(root.resolve("commitlog").toString());
        config.setMappedFileSizeCommitLog(LOG_FILE_SIZE);
        config.setMappedFileSizeConsumeQueue(UNITS_PER_FILE * 20);
        config.setMaxHashSlotNum(SLOTS);
        config.setMaxIndexNum(ENTRIES);
        config.setEnabledAppendPropCRC(recordCrc);
        config.setHaListenPort(0);
        config.setTimerWheelEnable(false);
        BrokerConfig broker = new BrokerConfig();
        ConcurrentHashMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        DefaultMessageStore store = new DefaultMessageStore(config,
            new BrokerStatsManager("vectors", false), (t, q, o, g, s, b, p) -> { }, broker, topics);
        if (!store.load()) {
            throw new IllegalStateException("store does not load");
        }
        store.start();
        List<Map<String, Object>> puts = new ArrayList<>();
        for (int i = 0; i < 30; i++) {
            puts.add(put(store, i));
        }
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(10);
        }
        store.shutdown();
        Map<String, Object> row = Vectors.row("name", name, "log_file_size", LOG_FILE_SIZE,
            "units_per_file", UNITS_PER_FILE, "index_slots", SLOTS, "index_entries", ENTRIES,
            "has_record_crc", recordCrc, "messages", puts, "files", files(root));
        delete(root.toFile());
        return row;
    }

    private static Map<String, Object> put(DefaultMessageStore store, int i) {
        byte[] body = String.format("message %02d %s", i, i % 5 == 0 ? "caf\u00e9" : "").getBytes(
            StandardCharsets.UTF_8);
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(i % 3 == 0 ? "invoices" : "orders");
        message.setQueueId(i % 2);
        message.setBody(body);
        if (i % 4 != 0) {
            message.setTags(i % 4 == 1 ? "paid" : "created");
        }
        message.setKeys(Arrays.asList("k-" + i, "shared"));
        MessageAccessor.putProperty(message, "UNIQ_KEY", String.format("7F0000010000123456780000000A%04X", i));
        message.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(null, message.getTags()));
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        message.setBornTimestamp(1_700_000_000_000L + i);
        message.setBornHost(new InetSocketAddress("127.0.0.1", 50000));
        message.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
        PutMessageResult result = store.putMessage(message);
        return Vectors.row("topic", message.getTopic(), "queue_id", message.getQueueId(),
            "body", Vectors.hex(body), "properties", message.getPropertiesString(),
            "tags", message.getTags(), "tags_code", message.getTagsCode(),
            "status", result.getPutMessageStatus().name(),
            "log_offset", result.getAppendMessageResult().getWroteOffset(),
            "size", result.getAppendMessageResult().getWroteBytes(),
            "queue_offset", result.getAppendMessageResult().getLogicsOffset(),
            "store_timestamp", result.getAppendMessageResult().getStoreTimestamp());
    }

    /** Every file's length, and its bytes without the zeros at the end. */
    private static Map<String, Object> files(Path root) throws Exception {
        List<Path> paths;
        try (Stream<Path> walk = Files.walk(root)) {
            paths = walk.filter(Files::isRegularFile)
                .filter(path -> !root.relativize(path).startsWith("rocksdbstore")).sorted().collect(Collectors.toList());
        }
        Map<String, Object> files = new LinkedHashMap<>();
        for (Path path : paths) {
            byte[] bytes = Files.readAllBytes(path);
            int end = bytes.length;
            while (end > 0 && bytes[end - 1] == 0) {
                end--;
            }
            files.put(root.relativize(path).toString(),
                Vectors.row("size", bytes.length, "hex", Vectors.hex(Arrays.copyOf(bytes, end))));
        }
        return files;
    }

    private static void delete(File file) {
        File[] children = file.listFiles();
        if (children != null) {
            for (File child : children) {
                delete(child);
            }
        }
        if (!file.delete()) {
            System.err.println("left behind: " + file);
        }
    }
}
