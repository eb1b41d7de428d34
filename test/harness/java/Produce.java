import java.io.BufferedReader;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes the records that it reads from standard input and prints one line a record: where it went, or the exception.
 *
 * <p>Arguments: properties file, topic, and how a transaction ends (commit, abort, or none for no transaction). An input
 * line is: partition (-1: the producer's choice), timestamp (-1: now), key, value, headers; as Consume prints them. A
 * failure of the transaction itself is one more line that begins with T.
 */
public class Produce {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (InputStream in = Files.newInputStream(Paths.get(args[0]))) {
            properties.load(in);
        }
        String topic = args[1];
        boolean transaction = properties.containsKey(ProducerConfig.TRANSACTIONAL_ID_CONFIG);
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            try {
                if (transaction) {
                    producer.initTransactions();
                    producer.beginTransaction();
                }
                send(producer, topic);
                if (transaction && args[2].equals("abort")) {
                    producer.abortTransaction();
                } else if (transaction) {
                    producer.commitTransaction();
                }
            } catch (Exception e) {
                System.out.println("T " + failure(e));
            }
        }
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, String topic) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        List<Exception> refused = new ArrayList<>(); // by send itself, such as a topic without metadata
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] f = line.split(" ");
            Integer partition = f[0].equals("-1") ? null : Integer.valueOf(f[0]);
            Long timestamp = f[1].equals("-1") ? null : Long.valueOf(f[1]);
            ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, partition, timestamp, bytes(f[2]), bytes(f[3]));
            for (int i = 4; i < f.length; i++) {
                int eq = f[i].indexOf('=');
                record.headers().add(new RecordHeader(
                        new String(bytes(f[i].substring(0, eq)), StandardCharsets.UTF_8), bytes(f[i].substring(eq + 1))));
            }
            try {
                sent.add(producer.send(record));
                refused.add(null);
            } catch (RuntimeException e) {
                sent.add(null);
                refused.add(e);
            }
        }
        producer.flush();
        for (int i = 0; i < sent.size(); i++) {
            if (refused.get(i) != null) {
                System.out.println("E " + failure(refused.get(i)));
                continue;
            }
            try {
                RecordMetadata m = sent.get(i).get();
                System.out.println("R " + m.partition() + " " + m.offset() + " " + m.timestamp());
            } catch (ExecutionException e) {
                System.out.println("E " + failure(e.getCause()));
            }
        }
    }

    private static String failure(Throwable e) {
        String message = e.getMessage() == null ? "" : e.getMessage();
        return e.getClass().getName() + " " + text(message.getBytes(StandardCharsets.UTF_8));
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "-" : "." + Base64.getUrlEncoder().withoutPadding().encodeToString(bytes);
    }

    private static byte[] bytes(String text) {
        return text.equals("-") ? null : Base64.getUrlDecoder().decode(text.substring(1));
    }
}
