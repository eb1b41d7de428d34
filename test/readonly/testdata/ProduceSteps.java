import java.io.BufferedReader;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * One producer that takes the steps of standard input, one a line, and prints what became of each: its number, and ok or
 * the exception. What was sent is told when it has been flushed.
 */
public class ProduceSteps {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        try (InputStream in = Files.newInputStream(Paths.get(args[0]))) {
            properties.load(in);
        }
        Map<Integer, Future<RecordMetadata>> sent = new LinkedHashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            if (properties.containsKey(ProducerConfig.TRANSACTIONAL_ID_CONFIG)) {
                producer.initTransactions();
            }
            int n = 0;
            for (String line = in.readLine(); line != null; line = in.readLine(), n++) {
                String[] f = line.split(" ");
                try {
                    switch (f[0]) {
                        case "send":
                            sent.put(n, producer.send(new ProducerRecord<>(f[1], Integer.valueOf(f[2]), null, f[3])));
                            continue;
                        case "flush":
                            producer.flush();
                            for (Map.Entry<Integer, Future<RecordMetadata>> e : sent.entrySet()) {
                                tell(e.getKey(), failure(e.getValue()));
                            }
                            sent.clear();
                            break;
                        case "begin":
                            producer.beginTransaction();
                            break;
                        case "commit":
                            producer.commitTransaction();
                            break;
                        case "abort":
                            producer.abortTransaction();
                            sent.clear();
                            break;
                        case "touch":
                            Files.createFile(Paths.get(f[1]));
                            break;
                        case "pause":
                            Thread.sleep(Long.parseLong(f[1]));
                            break;
                        case "await":
                            await(Paths.get(f[1]));
                            break;
                        default:
                            throw new IllegalArgumentException(line);
                    }
                    tell(n, null);
                } catch (RuntimeException e) {
                    tell(n, e);
                }
            }
        }
    }

    private static Throwable failure(Future<RecordMetadata> f) throws InterruptedException {
        try {
            f.get();
            return null;
        } catch (ExecutionException e) {
            return e.getCause();
        }
    }

    private static void await(Path file) throws InterruptedException {
        long end = System.nanoTime() + 120_000_000_000L;
        while (!Files.exists(file)) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException("nobody made " + file);
            }
            Thread.sleep(50);
        }
    }

    private static void tell(int n, Throwable e) {
        System.out.println(n + (e == null ? " ok" : " " + e.toString().replace('\n', ' ')));
        System.out.flush();
    }
}
