import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes all the time until it has logged in again so many times, and prints how many records were acknowledged, how many failed, how often the
 * client logged in again on the connections that it had, and how many connections it opened.
 *
 * <p>Arguments: properties file, topic, how many times, and after how many seconds it gives up.
 */
public class Renew {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (InputStream in = Files.newInputStream(Paths.get(args[0]))) {
            properties.load(in);
        }
        AtomicLong acknowledged = new AtomicLong();
        AtomicLong failed = new AtomicLong();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            long end = System.nanoTime() + Long.parseLong(args[3]) * 1_000_000_000L;
            long times = Long.parseLong(args[2]);
            for (long n = 0; System.nanoTime() < end && total(producer, "successful-reauthentication-total") < times; n++) {
                byte[] value = Long.toString(n).getBytes(StandardCharsets.UTF_8);
                producer.send(new ProducerRecord<>(args[1], value), (at, e) -> {
                    if (e == null) {
                        acknowledged.incrementAndGet();
                    } else {
                        failed.incrementAndGet();
                        System.err.println("FAILED " + e);
                    }
                });
                Thread.sleep(10);
            }
            producer.flush();
            System.out.println(acknowledged.get() + " " + failed.get() + " " + total(producer, "successful-reauthentication-total")
                    + " " + total(producer, "connection-creation-total"));
        }
    }

    private static long total(KafkaProducer<?, ?> producer, String name) {
        for (Map.Entry<MetricName, ? extends Metric> m : producer.metrics().entrySet()) {
            if (m.getKey().group().equals("producer-metrics") && m.getKey().name().equals(name)) {
                return ((Number) m.getValue().metricValue()).longValue();
            }
        }
        return -1;
    }
}
