package org.sparrowmq.oracles;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * {"strategy": name, "queues": [[topic, broker, id], ...], "members": [...], "views": [...]} becomes, for each client id in
 * views, the positions of its queues in the list; "refused" where the strategy throws. A view answers by position, so a
 * strategy that returns queues in another order is noticed.
 */
final class StrategyOracle {
    private StrategyOracle() {
    }

    static Object answer(JSONObject request) {
        List<MessageQueue> queues = queues(request.getJSONArray("queues"));
        Map<MessageQueue, Integer> positions = new IdentityHashMap<>();
        for (int i = 0; i < queues.size(); i++) {
            positions.put(queues.get(i), i);
        }
        List<String> members = request.getJSONArray("members").toList(String.class);
        AllocateMessageQueueStrategy strategy = strategy(request.getString("strategy"), request, queues);
        List<Object> answers = new ArrayList<>();
        for (String view : request.getJSONArray("views").toList(String.class)) {
            answers.add(view(strategy, view, queues, members, positions));
        }
        JSONObject answer = new JSONObject();
        answer.put("name", strategy.getName());
        answer.put("views", answers);
        return answer;
    }

    private static Object view(AllocateMessageQueueStrategy strategy, String client, List<MessageQueue> queues,
        List<String> members, Map<MessageQueue, Integer> positions) {
        try {
            List<Integer> owned = new ArrayList<>();
            for (MessageQueue queue : strategy.allocate("group", client, queues, members)) {
                owned.add(positions.get(queue));
            }
            return owned;
        } catch (RuntimeException refused) {
            return "refused";
        }
    }

    private static AllocateMessageQueueStrategy strategy(String name, JSONObject request, List<MessageQueue> queues) {
        String nearby = "MACHINE_ROOM_NEARBY-";
        if (name.startsWith(nearby)) {
            return new AllocateMachineRoomNearby(strategy(name.substring(nearby.length()), request, queues), new Prefixes());
        }
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash(request.getIntValue("virtual_nodes", 10));
            case "CONFIG":
                return configured(request, queues);
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom rooms = new AllocateMessageQueueByMachineRoom();
                rooms.setConsumeridcs(new HashSet<>(request.getJSONArray("rooms").toList(String.class)));
                return rooms;
            default:
                throw new IllegalArgumentException("unknown strategy " + name);
        }
    }

    private static AllocateMessageQueueStrategy configured(JSONObject request, List<MessageQueue> queues) {
        List<MessageQueue> chosen = new ArrayList<>();
        for (int position : request.getJSONArray("configured").toList(Integer.class)) {
            chosen.add(queues.get(position));
        }
        AllocateMessageQueueByConfig strategy = new AllocateMessageQueueByConfig();
        strategy.setMessageQueueList(chosen);
        return strategy;
    }

    private static List<MessageQueue> queues(JSONArray rows) {
        List<MessageQueue> queues = new ArrayList<>();
        for (int i = 0; i < rows.size(); i++) {
            JSONArray row = rows.getJSONArray(i);
            queues.add(new MessageQueue(row.getString(0), row.getString(1), row.getIntValue(2)));
        }
        return queues;
    }

    /** The room is what stands before the first '-'; without one it is empty, which the strategy refuses. */
    private static final class Prefixes implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return room(queue.getBrokerName());
        }

        @Override
        public String consumerDeployIn(String clientId) {
            return room(clientId);
        }

        private static String room(String name) {
            return name.substring(0, Math.max(0, name.indexOf('-')));
        }
    }
}
