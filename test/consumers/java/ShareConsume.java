import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.time.Duration;
import java.util.Base64;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads a topic as a member of a share group until so many records have come, and prints a line for each, and for
 * each exception that is another one than the last: its class, and its message in base64.
 *
 * <p>Arguments: properties file, topic, count, milliseconds after which it gives up.
 */
public class ShareConsume {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (InputStream in = Files.newInputStream(Paths.get(args[0]))) {
            properties.load(in);
        }
        long count = Long.parseLong(args[2]);
        long end = System.nanoTime() + Long.parseLong(args[3]) * 1_000_000;
        try (KafkaShareConsumer<byte[], byte[]> consumer =
                new KafkaShareConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(args[1]));
            String last = "";
            for (long seen = 0; seen < count && System.nanoTime() < end; ) {
                try {
                    for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(200))) {
                        System.out.println("R " + r.partition() + " " + r.offset());
                        seen++;
                    }
                } catch (Exception e) {
                    String text = String.valueOf(e.getMessage());
                    String line = "E " + e.getClass().getName() + " ."
                            + Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
                    if (!line.equals(last)) {
                        System.out.println(line);
                    }
                    last = line;
                    Thread.sleep(100);
                }
            }
        }
        System.out.println("END");
    }
}
