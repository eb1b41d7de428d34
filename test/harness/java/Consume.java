import java.io.BufferedOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.time.Duration;
import java.util.Base64;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads a topic as a member of a consumer group and prints one line a record, byte fields in base64.
 *
 * <p>Arguments: properties file, topic, count (0: up to the end of the topic), milliseconds without a record after
 * which it gives up. It commits what it read and leaves the group.
 */
public class Consume {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (InputStream in = Files.newInputStream(Paths.get(args[0]))) {
            properties.load(in);
        }
        String topic = args[1];
        long count = Long.parseLong(args[2]);
        long idleMs = Long.parseLong(args[3]);
        PrintStream out =
                new PrintStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16), false, "UTF-8");
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic), new FromCommittedOrStart(consumer));
            run(consumer, topic, count, idleMs, out);
            consumer.commitSync();
        } finally {
            out.flush();
        }
    }

    private static void run(KafkaConsumer<byte[], byte[]> consumer, String topic, long count, long idleMs, PrintStream out) {
        long seen = 0;
        long last = System.nanoTime();
        while (count == 0 || seen < count) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
            for (ConsumerRecord<byte[], byte[]> r : records) {
                print(r, out);
                if (++seen == count) {
                    // What was polled beyond the count is not to be committed.
                    consumer.seek(new TopicPartition(r.topic(), r.partition()), r.offset() + 1);
                    rewind(consumer, records, r);
                    return;
                }
            }
            if (!records.isEmpty()) {
                last = System.nanoTime();
                continue;
            }
            if (count == 0 && atEnd(consumer, topic)) {
                return;
            }
            if ((System.nanoTime() - last) / 1_000_000 > idleMs) {
                if (count > 0) {
                    return; // the caller sees that records are missing
                }
                throw new IllegalStateException("nothing arrived for " + idleMs + " ms before the end: " + where(consumer));
            }
        }
    }

    private static void rewind(
            KafkaConsumer<byte[], byte[]> consumer, ConsumerRecords<byte[], byte[]> records, ConsumerRecord<byte[], byte[]> stop) {
        boolean after = false;
        Set<TopicPartition> done = new HashSet<>();
        done.add(new TopicPartition(stop.topic(), stop.partition()));
        for (ConsumerRecord<byte[], byte[]> r : records) {
            TopicPartition tp = new TopicPartition(r.topic(), r.partition());
            if (after && done.add(tp)) {
                consumer.seek(tp, r.offset());
            } else if (!after) {
                done.add(tp);
            }
            after |= r == stop;
        }
    }

    /** True when every partition of the topic is assigned here and read to its end, as the isolation level sees it. */
    private static boolean atEnd(KafkaConsumer<byte[], byte[]> consumer, String topic) {
        Set<TopicPartition> assigned = consumer.assignment();
        if (assigned.isEmpty() || assigned.size() < consumer.partitionsFor(topic).size()) {
            return false;
        }
        for (Map.Entry<TopicPartition, Long> end : consumer.endOffsets(assigned).entrySet()) {
            if (consumer.position(end.getKey()) < end.getValue()) {
                return false;
            }
        }
        return true;
    }

    private static String where(KafkaConsumer<byte[], byte[]> consumer) {
        StringBuilder text = new StringBuilder("assigned " + consumer.assignment().size() + " partitions");
        for (Map.Entry<TopicPartition, Long> end : consumer.endOffsets(consumer.assignment()).entrySet()) {
            text.append(", ").append(end.getKey()).append(" at ").append(consumer.position(end.getKey()));
            text.append(" of ").append(end.getValue());
        }
        return text.toString();
    }

    private static void print(ConsumerRecord<byte[], byte[]> r, PrintStream out) {
        out.print("R " + r.partition() + " " + r.offset() + " " + r.leaderEpoch().orElse(-1) + " " + r.timestamp() + " "
                + r.timestampType().name + " " + text(r.key()) + " " + text(r.value()));
        for (Header h : r.headers()) {
            out.print(" " + text(h.key().getBytes(StandardCharsets.UTF_8)) + "=" + text(h.value()));
        }
        out.print("\n");
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "-" : "." + Base64.getUrlEncoder().withoutPadding().encodeToString(bytes);
    }

    /** With auto.offset.reset=none a new group must be told where to begin; afterwards a lost position is an error. */
    private static final class FromCommittedOrStart implements ConsumerRebalanceListener {
        private final KafkaConsumer<byte[], byte[]> consumer;

        FromCommittedOrStart(KafkaConsumer<byte[], byte[]> consumer) {
            this.consumer = consumer;
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(new HashSet<>(partitions));
            for (TopicPartition tp : partitions) {
                if (committed.get(tp) == null) {
                    consumer.seekToBeginning(List.of(tp));
                }
            }
        }
    }
}
