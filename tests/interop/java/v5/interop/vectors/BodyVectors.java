package interop.vectors;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.message.MessageQueueAssignment;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.protocol.DataVersion;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.admin.ConsumeStats;
import org.apache.rocketmq.remoting.protocol.admin.OffsetWrapper;
import org.apache.rocketmq.remoting.protocol.admin.TopicOffset;
import org.apache.rocketmq.remoting.protocol.admin.TopicStatsTable;
import org.apache.rocketmq.remoting.protocol.body.BrokerMemberGroup;
import org.apache.rocketmq.remoting.protocol.body.ClusterInfo;
import org.apache.rocketmq.remoting.protocol.body.Connection;
import org.apache.rocketmq.remoting.protocol.body.ConsumerConnection;
import org.apache.rocketmq.remoting.protocol.body.ConsumerOffsetSerializeWrapper;
import org.apache.rocketmq.remoting.protocol.body.ConsumerRunningInfo;
import org.apache.rocketmq.remoting.protocol.body.GetConsumerStatusBody;
import org.apache.rocketmq.remoting.protocol.body.KVTable;
import org.apache.rocketmq.remoting.protocol.body.LockBatchRequestBody;
import org.apache.rocketmq.remoting.protocol.body.LockBatchResponseBody;
import org.apache.rocketmq.remoting.protocol.body.ProcessQueueInfo;
import org.apache.rocketmq.remoting.protocol.body.QueryAssignmentRequestBody;
import org.apache.rocketmq.remoting.protocol.body.QueryAssignmentResponseBody;
import org.apache.rocketmq.remoting.protocol.body.RegisterBrokerBody;
import org.apache.rocketmq.remoting.protocol.body.ResetOffsetBody;
import org.apache.rocketmq.remoting.protocol.body.SubscriptionGroupWrapper;
import org.apache.rocketmq.remoting.protocol.body.TopicConfigAndMappingSerializeWrapper;
import org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.remoting.protocol.body.TopicList;
import org.apache.rocketmq.remoting.protocol.filter.FilterAPI;
import org.apache.rocketmq.remoting.protocol.header.GetConsumerListByGroupResponseBody;
import org.apache.rocketmq.remoting.protocol.heartbeat.ConsumeType;
import org.apache.rocketmq.remoting.protocol.heartbeat.ConsumerData;
import org.apache.rocketmq.remoting.protocol.heartbeat.HeartbeatData;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.remoting.protocol.heartbeat.ProducerData;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.remoting.protocol.route.QueueData;
import org.apache.rocketmq.remoting.protocol.route.TopicRouteData;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;

/** Request and response bodies exactly as Java writes them, non-standard JSON included. */
final class BodyVectors {
    private static final long NOW = 1_700_000_000_000L;
    private final List<Map<String, Object>> rows = new ArrayList<>();

    static List<Map<String, Object>> all() throws Exception {
        BodyVectors bodies = new BodyVectors();
        bodies.heartbeat();
        bodies.routes();
        bodies.topicTables();
        bodies.offsetTables();
        bodies.groups();
        bodies.orders();
        return bodies.rows;
    }

    private void heartbeat() throws Exception {
        ConsumerData consumer = new ConsumerData();
        consumer.setGroupName("billing");
        consumer.setConsumeType(ConsumeType.CONSUME_PASSIVELY);
        consumer.setMessageModel(MessageModel.CLUSTERING);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.getSubscriptionDataSet().add(FilterAPI.buildSubscriptionData("orders", "created || paid"));
        consumer.getSubscriptionDataSet().add(FilterAPI.buildSubscriptionData("%RETRY%billing", "*"));
        consumer.getSubscriptionDataSet().add(FilterAPI.build("invoices", "a BETWEEN 0 AND 3", "SQL92"));
        consumer.getSubscriptionDataSet().forEach(subscription -> subscription.setSubVersion(NOW));
        ProducerData producer = new ProducerData();
        producer.setGroupName("orders-svc");
        HeartbeatData heartbeat = new HeartbeatData();
        heartbeat.setClientID("10.0.0.1@1234#567890");
        heartbeat.setConsumerDataSet(new HashSet<>(Collections.singleton(consumer)));
        heartbeat.setProducerDataSet(new HashSet<>(Collections.singleton(producer)));
        heartbeat.setHeartbeatFingerprint(heartbeat.computeHeartbeatFingerprint());
        add("heartbeat", heartbeat);
    }

