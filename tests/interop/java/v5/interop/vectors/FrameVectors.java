package interop.vectors;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.SerializeType;
import org.apache.rocketmq.remoting.protocol.header.ConsumerSendMsgBackRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.GetConsumerListByGroupRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PullMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PullMessageResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.QueryConsumerOffsetRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeaderV2;
import org.apache.rocketmq.remoting.protocol.header.SendMessageResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.UpdateConsumerOffsetRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.namesrv.GetRouteInfoRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.namesrv.RegisterBrokerRequestHeader;

/** Whole remoting frames, each command once with a JSON header and once with a binary one. */
final class FrameVectors {
    private final List<Map<String, Object>> rows = new ArrayList<>();

    static List<Map<String, Object>> all() throws Exception {
        FrameVectors frames = new FrameVectors();
        frames.sends();
        frames.pulls();
        frames.offsets();
        frames.nameServer();
        frames.plain();
        return frames.rows;
    }

    private void sends() throws Exception {
        SendMessageRequestHeader send = new SendMessageRequestHeader();
        send.setProducerGroup("orders-svc");
        send.setTopic("orders");
        send.setDefaultTopic("TBW102");
        send.setDefaultTopicQueueNums(4);
        send.setQueueId(3);
        send.setSysFlag(1);
        send.setBornTimestamp(1_700_000_000_123L);
        send.setFlag(0);
        send.setProperties("UNIQ_KEY\u00017F00000100001234\u0002TAGS\u0001paid\u0002KEYS\u0001o-1 o-2\u0002");
        send.setReconsumeTimes(0);
        send.setUnitMode(false);
        send.setMaxReconsumeTimes(16);
        send.setBatch(false);
        send.setBrokerName("broker-a");
        byte[] body = "hello, caf\u00e9 \u65e5\u672c".getBytes(StandardCharsets.UTF_8);
        add("send_message", RequestCode.SEND_MESSAGE, send, body);
        SendMessageRequestHeaderV2 v2 = SendMessageRequestHeaderV2.createSendMessageRequestHeaderV2(send);
        add("send_message_v2", RequestCode.SEND_MESSAGE_V2, v2, body);
        send.setBatch(true);
        SendMessageRequestHeaderV2 batch = SendMessageRequestHeaderV2.createSendMessageRequestHeaderV2(send);
        add("send_batch_message", RequestCode.SEND_BATCH_MESSAGE, batch, body);
        SendMessageResponseHeader sent = new SendMessageResponseHeader();
        sent.setMsgId("7F00000100002A9F00000000000003E8");
        sent.setQueueId(3);
        sent.setQueueOffset(41L);
        reply("send_message_reply", ResponseCode.SUCCESS, null, sent, null);
        ConsumerSendMsgBackRequestHeader back = new ConsumerSendMsgBackRequestHeader();
        back.setOffset(1000L);
        back.setGroup("billing");
        back.setDelayLevel(3);
        back.setOriginMsgId("7F00000100001234");
        back.setOriginTopic("orders");
        back.setMaxReconsumeTimes(16);
        add("consumer_send_msg_back", RequestCode.CONSUMER_SEND_MSG_BACK, back, null);
    }

    private void pulls() throws Exception {
        PullMessageRequestHeader pull = new PullMessageRequestHeader();
        pull.setConsumerGroup("billing");
        pull.setTopic("orders");
        pull.setQueueId(0);
        pull.setQueueOffset(1L << 40);
        pull.setMaxMsgNums(32);
        pull.setSysFlag(7);
        pull.setCommitOffset(99L);
        pull.setSuspendTimeoutMillis(15_000L);
        pull.setSubscription("created || paid");
        pull.setSubVersion(1_700_000_000_000L);
        pull.setExpressionType("TAG");
        add("pull_message", RequestCode.PULL_MESSAGE, pull, null);
        add("lite_pull_message", RequestCode.LITE_PULL_MESSAGE, pull, null);
        PullMessageResponseHeader found = new PullMessageResponseHeader();
        found.setSuggestWhichBrokerId(0L);
        found.setNextBeginOffset(132L);
        found.setMinOffset(0L);
        found.setMaxOffset(500L);
        reply("pull_message_reply", ResponseCode.SUCCESS, "FOUND", found, new byte[] {1, 2, 3});
    }

