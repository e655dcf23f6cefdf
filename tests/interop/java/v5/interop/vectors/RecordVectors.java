package interop.vectors;

import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.message.MessageVersion;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.MessageExtEncoder;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** Commit-log records and batch bodies. */
final class RecordVectors {
    private static final long BORN_AT = 1_700_000_000_123L;
    private static final long STORED_AT = 1_700_000_000_456L;

    private RecordVectors() {
    }

    static List<Map<String, Object>> all() throws Exception {
        List<Map<String, Object>> rows = new ArrayList<>();
        for (MessageVersion version : MessageVersion.values()) {
            String v = version == MessageVersion.MESSAGE_VERSION_V1 ? "v1" : "v2";
            rows.add(record(v + "_ipv4", version, "127.0.0.1", "10.20.30.40", "orders", "hello", false));
            rows.add(record(v + "_ipv6_born", version, "2001:db8::17", "10.20.30.40", "orders", "hello", false));
            rows.add(record(v + "_ipv6_store", version, "127.0.0.1", "2001:db8::1:2", "orders", "hello", false));
            rows.add(record(v + "_ipv6", version, "::1", "fe80::1", "orders", "caf\u00e9 \u65e5\u672c", false));
            rows.add(record(v + "_empty_body", version, "127.0.0.1", "127.0.0.1", "t", "", false));
            rows.add(record(v + "_with_record_crc", version, "127.0.0.1", "127.0.0.1", "orders", "hello", true));
        }
        String longTopic = String.join("", Collections.nCopies(200, "x"));
        rows.add(record("v2_long_topic", MessageVersion.MESSAGE_VERSION_V2,
            "127.0.0.1", "127.0.0.1", longTopic, "hello", false));
        return rows;
    }

    private static Map<String, Object> record(String name, MessageVersion version, String bornHost,
            String storeHost, String topic, String text, boolean recordCrc) throws Exception {
        byte[] body = text.getBytes(StandardCharsets.UTF_8);
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setVersion(version);
        message.setTopic(topic);
        message.setBody(body);
        message.setBodyCRC(UtilAll.crc32(body));
        message.setQueueId(3);
        message.setFlag(5);
        message.setQueueOffset(41);
        message.setSysFlag(MessageSysFlag.TRANSACTION_COMMIT_TYPE);
        message.setBornTimestamp(BORN_AT);
        message.setStoreTimestamp(STORED_AT);
        message.setBornHost(new InetSocketAddress(bornHost, 54321));
        message.setStoreHost(new InetSocketAddress(storeHost, 10911));
        if (bornHost.contains(":")) {
            message.setBornHostV6Flag();
        }
        if (storeHost.contains(":")) {
            message.setStoreHostAddressV6Flag();
        }
        message.setReconsumeTimes(2);
        message.setPreparedTransactionOffset(777);
        message.setKeys(Arrays.asList("o-1", "o-2"));
        message.setTags("paid");
        MessageAccessor.putProperty(message, "UNIQ_KEY", "7F0000010000123456780000000A0000");
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));

        MessageStoreConfig config = new MessageStoreConfig();
        config.setEnabledAppendPropCRC(recordCrc);
        MessageExtEncoder encoder = new MessageExtEncoder(config);
        encoder.encode(message);
        ByteBuffer buffer = encoder.getEncoderBuffer();
        byte[] bytes = new byte[buffer.getInt(0)];
        buffer.get(bytes);
        long logOffset = 123_456_789_012L;
        ByteBuffer record = ByteBuffer.wrap(bytes);
        record.putLong(MessageDecoder.PHY_POS_POSITION, logOffset);   // the commit log does this on append
        if (recordCrc) {
            int checked = bytes.length - CommitLog.CRC32_RESERVED_LEN;
            record.position(checked);
            MessageDecoder.createCrc32(record, UtilAll.crc32(bytes, 0, checked));
        }
        return Vectors.row("name", name, "version", version == MessageVersion.MESSAGE_VERSION_V1 ? 1 : 2,
            "body_crc", message.getBodyCRC(), "queue_id", message.getQueueId(), "flag", message.getFlag(),
            "queue_offset", message.getQueueOffset(), "log_offset", logOffset,
            "sys_flag", message.getSysFlag(), "born_timestamp", BORN_AT,
            "born_host", message.getBornHostString(), "born_port", 54321,
            "store_timestamp", STORED_AT,
            "store_host", ((InetSocketAddress) message.getStoreHost()).getAddress().getHostAddress(),
            "store_port", 10911, "reconsume_times", 2, "prepared_transaction_offset", 777,
            "body", Vectors.hex(body), "topic", topic, "properties", message.getPropertiesString(),
            "has_record_crc", recordCrc,
            "message_id", MessageDecoder.decode(ByteBuffer.wrap(bytes)).getMsgId(),
            "record", Vectors.hex(bytes));
    }

    static List<Map<String, Object>> batches() {
        List<Message> messages = new ArrayList<>();
        for (String text : Arrays.asList("one", "", "drei \u00fc", "\u56db")) {
            Message message = new Message("orders", "tag-" + messages.size(), "key-" + messages.size(),
                text.getBytes(StandardCharsets.UTF_8));
            message.setFlag(messages.size());
            messages.add(message);
        }
        messages.add(new Message("orders", new byte[300]));
        List<Map<String, Object>> parts = new ArrayList<>();
        for (Message message : messages) {
            parts.add(Vectors.row("flag", message.getFlag(), "body", Vectors.hex(message.getBody()),
                "properties", MessageDecoder.messageProperties2String(message.getProperties()),
                "encoded", Vectors.hex(MessageDecoder.encodeMessage(message))));
        }
        List<Map<String, Object>> rows = new ArrayList<>();
        rows.add(Vectors.row("name", "batch_of_five", "messages", parts,
            "encoded", Vectors.hex(MessageDecoder.encodeMessages(messages))));
        return rows;
    }
}