    private void routes() {
        TopicRouteData route = new TopicRouteData();
        QueueData queue = new QueueData();
        queue.setBrokerName("broker-a");
        queue.setReadQueueNums(4);
        queue.setWriteQueueNums(4);
        queue.setPerm(6);
        route.setQueueDatas(new ArrayList<>(Collections.singletonList(queue)));
        HashMap<Long, String> addresses = new HashMap<>();
        addresses.put(0L, "127.0.0.1:10911");
        addresses.put(1L, "127.0.0.1:20911");
        BrokerData broker = new BrokerData("DefaultCluster", "broker-a", addresses);
        route.setBrokerDatas(new ArrayList<>(Collections.singletonList(broker)));
        route.setFilterServerTable(new HashMap<>());
        add("topic_route", route);
        ClusterInfo cluster = new ClusterInfo();
        cluster.setBrokerAddrTable(Collections.singletonMap("broker-a", broker));
        cluster.setClusterAddrTable(
            Collections.singletonMap("DefaultCluster", Collections.singleton("broker-a")));
        add("cluster_info", cluster);
        BrokerMemberGroup members = new BrokerMemberGroup("DefaultCluster", "broker-a");
        members.setBrokerAddrs(addresses);
        add("broker_member_group", members);
        TopicList topics = new TopicList();
        topics.setTopicList(Collections.singleton("orders"));
        add("topic_list", topics);
        KVTable table = new KVTable();
        table.getTable().put("orders", "broker-a:4;broker-b:4");
        add("kv_table", table);
    }

    private void topicTables() {
        TopicConfigSerializeWrapper topics = new TopicConfigSerializeWrapper();
        topics.setDataVersion(version());
        TopicConfig orders = new TopicConfig("orders", 8, 8, 6);
        orders.getAttributes().put("+message.type", "FIFO");
        topics.getTopicConfigTable().put("orders", orders);
        topics.getTopicConfigTable().put("read-only", new TopicConfig("read-only", 1, 1, 4));
        add("topic_config_table", topics);
        TopicConfigAndMappingSerializeWrapper mapped = TopicConfigAndMappingSerializeWrapper.from(topics);
        mapped.setMappingDataVersion(version());
        RegisterBrokerBody register = new RegisterBrokerBody();
        register.setTopicConfigSerializeWrapper(mapped);
        add("register_broker", register);
        rows.add(Vectors.row("name", "register_broker_compressed", "type", "RegisterBrokerBody",
            "bytes", Vectors.hex(register.encode(true))));
        for (TopicConfig config : topics.getTopicConfigTable().values()) {
            rows.add(Vectors.row("name", "topic_config_line", "type", "TopicConfig",
                "text", config.encode()));
        }
        add("data_version", version());
    }

    private void offsetTables() {
        ConcurrentMap<Integer, Long> offsets = new ConcurrentHashMap<>();
        offsets.put(0, 41L);
        offsets.put(7, 1L << 40);
        ConsumerOffsetSerializeWrapper wrapper = new ConsumerOffsetSerializeWrapper();
        wrapper.getOffsetTable().put("orders@billing", offsets);
        wrapper.setDataVersion(version());
        add("consumer_offset_table", wrapper);
        Map<MessageQueue, Long> byQueue = new HashMap<>();
        byQueue.put(new MessageQueue("orders", "broker-a", 0), 41L);
        byQueue.put(new MessageQueue("orders", "broker-a", 1), 0L);
        ResetOffsetBody reset = new ResetOffsetBody();
        reset.setOffsetTable(byQueue);
        add("reset_offset", reset);
        GetConsumerStatusBody status = new GetConsumerStatusBody();
        status.setMessageQueueTable(byQueue);
        status.setConsumerTable(Collections.singletonMap("10.0.0.1@1234", byQueue));
        add("consumer_status", status);
        OffsetWrapper progress = new OffsetWrapper();
        progress.setBrokerOffset(100);
        progress.setConsumerOffset(41);
        progress.setLastTimestamp(NOW);
        ConsumeStats stats = new ConsumeStats();
        stats.getOffsetTable().put(new MessageQueue("orders", "broker-a", 0), progress);
        stats.setConsumeTps(1.5);
        add("consume_stats", stats);
        TopicOffset range = new TopicOffset();
        range.setMaxOffset(100);
        range.setLastUpdateTimestamp(NOW);
        TopicStatsTable table = new TopicStatsTable();
        table.getOffsetTable().put(new MessageQueue("orders", "broker-a", 0), range);
        add("topic_stats", table);
    }

