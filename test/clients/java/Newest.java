import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** What only the newest clients have. */
public class Newest extends Script {
    public static void run() {
        part("share", Newest::share);
    }

    static void share() throws Exception {
        String group = topic("share");
        ConfigResource config = new ConfigResource(ConfigResource.Type.GROUP, group);
        outcome("group config", () -> alter(config, "share.auto.offset.reset", "earliest", AlterConfigOp.OpType.SET));
        outcome("group config was set", () -> until("set", () -> value(config, "share.auto.offset.reset"), s -> s.startsWith("earliest")));
        outcome("group configs", () -> configs(config, false));
        try (Producer<byte[], byte[]> p = producer("acks", "all")) {
            for (int i = 0; i < 10; i++) get(p.send(record("share", i % 2, i)));
        }
        Properties props = props("group.id", group, "share.acknowledgement.mode", "explicit", "client.id", "script");
        TreeMap<String, String> accepted = new TreeMap<>(), released = new TreeMap<>();
        try (KafkaShareConsumer<byte[], byte[]> c = new KafkaShareConsumer<>(props, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            c.subscribe(Collections.singleton(topic("share")));
            long end = System.currentTimeMillis() + LIMIT_MS;
            List<String> acknowledged = new ArrayList<>();
            while (accepted.size() < 10) {
                if (System.currentTimeMillis() > end) throw new Exception("accepted " + accepted + ", released " + released);
                for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(500))) {
                    String at = String.format("%05d %012d", r.partition(), r.offset());
                    boolean again = r.offset() == 2 && r.deliveryCount().orElse((short) 0) == 1;
                    (again ? released : accepted).put(at, text(r) + " delivery " + r.deliveryCount().orElse((short) 0));
                    c.acknowledge(r, again ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                }
                c.commitSync().forEach((k, v) -> v.ifPresent(e -> acknowledged.add(k + ": " + e)));
            }
            see("accepted", String.join("\n", accepted.values()));
            see("released", String.join("\n", released.values()));
            see("refused acknowledgements", acknowledged);
            ShareGroupDescription d = get(admin.describeShareGroups(Collections.singleton(group)).all()).get(group);
            List<String> members = new ArrayList<>();
            d.members().forEach(m -> members.add(m.clientId() + " " + m.host() + " " + sorted(m.assignment().topicPartitions())));
            see("described", d.groupId() + " " + d.groupState() + " coordinator " + node(d.coordinator()) + " " + members);
            outcome("delete while there is a member", () -> get(admin.deleteShareGroups(Collections.singleton(group)).all()));
        }
        until("empty", () -> get(admin.describeShareGroups(Collections.singleton(group)).all()).get(group).groupState().toString(), s -> s.equals("Empty"));
        outcome("lag", () -> until("no lag", () -> shareOffsets(group).replaceAll(" \\d+ lag", " lag"), s -> s.split("Optional\\[0\\]", -1).length == 3));
        outcome("alter offsets", () -> get(admin.alterShareGroupOffsets(group, Collections.singletonMap(tp("share", 0), 2L)).all()));
        outcome("offsets altered", () -> until("altered", () -> shareOffsets(group), s -> s.contains("-0 2")));
        outcome("delete offsets", () -> get(admin.deleteShareGroupOffsets(group, Collections.singleton(topic("share"))).all()));
        List<String> groups = new ArrayList<>();
        for (GroupListing l : get(admin.listGroups().all())) if (l.groupId().startsWith(prefix)) groups.add(l.groupId() + " " + l.type() + " " + l.protocol() + " " + l.groupState());
        see("groups", sorted(groups));
        outcome("delete", () -> get(admin.deleteShareGroups(Collections.singleton(group)).all()));
        outcome("describe when deleted", () -> get(admin.describeShareGroups(Collections.singleton(group)).all()));
        outcome("delete the group config", () -> alter(config, "share.auto.offset.reset", "", AlterConfigOp.OpType.DELETE));
        outcome("config resources", () -> get(admin.listConfigResources(Collections.singleton(ConfigResource.Type.BROKER), new org.apache.kafka.clients.admin.ListConfigResourcesOptions()).all()));
    }

    static String shareOffsets(String group) throws Exception {
        Map<TopicPartition, ?> m = get(admin.listShareGroupOffsets(Collections.singletonMap(group, new ListShareGroupOffsetsSpec())).partitionsToOffsetInfo(group));
        List<String> out = new ArrayList<>();
        m.forEach((k, v) -> {
            try {
                out.add(k + " " + (v == null ? "none" : reflect(v, "startOffset") + " lag " + reflect(v, "lag")));
            } catch (Exception e) {
                out.add(k + " " + e);
            }
        });
        return sorted(out);
    }
}
