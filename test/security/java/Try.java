import java.io.BufferedReader;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Lets a producer and a consumer log in, write a record and read it back, for each line of standard input: a name, a
 * properties file, a topic. Prints a line for each: the name and OK, or the name, the exception's class and its message
 * in base64. One JVM for all, since a JVM's start takes longer than all of them.
 */
public class Try {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        ExecutorService pool = Executors.newFixedThreadPool(4);
        List<Future<String>> results = new ArrayList<>();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] f = line.split(" ");
            results.add(pool.submit(() -> f[0] + " " + one(f[1], f[2])));
        }
        for (Future<String> r : results) {
            System.out.println(r.get());
        }
        pool.shutdown();
    }

    private static String one(String file, String topic) {
        try {
            Properties properties = new Properties();
            try (InputStream in = Files.newInputStream(Paths.get(file))) {
                properties.load(in);
            }
            RecordMetadata at;
            byte[] value = file.getBytes(StandardCharsets.UTF_8);
            try (KafkaProducer<byte[], byte[]> producer =
                    new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
                at = producer.send(new ProducerRecord<>(topic, value)).get();
            }
            TopicPartition partition = new TopicPartition(topic, at.partition());
            try (KafkaConsumer<byte[], byte[]> consumer =
                    new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                consumer.assign(Collections.singletonList(partition));
                consumer.seek(partition, at.offset());
                for (long end = System.nanoTime() + 30_000_000_000L; System.nanoTime() < end; ) {
                    for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(500))) {
                        if (r.offset() == at.offset() && java.util.Arrays.equals(r.value(), value)) {
                            return "OK";
                        }
                    }
                }
                return failure(new IllegalStateException("the record was not read back"));
            }
        } catch (Exception e) {
            return failure(e);
        }
    }

    private static String failure(Throwable e) {
        if (e instanceof ExecutionException) {
            e = e.getCause();
        }
        String message = String.valueOf(e.getMessage());
        return e.getClass().getName() + " " + Base64.getEncoder().encodeToString(message.getBytes(StandardCharsets.UTF_8));
    }
}
