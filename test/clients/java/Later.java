import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;

/** What the clients of 3.9 have beyond those of 2.8. */
public class Later extends Script {
    public static void run() {
        part("new group", () -> group("newgroup", "group.protocol", "consumer"));
        part("operations", Later::operations);
    }

    static void operations() throws Exception {
        String id = topic("open");
        TopicPartition p = tp("extra", 1);
        try (Producer<byte[], byte[]> producer = producer("transactional.id", id, "transaction.timeout.ms", "60000")) {
            producer.initTransactions();
            producer.beginTransaction();
            get(producer.send(record("extra", 1, 1)));
            see("transactions", listed());
            see("transaction", transaction(id));
            List<String> states = new ArrayList<>();
            for (ProducerState s : get(admin.describeProducers(Collections.singleton(p)).partitionResult(p)).activeProducers())
                states.add("sequence " + s.lastSequence() + " open from " + s.currentTransactionStartOffset());
            see("producers", states);
            outcome("fence", () -> get(admin.fenceProducers(Collections.singleton(id)).all()));
            outcome("commit when fenced", () -> {
                producer.commitTransaction();
                return "committed";
            });
        }
        see("transaction when fenced", until("ended", () -> transaction(id), s -> s.startsWith("Empty") || s.startsWith("CompleteAbort")));
        outcome("a transaction that is none", () -> transaction(topic("no-transaction")));
        outcome("quorum", () -> {
            QuorumInfo q = get(admin.describeMetadataQuorum().quorumInfo());
            List<Integer> voters = new ArrayList<>(), observers = new ArrayList<>();
            q.voters().forEach(r -> voters.add(r.replicaId()));
            q.observers().forEach(r -> observers.add(r.replicaId()));
            return "leader is a voter " + voters.contains(q.leaderId()) + " voters " + sorted(voters) + " observers " + sorted(observers);
        });
        outcome("client metrics", () -> get(admin.listClientMetricsResources().all()));
        Uuid topicId = description(topic("extra")).topicId();
        see("by id", get(admin.describeTopics(TopicCollection.ofTopicIds(Collections.singleton(topicId))).allTopicIds()).get(topicId).name());
        outcome("an unknown id", () -> get(admin.describeTopics(TopicCollection.ofTopicIds(Collections.singleton(new Uuid(1, 2)))).allTopicIds()));
        outcome("fenced brokers", () -> get(admin.describeCluster().nodes()).size());
        outcome("delete by id", () -> get(admin.deleteTopics(TopicCollection.ofTopicIds(Collections.singleton(new Uuid(1, 2)))).all()));
        outcome("the newest features", () -> get(admin.updateFeatures(Collections.singletonMap("kraft.version", new org.apache.kafka.clients.admin.FeatureUpdate((short) 9, org.apache.kafka.clients.admin.FeatureUpdate.UpgradeType.UPGRADE)), new org.apache.kafka.clients.admin.UpdateFeaturesOptions().validateOnly(true)).all()));
    }

    static String listed() throws Exception {
        List<String> out = new ArrayList<>();
        for (TransactionListing l : get(admin.listTransactions(new ListTransactionsOptions()).all())) if (l.transactionalId().startsWith(prefix)) out.add(l.transactionalId() + " " + l.state());
        return sorted(out);
    }

    static String transaction(String id) throws Exception {
        TransactionDescription d = get(admin.describeTransactions(Collections.singleton(id)).description(id));
        return d.state() + " coordinator " + d.coordinatorId() + " epoch " + d.producerEpoch() + " timeout " + d.transactionTimeoutMs() + " started " + d.transactionStartTimeMs().isPresent() + " " + sorted(d.topicPartitions());
    }
}
