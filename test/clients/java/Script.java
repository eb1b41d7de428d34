import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.FeatureMetadata;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsResult;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.ReplicaInfo;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TopicListing;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Does what users do with Kafka's Java clients and prints what it saw, in the lines that observe.go reads. It uses what
 * the clients of 2.8 have; Later and Newest, if they are there, go on with what came after.
 *
 * Arguments: bootstrap, mirror's bootstrap, mirror's topic, prefix of names, a broker config of its own.
 */
public class Script {
    static final long LIMIT_MS = 60_000;

    static String bootstrap, mirrorBootstrap, mirror, prefix, brokerKey;
    static Admin admin, impatient;

    // What is observed.

    interface Body {
        void run() throws Exception;
    }

    static String escape(String s) {
        return s.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r");
    }

    static synchronized void line(String... fields) {
        StringBuilder b = new StringBuilder();
        for (int i = 0; i < fields.length; i++) b.append(i > 0 ? "\t" : "").append(escape(fields[i]));
        System.out.println(b);
    }

    static void part(String name, Body body) {
        line("P", name);
        try {
            body.run();
        } catch (Throwable e) {
            StringBuilder at = new StringBuilder();
            for (Throwable t = e; t != null; t = t.getCause()) at.append(t).append("; ");
            for (StackTraceElement f : e.getStackTrace()) if (f.getFileName() != null && !f.getClassName().startsWith("org.") && !f.getClassName().startsWith("java")) at.append(f).append(' ');
            line("F", at.toString());
        }
    }

    static void see(String step, Object value) {
        line("O", step, String.valueOf(value));
    }

    static String worded(Throwable e) {
        while ((e instanceof ExecutionException || e instanceof java.util.concurrent.CompletionException) && e.getCause() != null) e = e.getCause();
        String message = String.valueOf(e.getMessage());
        // Where time was up, and when, is different each time.
        if (message.contains("Call(") || message.contains("Call: ")) message = "at some time";
        // Old producers name the topic or the partition, by what they wait for when time is up.
        if (message.contains("not present in metadata after")) message = "not present in metadata";
        return "error: " + e.getClass().getName() + ": " + message;
    }

    /** What may fail: the failure is what was seen. */
    static void outcome(String step, Callable<?> c) {
        Object v;
        try {
            v = c.call();
        } catch (Throwable e) {
            v = worded(e);
        }
        see(step, v);
    }

    /** What must succeed, but perhaps not yet: brokers hear of what the controller has done one after the other. */
    static <T> T until(String what, Callable<T> c) throws Exception {
        return until(what, c, v -> true);
    }

    static <T> T until(String what, Callable<T> c, java.util.function.Predicate<T> good) throws Exception {
        long end = System.currentTimeMillis() + LIMIT_MS;
        while (true) {
            String last;
            try {
                T v = c.call();
                if (good.test(v)) return v;
                last = String.valueOf(v);
            } catch (Exception e) {
                Throwable cause = e instanceof ExecutionException ? e.getCause() : e;
                if (!(cause instanceof RetriableException) && !(cause instanceof org.apache.kafka.common.errors.ApiException)) throw e;
                last = cause.toString();
            }
            if (System.currentTimeMillis() > end) throw new Exception(what + " did not come: " + last);
            Thread.sleep(100);
        }
    }

    static <T> T get(Future<T> f) throws Exception {
        return f.get(LIMIT_MS, TimeUnit.MILLISECONDS);
    }

    static String topic(String name) {
        return prefix + "-" + name;
    }

    static TopicPartition tp(String name, int p) {
        return new TopicPartition(topic(name), p);
    }

    // Clients.