    private void groups() {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName("billing");
        SubscriptionGroupWrapper wrapper = new SubscriptionGroupWrapper();
        wrapper.getSubscriptionGroupTable().put("billing", config);
        wrapper.setDataVersion(version());
        add("subscription_group_table", wrapper);
        rows.add(Vectors.row("name", "subscription_group_config", "type", "SubscriptionGroupConfig",
            "text", RemotingSerializable.toJson(config, false)));
        GetConsumerListByGroupResponseBody members = new GetConsumerListByGroupResponseBody();
        members.setConsumerIdList(Arrays.asList("10.0.0.1@1", "10.0.0.2@2"));
        add("consumer_id_list", members);
        Connection connection = new Connection();
        connection.setClientId("10.0.0.1@1");
        connection.setClientAddr("10.0.0.1:50000");
        connection.setLanguage(LanguageCode.JAVA);
        connection.setVersion(477);
        ConsumerConnection consumers = new ConsumerConnection();
        consumers.setConnectionSet(new HashSet<>(Collections.singleton(connection)));
        consumers.setConsumeType(ConsumeType.CONSUME_PASSIVELY);
        consumers.setMessageModel(MessageModel.CLUSTERING);
        consumers.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        add("consumer_connection", consumers);
        ConsumerRunningInfo info = new ConsumerRunningInfo();
        ProcessQueueInfo queue = new ProcessQueueInfo();
        queue.setCommitOffset(41);
        queue.setCachedMsgCount(2);
        TreeMap<MessageQueue, ProcessQueueInfo> table = new TreeMap<>();
        table.put(new MessageQueue("orders", "broker-a", 0), queue);
        info.setMqTable(table);
        info.getProperties().put(ConsumerRunningInfo.PROP_CONSUME_ORDERLY, "false");
        add("consumer_running_info", info);
    }

    private void orders() {
        MessageQueue queue = new MessageQueue("orders", "broker-a", 0);
        LockBatchRequestBody lock = new LockBatchRequestBody();
        lock.setConsumerGroup("billing");
        lock.setClientId("10.0.0.1@1234");
        lock.getMqSet().add(queue);
        add("lock_batch", lock);
        LockBatchResponseBody locked = new LockBatchResponseBody();
        locked.getLockOKMQSet().add(queue);
        add("lock_batch_reply", locked);
        QueryAssignmentRequestBody ask = new QueryAssignmentRequestBody();
        ask.setTopic("orders");
        ask.setConsumerGroup("billing");
        ask.setClientId("10.0.0.1@1234");
        ask.setStrategyName("AVG");
        ask.setMessageModel(MessageModel.CLUSTERING);
        add("query_assignment", ask);
        MessageQueueAssignment assignment = new MessageQueueAssignment();
        assignment.setMessageQueue(queue);
        assignment.setMode(MessageRequestMode.PULL);
        QueryAssignmentResponseBody assigned = new QueryAssignmentResponseBody();
        assigned.setMessageQueueAssignments(Collections.singleton(assignment));
        add("query_assignment_reply", assigned);
    }

    private static DataVersion version() {
        DataVersion version = new DataVersion();
        version.setTimestamp(NOW);
        version.setStateVersion(0);
        version.setCounter(new AtomicLong(3));
        return version;
    }

    private void add(String name, RemotingSerializable body) {
        rows.add(Vectors.row("name", name, "type", body.getClass().getSimpleName(),
            "text", new String(body.encode(), StandardCharsets.UTF_8)));
    }
}