    private void offsets() throws Exception {
        QueryConsumerOffsetRequestHeader query = new QueryConsumerOffsetRequestHeader();
        query.setConsumerGroup("billing");
        query.setTopic("orders");
        query.setQueueId(7);
        add("query_consumer_offset", RequestCode.QUERY_CONSUMER_OFFSET, query, null);
        UpdateConsumerOffsetRequestHeader update = new UpdateConsumerOffsetRequestHeader();
        update.setConsumerGroup("billing");
        update.setTopic("orders");
        update.setQueueId(7);
        update.setCommitOffset(-1L);
        RemotingCommand oneWay = request(RequestCode.UPDATE_CONSUMER_OFFSET, update, null);
        oneWay.markOnewayRPC();
        both("update_consumer_offset_one_way", oneWay);
        GetConsumerListByGroupRequestHeader members = new GetConsumerListByGroupRequestHeader();
        members.setConsumerGroup("billing");
        add("get_consumer_list_by_group", RequestCode.GET_CONSUMER_LIST_BY_GROUP, members, null);
    }

    private void nameServer() throws Exception {
        GetRouteInfoRequestHeader route = new GetRouteInfoRequestHeader();
        route.setTopic("orders");
        route.setAcceptStandardJsonOnly(true);
        add("get_route_info_by_topic", RequestCode.GET_ROUTEINFO_BY_TOPIC, route, null);
        RegisterBrokerRequestHeader register = new RegisterBrokerRequestHeader();
        register.setBrokerName("broker-a");
        register.setBrokerAddr("127.0.0.1:10911");
        register.setClusterName("DefaultCluster");
        register.setHaServerAddr("127.0.0.1:10912");
        register.setBrokerId(0L);
        register.setBodyCrc32(123456);
        register.setCompressed(false);
        register.setEnableActingMaster(false);
        add("register_broker", RequestCode.REGISTER_BROKER, register, "{}".getBytes());
    }

    private void plain() throws Exception {
        add("no_header_fields", RequestCode.GET_BROKER_RUNTIME_INFO, null, null);
        add("heart_beat", RequestCode.HEART_BEAT, null, "{\"clientID\":\"10.0.0.1@1\"}".getBytes());
        reply("refused", ResponseCode.TOPIC_NOT_EXIST, "no route info of topic \u00fcnknown", null, null);
        reply("empty_reply", ResponseCode.SUCCESS, null, null, null);
    }

    private void add(String name, int code, CommandCustomHeader header, byte[] body) throws Exception {
        both(name, request(code, header, body));
    }

    private RemotingCommand request(int code, CommandCustomHeader header, byte[] body) {
        RemotingCommand command = RemotingCommand.createRequestCommand(code, header);
        command.setBody(body);
        command.setOpaque(77);
        return command;
    }

    private void reply(String name, int code, String remark, CommandCustomHeader header, byte[] body)
            throws Exception {
        RemotingCommand command = RemotingCommand.createResponseCommandWithHeader(code, header);
        command.setRemark(remark);
        command.setBody(body);
        command.setOpaque(77);
        command.markResponseType();
        both(name, command);
    }

    private void both(String name, RemotingCommand command) throws Exception {
        for (SerializeType type : SerializeType.values()) {
            command.setSerializeTypeCurrentRPC(type);
            ByteBuffer encoded = command.encode();
            byte[] frame = new byte[encoded.remaining()];
            encoded.get(frame);
            RemotingCommand read = RemotingCommand.decode(ByteBuffer.wrap(frame, 4, frame.length - 4));
            rows.add(Vectors.row("name", name, "serialization", type.name().toLowerCase(),
                "code", read.getCode(), "language", read.getLanguage().name(),
                "version", read.getVersion(), "opaque", read.getOpaque(), "flag", read.getFlag(),
                "remark", read.getRemark(),
                "ext_fields", read.getExtFields() == null ? null : new TreeMap<>(read.getExtFields()),
                "body", read.getBody() == null ? "" : Vectors.hex(read.getBody()),
                "frame", Vectors.hex(frame)));
        }
    }
}