    static Properties props(String... more) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("retry.backoff.ms", "100");
        for (int i = 0; i + 1 < more.length; i += 2) p.put(more[i], more[i + 1]);
        return p;
    }

    static Producer<byte[], byte[]> producer(String... more) {
        return new KafkaProducer<>(props(more), new ByteArraySerializer(), new ByteArraySerializer());
    }

    static Consumer<byte[], byte[]> consumer(String... more) {
        Properties p = props("auto.offset.reset", "none", "enable.auto.commit", "false");
        p.putAll(props(more));
        return new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static byte[] bytes(String s) {
        return s == null ? null : s.getBytes(StandardCharsets.UTF_8);
    }

    static ProducerRecord<byte[], byte[]> record(String name, int partition, int n) {
        ProducerRecord<byte[], byte[]> r = new ProducerRecord<>(topic(name), partition, 1_700_000_000_000L + n * 1000L, bytes("key-" + n), bytes("value-" + n));
        r.headers().add("n", bytes("" + n));
        return r;
    }

    static String metadata(RecordMetadata m) {
        return m.topic() + "-" + m.partition() + "@" + m.offset() + " ts " + m.timestamp() + " sizes " + m.serializedKeySize() + "," + m.serializedValueSize();
    }

    static String text(byte[] b) {
        if (b == null) return "null";
        return b.length <= 40 ? new String(b, StandardCharsets.UTF_8) : b.length + " bytes " + Arrays.hashCode(b);
    }

    static String text(ConsumerRecord<byte[], byte[]> r) {
        StringBuilder b = new StringBuilder();
        b.append(r.partition()).append('@').append(r.offset()).append(' ').append(r.timestampType()).append(' ').append(r.timestamp()).append(' ');
        b.append(text(r.key())).append('=').append(text(r.value()));
        for (Header h : r.headers()) b.append(' ').append(h.key()).append(':').append(text(h.value()));
        return b.toString();
    }

    /** Reads so many records, or to the ends, and words them in the order of partitions and offsets. */
    static String read(Consumer<byte[], byte[]> c, int count) throws Exception {
        TreeMap<String, String> seen = new TreeMap<>();
        long end = System.currentTimeMillis() + LIMIT_MS;
        while (seen.size() < count) {
            if (System.currentTimeMillis() > end) throw new Exception("read " + seen.size() + " of " + count + " records: " + seen.values());
            for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(500))) seen.put(String.format("%05d %012d", r.partition(), r.offset()), text(r));
        }
        return String.join("\n", seen.values());
    }

    static String toEnds(Consumer<byte[], byte[]> c, Collection<TopicPartition> parts) throws Exception {
        Map<TopicPartition, Long> ends = c.endOffsets(parts);
        TreeMap<String, String> seen = new TreeMap<>();
        long end = System.currentTimeMillis() + LIMIT_MS;
        while (true) {
            boolean done = true;
            for (TopicPartition p : parts) done &= c.position(p) >= ends.get(p);
            if (done) return String.join("\n", seen.values());
            if (System.currentTimeMillis() > end) throw new Exception("read " + seen.size() + " records, not to " + ends);
            for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(500))) seen.put(String.format("%05d %012d", r.partition(), r.offset()), text(r));
        }
    }

    static String sorted(Collection<?> c) {
        TreeSet<String> out = new TreeSet<>();
        for (Object o : c) out.add(String.valueOf(o));
        return String.join("\n", out);
    }

    static String sorted(Map<?, ?> m) {
        TreeSet<String> out = new TreeSet<>();
        for (Map.Entry<?, ?> e : m.entrySet()) out.add(e.getKey() + " -> " + e.getValue());
        return String.join("\n", out);
    }

    static List<String> ours(Collection<String> names) {
        List<String> out = new ArrayList<>();
        for (String n : names) if (n.startsWith(prefix)) out.add(n);
        return out;
    }

    static String node(Node n) {
        return n == null || n.isEmpty() ? "none" : n.id() + " " + n.host() + ":" + n.port() + " rack " + n.rack();
    }

    static String nodes(List<Node> nodes) {
        List<String> out = new ArrayList<>();
        for (Node n : nodes) out.add(node(n));
        return out.toString();
    }

    static String describe(String name) throws Exception {
        TopicDescription d = description(name);
        StringBuilder b = new StringBuilder(d.name() + " internal " + d.isInternal() + " operations " + d.authorizedOperations());
        for (TopicPartitionInfo p : d.partitions()) b.append("\n").append(p.partition()).append(" leader ").append(node(p.leader())).append(" replicas ").append(nodes(p.replicas())).append(" isr ").append(new TreeSet<>(Arrays.asList(nodes(p.isr()).split(", "))).size());
        return b.toString();
    }

    /** The method has another name since 3.1, and the old one went with 4.0. */
    @SuppressWarnings("unchecked")
    static TopicDescription description(String name) throws Exception {
        Object result = admin.describeTopics(Collections.singleton(name));
        java.lang.reflect.Method m;
        try {
            m = result.getClass().getMethod("topicNameValues");
        } catch (NoSuchMethodException e) {
            m = result.getClass().getMethod("values");
        }
        m.setAccessible(true);
        return get(((Map<String, Future<TopicDescription>>) m.invoke(result)).get(name));
    }

    static Object reflect(Object o, String method) throws Exception {
        java.lang.reflect.Method m = o.getClass().getMethod(method);
        m.setAccessible(true);
        return m.invoke(o);
    }

    // The parts.

    static void metadata() throws Exception {
        see("cluster id", get(admin.describeCluster().clusterId()));
        List<String> all = new ArrayList<>();
        Collection<Node> nodes = get(admin.describeCluster().nodes());
        for (Node n : nodes) all.add(node(n));
        see("nodes", sorted(all));
        Node controller = get(admin.describeCluster().controller());
        see("controller is one of them", all.contains(node(controller)));
        outcome("authorized operations", () -> get(admin.describeCluster().authorizedOperations()));
        see("topics", sorted(ours(get(admin.listTopics().names()))));
        see("describe", describe(topic("main")));
        outcome("describe an unknown topic", () -> describe(topic("unknown")));
        outcome("describe an invalid topic", () -> describe("not/valid"));
        try (Producer<byte[], byte[]> p = producer("max.block.ms", "1500"); Consumer<byte[], byte[]> c = consumer()) {
            for (String[] way : new String[][] {{"producer"}, {"consumer"}}) {
                List<PartitionInfo> infos = new ArrayList<>(way[0].equals("producer") ? knows(p, "main") : c.partitionsFor(topic("main")));
                infos.sort((a, b) -> a.partition() - b.partition());
                for (PartitionInfo i : infos) see(way[0] + " partition " + i.partition(), node(i.leader()) + " replicas " + nodes(Arrays.asList(i.replicas())) + " in sync " + i.inSyncReplicas().length + " offline " + i.offlineReplicas().length);
            }
            outcome("partitions of an unknown topic", () -> c.partitionsFor(topic("unknown")));
            see("topics of the consumer", sorted(ours(new ArrayList<>(c.listTopics().keySet()))));
            outcome("produce to an unknown topic", () -> get(p.send(record("unknown", 0, 1))));
        }
    }

    static void produce() throws Exception {
        int n = 0;
        for (String acks : new String[] {"0", "1", "all", "idempotent"}) {
            String[] more = acks.equals("idempotent")
                ? new String[] {"acks", "all", "enable.idempotence", "true"}
                : new String[] {"acks", acks, "enable.idempotence", "false"};
            try (Producer<byte[], byte[]> p = producer(more)) {
                for (int partition = 0; partition < 2; partition++) {
                    for (int i = 0; i < 3; i++) {
                        n++;
                        ProducerRecord<byte[], byte[]> r = record("main", partition, n);
                        outcome("acks " + acks, () -> metadata(get(p.send(r))));
                    }
                }
            }
            if (acks.equals("0")) {
                see("acks 0 arrived", until("acks 0", () -> ends("main"), s -> s.contains("[3, 3]")));
            }
        }
        see("ends", ends("main"));
        try (Producer<byte[], byte[]> p = producer("acks", "all", "max.request.size", "10000000", "buffer.memory", "40000000")) {
            outcome("too large", () -> metadata(get(p.send(new ProducerRecord<>(topic("main"), 0, null, new byte[3_000_000])))));
            outcome("too large for the client", () -> metadata(get(p.send(new ProducerRecord<>(topic("main"), 0, null, new byte[11_000_000])))));
            outcome("null key and value", () -> metadata(get(p.send(new ProducerRecord<>(topic("main"), 0, 1_700_000_100_000L, (byte[]) null, (byte[]) null)))));
            outcome("large", () -> metadata(get(p.send(new ProducerRecord<>(topic("main"), 1, 1_700_000_100_000L, null, new byte[900_000])))));
            for (int i = 0; i < 6; i++) {
                byte[] key = bytes("by-key-" + i);
                outcome("by key", () -> metadata(get(p.send(new ProducerRecord<>(topic("main"), null, 1_700_000_100_000L, key, key)))));
            }
            p.flush();
        }
        try (Producer<byte[], byte[]> p = producer("max.block.ms", "1500")) {
            knows(p, "main"); // else it may be that which it says
            outcome("no such partition", () -> metadata(get(p.send(record("main", 7, 1)))));
        }
    }

    /** An impatient producer may need more than one look. */
    static List<PartitionInfo> knows(Producer<byte[], byte[]> p, String name) throws Exception {
        return until("partitions", () -> p.partitionsFor(topic(name)), l -> l.size() == 2);
    }

    static String ends(String name) throws Exception {
        try (Consumer<byte[], byte[]> c = consumer()) {
            List<TopicPartition> parts = Arrays.asList(tp(name, 0), tp(name, 1));
            Map<TopicPartition, Long> e = c.endOffsets(parts);
            Map<TopicPartition, Long> b = c.beginningOffsets(parts);
            return "[" + e.get(parts.get(0)) + ", " + e.get(parts.get(1)) + "] from [" + b.get(parts.get(0)) + ", " + b.get(parts.get(1)) + "]";
        }
    }

    static void compression() throws Exception {
        int n = 0;
        for (String codec : new String[] {"none", "gzip", "snappy", "lz4", "zstd"}) {
            try (Producer<byte[], byte[]> p = producer("compression.type", codec, "linger.ms", "50", "acks", "all")) {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int i = 0; i < 20; i++) sent.add(p.send(record("codec", i % 2, n++)));
                p.flush();
                outcome(codec, () -> metadata(get(sent.get(19))));
            }
        }
        try (Consumer<byte[], byte[]> c = consumer()) {
            List<TopicPartition> parts = Arrays.asList(tp("codec", 0), tp("codec", 1));
            c.assign(parts);
            c.seekToBeginning(parts);
            see("read", read(c, 100));
        }
    }

    static void consume() throws Exception {
        List<TopicPartition> parts = Arrays.asList(tp("main", 0), tp("main", 1));
        try (Consumer<byte[], byte[]> c = consumer()) {
            c.assign(parts);
            c.seekToBeginning(parts);
            see("assigned", toEnds(c, parts));
            see("positions", c.position(parts.get(0)) + " " + c.position(parts.get(1)));
            Map<TopicPartition, Long> at = new HashMap<>();
            for (TopicPartition p : parts) at.put(p, 1_700_000_005_000L);
            see("offsets for times", sorted(c.offsetsForTimes(at)));
            for (TopicPartition p : parts) at.put(p, 1_900_000_000_000L);
            see("offsets for later times", sorted(c.offsetsForTimes(at)));
            c.seek(parts.get(0), 3);
            see("from 3", toEnds(c, parts));
            c.seek(parts.get(0), 1_000_000);
            see("out of range", outOfRange(c));
        }
        Map<TopicPartition, OffsetSpec> specs = new HashMap<>();
        for (Map.Entry<String, OffsetSpec> spec : specs().entrySet()) {
            for (TopicPartition p : parts) specs.put(p, spec.getValue());
            outcome("list offsets " + spec.getKey(), () -> {
                List<String> out = new ArrayList<>();
                for (Map.Entry<TopicPartition, ListOffsetsResult.ListOffsetsResultInfo> e : get(admin.listOffsets(specs).all()).entrySet())
                    out.add(e.getKey() + " " + e.getValue().offset() + " ts " + e.getValue().timestamp() + " epoch " + e.getValue().leaderEpoch());
                return sorted(out);
            });
        }
    }

    static String outOfRange(Consumer<byte[], byte[]> c) {
        long end = System.currentTimeMillis() + LIMIT_MS;
        while (System.currentTimeMillis() < end) {
            try {
                c.poll(Duration.ofMillis(500));
            } catch (org.apache.kafka.clients.consumer.OffsetOutOfRangeException e) {
                return e.getClass().getName() + " " + e.offsetOutOfRangePartitions();
            }
        }
        return "nothing";
    }

    static Map<String, OffsetSpec> specs() throws Exception {
        Map<String, OffsetSpec> out = new TreeMap<>();
        out.put("earliest", OffsetSpec.earliest());
        out.put("latest", OffsetSpec.latest());
        out.put("for a time", OffsetSpec.forTimestamp(1_700_000_005_000L));
        for (String name : new String[] {"maxTimestamp", "earliestLocal", "latestTiered"}) {
            try {
                out.put(name, (OffsetSpec) OffsetSpec.class.getMethod(name).invoke(null));
            } catch (NoSuchMethodException e) {
                continue; // of a later client
            }
        }
        return out;
    }

    /** A group of one member, by either protocol. */
    static void group(String name, String... more) throws Exception {
        String group = topic(name);
        List<TopicPartition> parts = Arrays.asList(tp(name, 0), tp(name, 1));
        try (Producer<byte[], byte[]> p = producer("acks", "all")) {
            for (int i = 0; i < 10; i++) get(p.send(record(name, i % 2, i)));
        }
        List<String> first = new ArrayList<>(Arrays.asList("group.id", group, "client.id", "script", "auto.offset.reset", "earliest", "max.poll.records", "5"));
        first.addAll(Arrays.asList(more));
        String[] options = first.toArray(new String[0]);
        try (Consumer<byte[], byte[]> c = consumer(options)) {
            c.subscribe(Collections.singleton(topic(name)));
            see("subscribed", read(c, 10));
            see("assignment", sorted(c.assignment()));
            see("group metadata", c.groupMetadata().groupId() + " generation " + (c.groupMetadata().generationId() > 0) + " member " + !c.groupMetadata().memberId().isEmpty());
            Map<TopicPartition, OffsetAndMetadata> at = new HashMap<>();
            at.put(parts.get(0), new OffsetAndMetadata(3, Optional.of(0), "half"));
            at.put(parts.get(1), new OffsetAndMetadata(5));
            c.commitSync(at);
            see("committed", sorted(c.committed(new TreeSet<TopicPartition>((a, b) -> a.partition() - b.partition()) {{ addAll(parts); }})));
            see("described", groupText(group, true));
            outcome("deleting while there is a member", () -> get(admin.deleteConsumerGroups(Collections.singleton(group)).all()));
            outcome("deleting offsets of what is subscribed", () -> get(admin.deleteConsumerGroupOffsets(group, Collections.singleton(parts.get(0))).all()));
            see("listed", listed(group));
        }
        see("offsets", sorted(offsets(group)));
        see("described when left", until("empty", () -> groupText(group, false), s -> s.toLowerCase().contains("empty")));
        Map<TopicPartition, Long> ends = new HashMap<>();
        Map<TopicPartition, Long> lag = new HashMap<>();
        try (Consumer<byte[], byte[]> c = consumer(options)) {
            ends.putAll(c.endOffsets(parts));
            for (TopicPartition p : parts) lag.put(p, ends.get(p) - offsets(group).get(p).offset());
            see("lag", sorted(lag));
            c.subscribe(java.util.regex.Pattern.compile(topic(name) + ".*"));
            see("goes on by pattern", read(c, 2));
            c.commitSync();
        }
        Map<TopicPartition, OffsetAndMetadata> back = new HashMap<>();
        back.put(parts.get(1), new OffsetAndMetadata(1, "altered"));
        until("empty again", () -> groupText(group, false), s -> s.toLowerCase().contains("empty"));
        outcome("alter offsets", () -> get(admin.alterConsumerGroupOffsets(group, back).all()));
        see("offsets altered", sorted(offsets(group)));
        outcome("delete offsets", () -> get(admin.deleteConsumerGroupOffsets(group, Collections.singleton(parts.get(0))).all()));
        see("offsets left", sorted(offsets(group)));
        outcome("delete", () -> get(admin.deleteConsumerGroups(Collections.singleton(group)).all()));
        outcome("delete again", () -> get(admin.deleteConsumerGroups(Collections.singleton(group)).all()));
        outcome("described when deleted", () -> groupText(group, false));
        outcome("offsets when deleted", () -> sorted(offsets(group)));
    }

    static Map<TopicPartition, OffsetAndMetadata> offsets(String group) throws Exception {
        return get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
    }

    static String groupText(String group, boolean members) throws Exception {
        ConsumerGroupDescription d = get(admin.describeConsumerGroups(Collections.singleton(group)).all()).get(group);
        String text = d.groupId() + " " + d.state() + " simple " + d.isSimpleConsumerGroup() + " assignor " + d.partitionAssignor() + " coordinator " + node(d.coordinator()) + " members " + d.members().size();
        if (members) {
            List<String> all = new ArrayList<>();
            d.members().forEach(m -> all.add(m.clientId() + " " + m.host() + " " + m.groupInstanceId() + " " + sorted(m.assignment().topicPartitions())));
            text += " " + all;
        }
        return text;
    }

    static String listed(String group) throws Exception {
        List<String> out = new ArrayList<>();
        for (ConsumerGroupListing l : get(admin.listConsumerGroups().all())) if (l.groupId().equals(group)) out.add(l.groupId() + " simple " + l.isSimpleConsumerGroup() + " " + l.state());
        return out.toString();
    }

    static void transactions() throws Exception {
        String id = topic("txn");
        try (Producer<byte[], byte[]> p = producer("transactional.id", id, "transaction.timeout.ms", "60000")) {
            p.initTransactions();
            p.beginTransaction();
            for (int i = 0; i < 4; i++) {
                int n = i;
                outcome("in the first", () -> metadata(get(p.send(record("tx", n % 2, n)))));
            }
            Map<TopicPartition, OffsetAndMetadata> at = new HashMap<>();
            at.put(tp("main", 0), new OffsetAndMetadata(2));
            p.sendOffsetsToTransaction(at, new org.apache.kafka.clients.consumer.ConsumerGroupMetadata(topic("txgroup")));
            try (Consumer<byte[], byte[]> committed = consumer("isolation.level", "read_committed"); Consumer<byte[], byte[]> all = consumer()) {
                see("ends while it is open", sorted(committed.endOffsets(Arrays.asList(tp("tx", 0), tp("tx", 1)))) + "\n" + sorted(all.endOffsets(Arrays.asList(tp("tx", 0), tp("tx", 1)))));
            }
            outcome("pending offsets", () -> sorted(offsets(topic("txgroup"))));
            p.commitTransaction();
            see("committed offsets", until("offsets", () -> sorted(offsets(topic("txgroup"))), s -> !s.isEmpty()));
            p.beginTransaction();
            for (int i = 4; i < 8; i++) {
                int n = i;
                outcome("in the second", () -> metadata(get(p.send(record("tx", n % 2, n)))));
            }
            p.abortTransaction();
            p.beginTransaction();
            outcome("in the third", () -> metadata(get(p.send(record("tx", 0, 8)))));
            p.commitTransaction();
            p.beginTransaction();
            outcome("in the one that is fenced", () -> metadata(get(p.send(record("tx", 1, 9)))));
            try (Producer<byte[], byte[]> q = producer("transactional.id", id)) {
                q.initTransactions();
                q.beginTransaction();
                outcome("of the one that fences", () -> metadata(get(q.send(record("tx", 1, 10)))));
                q.commitTransaction();
            }
            outcome("fenced", () -> {
                p.commitTransaction();
                return "committed";
            });
        }
        List<TopicPartition> parts = Arrays.asList(tp("tx", 0), tp("tx", 1));
        for (String level : new String[] {"read_uncommitted", "read_committed"}) {
            try (Consumer<byte[], byte[]> c = consumer("isolation.level", level)) {
                c.assign(parts);
                c.seekToBeginning(parts);
                see(level, toEnds(c, parts));
                see(level + " ends", sorted(c.endOffsets(parts)));
            }
        }
        outcome("timeout too long", () -> {
            try (Producer<byte[], byte[]> p = producer("transactional.id", id, "transaction.timeout.ms", "1000000000", "max.block.ms", "15000")) {
                p.initTransactions();
                return "fine";
            }
        });
    }

    static void topics() throws Exception {
        String made = topic("made"), placed = topic("placed");
        Map<String, String> configs = new HashMap<>();
        configs.put("retention.ms", "100000000");
        configs.put("cleanup.policy", "compact,delete");
        outcome("validate only", () -> created(new NewTopic(made, 3, (short) 2).configs(configs), true));
        outcome("create", () -> created(new NewTopic(made, 3, (short) 2).configs(configs), false));
        outcome("create again", () -> created(new NewTopic(made, 3, (short) 2), false));
        outcome("create with defaults", () -> created(new NewTopic(topic("defaults"), Optional.empty(), Optional.empty()), false));
        outcome("create with an assignment", () -> created(new NewTopic(placed, Collections.singletonMap(0, Arrays.asList(2, 1))), false));
        outcome("create on a broker that is none", () -> created(new NewTopic(topic("nowhere"), Collections.singletonMap(0, Arrays.asList(7))), false));
        outcome("create on a virtual broker's id", () -> created(new NewTopic(topic("nowhere"), Collections.singletonMap(0, Arrays.asList(10007))), false));
        outcome("create with too many replicas", () -> created(new NewTopic(topic("toomany"), 1, (short) 7), false));
        outcome("create with no partitions", () -> created(new NewTopic(topic("none"), 0, (short) 1), false));
        outcome("create with a bad name", () -> created(new NewTopic("bad/name", 1, (short) 1), false));
        outcome("create with a bad config", () -> created(new NewTopic(topic("badconfig"), 1, (short) 1).configs(Collections.singletonMap("retention.ms", "long")), false));
        outcome("create with an unknown config", () -> created(new NewTopic(topic("badconfig"), 1, (short) 1).configs(Collections.singletonMap("no.such.config", "1")), false));
        see("placed", until("placed", () -> describe(placed)));
        until("made", () -> describe(made));
        outcome("grow", () -> get(admin.createPartitions(Collections.singletonMap(made, NewPartitions.increaseTo(4))).all()));
        outcome("grow to the same", () -> get(admin.createPartitions(Collections.singletonMap(made, NewPartitions.increaseTo(4))).all()));
        outcome("shrink", () -> get(admin.createPartitions(Collections.singletonMap(made, NewPartitions.increaseTo(2))).all()));
        outcome("grow with an assignment", () -> get(admin.createPartitions(Collections.singletonMap(placed, NewPartitions.increaseTo(2, Collections.singletonList(Arrays.asList(1, 2))))).all()));
        outcome("grow an unknown topic", () -> get(admin.createPartitions(Collections.singletonMap(topic("unknown"), NewPartitions.increaseTo(4))).all()));
        see("grown", until("grown", () -> describe(placed), s -> s.contains("\n1 leader")));
        see("partitions", until("partitions", () -> description(made).partitions().size(), n -> n == 4));
        try (Producer<byte[], byte[]> p = producer("acks", "all")) {
            for (int i = 0; i < 6; i++) get(p.send(record("admin", 0, i)));
        }
        outcome("delete records", () -> get(admin.deleteRecords(Collections.singletonMap(tp("admin", 0), RecordsToDelete.beforeOffset(4))).lowWatermarks().get(tp("admin", 0))).lowWatermark());
        outcome("delete too many records", () -> get(admin.deleteRecords(Collections.singletonMap(tp("admin", 0), RecordsToDelete.beforeOffset(40))).lowWatermarks().get(tp("admin", 0))).lowWatermark());
        outcome("delete all records", () -> get(admin.deleteRecords(Collections.singletonMap(tp("admin", 0), RecordsToDelete.beforeOffset(-1))).lowWatermarks().get(tp("admin", 0))).lowWatermark());
        outcome("delete records of an unknown topic", () -> get(impatient.deleteRecords(Collections.singletonMap(tp("unknown", 0), RecordsToDelete.beforeOffset(4))).lowWatermarks().get(tp("unknown", 0))).lowWatermark());
        see("starts and ends", ends("admin"));
        List<String> listed = new ArrayList<>();
        for (TopicListing l : get(admin.listTopics().listings())) if (l.name().startsWith(prefix)) listed.add(l.name() + " internal " + l.isInternal());
        see("listed", sorted(listed));
        for (String name : new String[] {made, placed, topic("defaults")}) outcome("delete", () -> get(admin.deleteTopics(Collections.singleton(name)).all()));
        outcome("delete an unknown topic", () -> get(admin.deleteTopics(Collections.singleton(topic("unknown"))).all()));
        see("listed when deleted", until("deleted", () -> sorted(ours(get(admin.listTopics().names()))), s -> !s.contains("made") && !s.contains("placed") && !s.contains("defaults")));
    }

    static String created(NewTopic t, boolean validateOnly) throws Exception {
        CreateTopicsResult r = admin.createTopics(Collections.singleton(t), new CreateTopicsOptions().validateOnly(validateOnly));
        get(r.all());
        Config c = get(r.config(t.name()));
        return get(r.numPartitions(t.name())) + " partitions, " + get(r.replicationFactor(t.name())) + " replicas, " + configText(c);
    }

    static String configText(Config c) {
        List<String> out = new ArrayList<>();
        for (ConfigEntry e : c.entries()) {
            if (e.name().endsWith("listeners")) continue; // this machine's ports
            out.add(e.name() + "=" + e.value() + " " + e.source() + (e.isReadOnly() ? " read only" : "") + (e.isSensitive() ? " sensitive" : "") + " " + e.type() + " synonyms " + e.synonyms().size() + (e.documentation() == null ? "" : " documented"));
        }
        return sorted(out);
    }

    static String configs(ConfigResource r, boolean whole) throws Exception {
        return configText(get(admin.describeConfigs(Collections.singleton(r), new DescribeConfigsOptions().includeSynonyms(whole).includeDocumentation(whole)).all()).get(r));
    }

    static Object alter(ConfigResource r, String name, String value, AlterConfigOp.OpType op) throws Exception {
        return get(admin.incrementalAlterConfigs(Collections.singletonMap(r, Collections.singleton(new AlterConfigOp(new ConfigEntry(name, value), op)))).all());
    }

    static String value(ConfigResource r, String name) throws Exception {
        ConfigEntry e = get(admin.describeConfigs(Collections.singleton(r)).all()).get(r).get(name);
        return e.value() + " " + e.source();
    }

    static void configs() throws Exception {
        ConfigResource t = new ConfigResource(ConfigResource.Type.TOPIC, topic("admin"));
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        ConfigResource unknown = new ConfigResource(ConfigResource.Type.TOPIC, topic("unknown"));
        see("topic", configs(t, false));
        see("topic with synonyms and documentation", configs(t, true));
        see("broker", configs(broker, true));
        outcome("set", () -> alter(t, "retention.ms", "123456789", AlterConfigOp.OpType.SET));
        see("was set", until("set", () -> value(t, "retention.ms"), s -> s.startsWith("123456789")));
        outcome("append", () -> alter(t, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND));
        see("was appended", until("appended", () -> value(t, "cleanup.policy"), s -> s.contains("compact")));
        outcome("subtract", () -> alter(t, "cleanup.policy", "delete", AlterConfigOp.OpType.SUBTRACT));
        see("was subtracted", until("subtracted", () -> value(t, "cleanup.policy"), s -> !s.contains("delete")));
        outcome("delete", () -> alter(t, "retention.ms", "", AlterConfigOp.OpType.DELETE));
        see("was deleted", until("deleted", () -> value(t, "retention.ms"), s -> !s.startsWith("123456789")));
        outcome("a bad value", () -> alter(t, "retention.ms", "long", AlterConfigOp.OpType.SET));
        outcome("an unknown config", () -> alter(t, "no.such.config", "1", AlterConfigOp.OpType.SET));
        outcome("of an unknown topic", () -> alter(unknown, "retention.ms", "1", AlterConfigOp.OpType.SET));
        outcome("describe an unknown topic", () -> configs(unknown, false));
        outcome("describe an unknown broker", () -> get(impatient.describeConfigs(Collections.singleton(new ConfigResource(ConfigResource.Type.BROKER, "77"))).all()));
        outcome("set on a broker", () -> alter(broker, brokerKey, "97654321", AlterConfigOp.OpType.SET));
        see("was set on a broker", until("set", () -> value(broker, brokerKey), s -> s.startsWith("97654321")));
        outcome("delete on a broker", () -> alter(broker, brokerKey, "", AlterConfigOp.OpType.DELETE));
        see("was deleted on a broker", until("deleted", () -> value(broker, brokerKey), s -> !s.startsWith("97654321")));
        outcome("a static config of a broker", () -> alter(broker, "broker.rack", "elsewhere", AlterConfigOp.OpType.SET));
        outcome("loggers of a broker", () -> {
            Config c = get(admin.describeConfigs(Collections.singleton(new ConfigResource(ConfigResource.Type.BROKER_LOGGER, "2"))).all()).values().iterator().next();
            return c.get("root") != null || c.get("kafka") != null;
        });
        outcome("all at once by the old API", () -> {
            try {
                Object result = Admin.class.getMethod("alterConfigs", Map.class).invoke(admin, Collections.singletonMap(t, new Config(Collections.singleton(new ConfigEntry("retention.ms", "987654321")))));
                get((Future<?>) reflect(result, "all"));
            } catch (NoSuchMethodException e) {
                return "the client has it no more";
            }
            return until("altered", () -> value(t, "retention.ms") + ", " + value(t, "cleanup.policy"), s -> s.startsWith("987654321") && s.endsWith("DEFAULT_CONFIG")); // brokers hear of it one after the other
        });
    }

    static void acls() throws Exception {
        List<AclBinding> all = Arrays.asList(
            new AclBinding(new ResourcePattern(ResourceType.TOPIC, topic("main"), PatternType.LITERAL), new AccessControlEntry("User:" + prefix, "*", AclOperation.READ, AclPermissionType.ALLOW)),
            new AclBinding(new ResourcePattern(ResourceType.TOPIC, prefix, PatternType.PREFIXED), new AccessControlEntry("User:" + prefix, "10.0.0.1", AclOperation.ALL, AclPermissionType.DENY)),
            new AclBinding(new ResourcePattern(ResourceType.GROUP, topic("group"), PatternType.LITERAL), new AccessControlEntry("User:" + prefix, "*", AclOperation.DESCRIBE, AclPermissionType.ALLOW)),
            new AclBinding(new ResourcePattern(ResourceType.TRANSACTIONAL_ID, topic("txn"), PatternType.LITERAL), new AccessControlEntry("User:" + prefix, "*", AclOperation.WRITE, AclPermissionType.ALLOW)),
            new AclBinding(new ResourcePattern(ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL), new AccessControlEntry("User:" + prefix, "*", AclOperation.ALTER, AclPermissionType.ALLOW)));
        AclBindingFilter mine = new AclBindingFilter(ResourcePatternFilter.ANY, new AccessControlEntryFilter("User:" + prefix, null, AclOperation.ANY, AclPermissionType.ANY));
        AclBindingFilter match = new AclBindingFilter(new ResourcePatternFilter(ResourceType.TOPIC, topic("main"), PatternType.MATCH), new AccessControlEntryFilter("User:" + prefix, null, AclOperation.ANY, AclPermissionType.ANY));
        outcome("create", () -> get(admin.createAcls(all).all()));
        outcome("describe", () -> until("created", () -> sorted(get(admin.describeAcls(mine).values())), s -> s.split("\n").length == 5));
        outcome("describe by match", () -> until("created", () -> sorted(get(admin.describeAcls(match).values())), s -> s.split("\n").length == 2));
        outcome("a bad one", () -> get(admin.createAcls(Collections.singleton(new AclBinding(new ResourcePattern(ResourceType.TOPIC, topic("main"), PatternType.LITERAL), new AccessControlEntry("nobody", "*", AclOperation.READ, AclPermissionType.ALLOW)))).all()));
        outcome("delete by match", () -> sorted(get(admin.deleteAcls(Collections.singleton(match)).all())));
        outcome("delete", () -> sorted(get(admin.deleteAcls(Collections.singleton(mine)).all())));
        outcome("describe when deleted", () -> until("deleted", () -> sorted(get(admin.describeAcls(mine).values())), String::isEmpty));
    }

    static void quotas() throws Exception {
        ClientQuotaEntity who = new ClientQuotaEntity(Collections.singletonMap(ClientQuotaEntity.USER, prefix));
        ClientQuotaFilter filter = ClientQuotaFilter.containsOnly(Collections.singleton(ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.USER, prefix)));
        outcome("set", () -> get(admin.alterClientQuotas(Collections.singleton(new ClientQuotaAlteration(who, Collections.singleton(new ClientQuotaAlteration.Op("producer_byte_rate", 1e9))))).all()));
        outcome("describe", () -> until("set", () -> sorted(get(admin.describeClientQuotas(filter).entities())), s -> !s.isEmpty()));
        outcome("an unknown one", () -> get(admin.alterClientQuotas(Collections.singleton(new ClientQuotaAlteration(who, Collections.singleton(new ClientQuotaAlteration.Op("no_such_rate", 1.0))))).all()));
        outcome("take away", () -> get(admin.alterClientQuotas(Collections.singleton(new ClientQuotaAlteration(who, Collections.singleton(new ClientQuotaAlteration.Op("producer_byte_rate", null))))).all()));
        outcome("describe when taken away", () -> until("taken away", () -> sorted(get(admin.describeClientQuotas(filter).entities())), String::isEmpty));
        outcome("scram upsert", () -> get(admin.alterUserScramCredentials(Collections.singletonList(new UserScramCredentialUpsertion(prefix, new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "secret"))).all()));
        outcome("scram describe", () -> until("upserted", () -> get(admin.describeUserScramCredentials(Collections.singletonList(prefix)).all()).toString(), s -> s.contains("SCRAM_SHA_256")));
        outcome("scram delete", () -> get(admin.alterUserScramCredentials(Collections.singletonList(new UserScramCredentialDeletion(prefix, ScramMechanism.SCRAM_SHA_256))).all()));
        outcome("scram delete again", () -> get(admin.alterUserScramCredentials(Collections.singletonList(new UserScramCredentialDeletion(prefix, ScramMechanism.SCRAM_SHA_512))).all()));
    }

    static void cluster() throws Exception {
        TopicPartition p = tp("extra", 0);
        outcome("reassign", () -> get(admin.alterPartitionReassignments(Collections.singletonMap(p, Optional.of(new NewPartitionReassignment(Arrays.asList(2, 1))))).all()));
        outcome("no reassignment left", () -> until("reassigned", () -> get(admin.listPartitionReassignments(Collections.singleton(p)).reassignments()), Map::isEmpty));
        see("reassigned", until("reassigned", () -> describe(topic("extra")), s -> s.contains("0 leader 1 ") && s.contains("replicas [2 ")));
        outcome("elect", () -> get(admin.electLeaders(ElectionType.PREFERRED, Collections.singleton(p)).partitions()));
        see("elected", until("elected", () -> describe(topic("extra")), s -> s.contains("0 leader 2 ")));
        outcome("elect again", () -> get(admin.electLeaders(ElectionType.PREFERRED, Collections.singleton(p)).partitions()));
        outcome("elect for an unknown topic", () -> get(admin.electLeaders(ElectionType.PREFERRED, Collections.singleton(tp("unknown", 0))).partitions()));
        outcome("elect uncleanly", () -> get(admin.electLeaders(ElectionType.UNCLEAN, Collections.singleton(p)).partitions()));
        outcome("reassign to a broker that is none", () -> get(admin.alterPartitionReassignments(Collections.singletonMap(p, Optional.of(new NewPartitionReassignment(Arrays.asList(7, 1))))).all()));
        outcome("cancel what is not there", () -> get(admin.alterPartitionReassignments(Collections.singletonMap(p, Optional.<NewPartitionReassignment>empty())).all()));
        outcome("log dirs", () -> {
            List<String> out = new ArrayList<>();
            for (Map.Entry<Integer, Map<String, LogDirDescription>> b : get(admin.describeLogDirs(Arrays.asList(1, 2)).allDescriptions()).entrySet())
                for (LogDirDescription d : b.getValue().values())
                    for (Map.Entry<TopicPartition, ReplicaInfo> r : d.replicaInfos().entrySet())
                        // How many batches the records went into, and so their size, is a matter of time.
                        if (r.getKey().topic().equals(topic("codec"))) out.add(b.getKey() + " " + r.getKey() + " " + r.getValue().toString().replaceAll("size=[1-9]\\d*", "size>0") + " " + d.error());
            return sorted(out);
        });
        outcome("log dirs of a broker that is none", () -> get(impatient.describeLogDirs(Arrays.asList(7)).allDescriptions()));
        outcome("move a replica to a folder that is none", () -> get(admin.alterReplicaLogDirs(Collections.singletonMap(new org.apache.kafka.common.TopicPartitionReplica(topic("extra"), 0, 1), "/no/such/folder")).all()));
        outcome("features", () -> {
            FeatureMetadata f = get(admin.describeFeatures().featureMetadata());
            return "finalized " + sorted(f.finalizedFeatures()) + "\nsupported " + sorted(f.supportedFeatures());
        });
        outcome("create a token", () -> get(admin.createDelegationToken().delegationToken()));
        outcome("describe tokens", () -> get(admin.describeDelegationToken().delegationTokens()));
        outcome("remove members of a group that is none", () -> get(admin.removeMembersFromConsumerGroup(topic("unknown"), new org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions(Collections.singleton(new org.apache.kafka.clients.admin.MemberToRemove("nobody")))).all()));
    }

    static void mirror() throws Exception {
        List<TopicPartition> parts = Arrays.asList(new TopicPartition(mirror, 0), new TopicPartition(mirror, 1));
        for (String level : new String[] {"read_uncommitted", "read_committed"}) {
            try (Consumer<byte[], byte[]> c = consumer("bootstrap.servers", mirrorBootstrap, "isolation.level", level)) {
                c.assign(parts);
                c.seekToBeginning(parts);
                see(level, toEnds(c, parts));
                see(level + " ends", sorted(c.beginningOffsets(parts)) + "\n" + sorted(c.endOffsets(parts)));
                Map<TopicPartition, Long> at = new HashMap<>();
                for (TopicPartition p : parts) at.put(p, 1_700_000_030_000L);
                List<String> times = new ArrayList<>();
                c.offsetsForTimes(at).forEach((k, v) -> times.add(k + " " + (v == null ? "none" : v.offset() + " " + v.timestamp())));
                see(level + " offsets for times", sorted(times));
                c.seek(parts.get(0), 1_000_000);
                see(level + " out of range", outOfRange(c)); // its message names the leader and its epoch
            }
        }
        for (String protocol : protocols()) {
            try (Consumer<byte[], byte[]> c = consumer("bootstrap.servers", mirrorBootstrap, "group.id", topic("mirror-" + protocol), "group.protocol", protocol, "auto.offset.reset", "earliest", "isolation.level", "read_committed")) {
                c.subscribe(Collections.singleton(mirror));
                see("group " + protocol, read(c, 40));
                Map<TopicPartition, OffsetAndMetadata> at = new HashMap<>();
                for (TopicPartition p : parts) at.put(p, new OffsetAndMetadata(5 + p.partition()));
                c.commitSync(at);
                see("group " + protocol + " committed", offsetsOnly(c.committed(new TreeSet<TopicPartition>((a, b) -> a.partition() - b.partition()) {{ addAll(parts); }})));
            }
        }
    }

    /** The leader epochs of a mirror are its own. */
    static String offsetsOnly(Map<TopicPartition, OffsetAndMetadata> m) {
        Map<TopicPartition, Long> out = new HashMap<>();
        m.forEach((k, v) -> out.put(k, v.offset()));
        return sorted(out);
    }

    static List<String> protocols() {
        try {
            Class.forName("org.apache.kafka.clients.consumer.GroupProtocol");
            return Class.forName("org.apache.kafka.clients.consumer.GroupProtocol") != null && later() ? Arrays.asList("classic", "consumer") : Arrays.asList("classic");
        } catch (ClassNotFoundException e) {
            return Arrays.asList("classic");
        }
    }

    static boolean later() {
        return Script.class.getResource("Later.class") != null;
    }

    static void more(String name) throws Exception {
        if (Script.class.getResource(name + ".class") != null) Class.forName(name).getMethod("run").invoke(null);
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        mirrorBootstrap = args[1];
        mirror = args[2];
        prefix = args[3];
        brokerKey = args[4];
        admin = Admin.create(props());
        // For what is tried until the time is up.
        impatient = Admin.create(props("default.api.timeout.ms", "3500", "request.timeout.ms", "3000"));
        part("metadata", Script::metadata);
        part("produce", Script::produce);
        part("compression", Script::compression);
        part("consume", Script::consume);
        part("group", () -> group("group"));
        part("transactions", Script::transactions);
        part("topics", Script::topics);
        part("configs", Script::configs);
        part("acls", Script::acls);
        part("quotas", Script::quotas);
        part("cluster", Script::cluster);
        more("Later");
        more("Newest");
        part("mirror", Script::mirror);
        admin.close(Duration.ofSeconds(5));
        impatient.close(Duration.ofSeconds(1));
        line("D");
        System.out.flush();
        System.exit(0);
    }
}
