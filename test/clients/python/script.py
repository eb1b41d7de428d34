"""Does what users do with librdkafka's Python client and prints what it saw, in the lines that observe.go reads.

usage: script.py BOOTSTRAP MIRROR_BOOTSTRAP MIRROR PREFIX
"""

import sys
import time
import traceback

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding, AclBindingFilter, AclOperation, AclPermissionType, AdminClient, AlterConfigOpType, ConfigEntry,
    ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourcePatternType, ResourceType)

LIMIT = 60
FIRST_TIME = 1_700_000_000_000
bootstrap, mirror_bootstrap, mirror, prefix = sys.argv[1:5]
new_protocol = confluent_kafka.libversion()[1] >= 0x020c0000


def escape(value):
    return str(value).replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def line(*fields):
    print("\t".join(escape(f) for f in fields), flush=True)


def see(step, value):
    line("O", step, value)


def outcome(step, call):
    try:
        see(step, call())
    except KafkaException as e:
        error = e.args[0]
        see(step, f"error: {error.name()} {error.str()}")


def until(what, call, good=lambda v: True):
    end = time.monotonic() + LIMIT
    while True:
        try:
            value = call()
            if good(value):
                return value
            last = value
        except KafkaException as e:
            last = e
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not come: {last}")
        time.sleep(0.1)


def topic(name):
    return f"{prefix}-{name}"


def config(**more):
    c = {"bootstrap.servers": bootstrap, "client.id": "script", "retry.backoff.ms": 100}
    c.update({k.replace("_", "."): v for k, v in more.items()})
    return c


def consumer(group="not-used", seeds=None, **more):
    c = config(**more)
    c.update({"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest", "enable.partition.eof": True})
    if seeds:
        c["bootstrap.servers"] = seeds
    return Consumer(c)


def record(name, partition, n):
    return dict(topic=topic(name), partition=partition, key=f"key-{n}", value=f"value-{n}",
                timestamp=FIRST_TIME + n * 1000, headers=[("n", str(n).encode())])


def send(step, p, records):
    """Each record has its own outcome, in the order in which they were given."""
    for r in records:
        out = []
        try:
            p.produce(on_delivery=lambda e, m: out.append((e, m)), **r)
        except (KafkaException, BufferError) as e:
            see(step, f"error: {e}")
            continue
        if p.flush(LIMIT) != 0:
            raise TimeoutError("a record was not delivered")
        error, m = out[0]
        see(step, f"error: {error.name()} {error.str()}" if error else f"{m.topic()}-{m.partition()}@{m.offset()} {m.timestamp()}")


def worded(m):
    value = m.value()
    if value is not None and len(value) > 40:
        value = f"{len(value)} bytes"
    return f"{m.partition()}@{m.offset():09} {m.timestamp()} {m.key()}={value} {m.headers()}"


def read(c, count=None):
    """Reads so many records, or to the ends of what is assigned."""
    seen, ends = [], set()
    end = time.monotonic() + LIMIT
    while count is None and len(ends) < len(c.assignment()) or count is not None and len(seen) < count:
        if time.monotonic() > end:
            raise TimeoutError(f"read {len(seen)} records")
        m = c.poll(1)
        if m is None:
            continue
        if m.error() is None:
            seen.append(worded(m))
        elif m.error().code() == KafkaError._PARTITION_EOF:
            ends.add((m.topic(), m.partition()))
        elif not m.error().retriable():
            raise KafkaException(m.error())
    return "\n".join(sorted(seen))


admin = AdminClient(config())


def future(f):
    return f.result(LIMIT)


def only(futures):
    return future(next(iter(futures.values())))


def metadata():
    m = admin.list_topics(topic("main"), timeout=LIMIT)
    see("cluster", m.cluster_id)
    for i in sorted(m.brokers):
        see("broker", f"{i} {m.brokers[i].host}:{m.brokers[i].port}")
    for i, p in sorted(m.topics[topic("main")].partitions.items()):
        see("partition", f"{i} leader {p.leader} replicas {p.replicas} isr {len(p.isrs)} {p.error}")
    d = future(admin.describe_cluster(include_authorized_operations=True))
    for n in sorted(d.nodes, key=lambda n: n.id):
        see("node", f"{n.id} {n.host}:{n.port} rack {n.rack}")
    see("controller is one of them", d.controller.id in [n.id for n in d.nodes])
    see("operations", sorted(o.name for o in d.authorized_operations))
    t = only(admin.describe_topics(confluent_kafka.TopicCollection([topic("main")])))
    for p in t.partitions:
        see("described", f"{p.id} {p.leader.id} {p.leader.host}:{p.leader.port} {[r.id for r in p.replicas]} {len(p.isr)}")
    outcome("unknown topic", lambda: only(admin.describe_topics(confluent_kafka.TopicCollection([topic("unknown")]))))
    see("topics", sorted(t for t in admin.list_topics(timeout=LIMIT).topics if t.startswith(prefix)))


def produce():
    n = 0
    for acks in ("0", "1", "all", "idempotent"):
        p = Producer(config(acks="all", enable_idempotence=True) if acks == "idempotent" else config(acks=acks))
        for partition in (0, 1):
            for _ in range(3):
                n += 1
                send(f"acks {acks}", p, [record("main", partition, n)])
        if acks == "0":
            c = consumer()
            until("acks 0", lambda: [c.get_watermark_offsets(TopicPartition(topic("main"), i), timeout=LIMIT)[1] for i in (0, 1)], lambda v: v == [3, 3])
            c.close()
    p = Producer(config(message_max_bytes=10_000_000, message_timeout_ms=30000))
    large = record("main", 0, 100)
    large["value"] = bytes(3_000_000)
    send("too large", p, [large])
    send("null", p, [dict(topic=topic("main"), partition=0, timestamp=FIRST_TIME)])
    send("no such partition", p, [record("main", 7, 1)])


def compression():
    n = 0
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        p = Producer(config(compression_type=codec, linger_ms=100))
        for i in range(20):
            p.produce(**record("codec", i % 2, n))
            n += 1
        if p.flush(LIMIT) != 0:
            raise TimeoutError("records were not delivered")
    c = consumer()
    c.assign([TopicPartition(topic("codec"), i, 0) for i in (0, 1)])
    see("read", read(c, 100))
    c.close()


def consume():
    c = consumer()
    c.assign([TopicPartition(topic("main"), 0, 2), TopicPartition(topic("main"), 1, 3)])
    see("from 2 and 3", read(c))
    see("positions", sorted((p.partition, p.offset) for p in c.position([TopicPartition(topic("main"), i) for i in (0, 1)])))
    for i in (0, 1):
        see("watermarks", c.get_watermark_offsets(TopicPartition(topic("main"), i), timeout=LIMIT))
    for at in (FIRST_TIME + 5000, FIRST_TIME * 2):
        see("offsets for times", [(p.partition, p.offset, str(p.error)) for p in c.offsets_for_times([TopicPartition(topic("main"), i, at) for i in (0, 1)], timeout=LIMIT)])
    c.close()
    c = Consumer({**config(), "group.id": "not-used", "auto.offset.reset": "error"})
    c.assign([TopicPartition(topic("main"), 0, 100000)])
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        m = c.poll(1)
        if m is not None:
            see("out of range", f"{m.error().name()}" if m.error() else worded(m))
            break
    c.close()
    for name, spec in (("earliest", OffsetSpec.earliest()), ("latest", OffsetSpec.latest()), ("max timestamp", OffsetSpec.max_timestamp())):
        r = only(admin.list_offsets({TopicPartition(topic("main"), 0): spec}))
        see(name, f"{r.offset} {r.timestamp} {r.leader_epoch}")


def group(name, **more):
    p = Producer(config())
    for i in range(10):
        p.produce(**record(name, i % 2, i))
    p.flush(LIMIT)
    c = consumer(topic(name), **more)
    c.subscribe([topic(name)])
    see("read", read(c, 10))
    see("assignment", sorted(p.partition for p in c.assignment()))
    see("commit", sorted((p.partition, p.offset, str(p.error)) for p in c.commit(offsets=[TopicPartition(topic(name), 0, 3), TopicPartition(topic(name), 1, 5)], asynchronous=False)))
    see("committed", sorted((p.partition, p.offset, p.leader_epoch) for p in c.committed([TopicPartition(topic(name), i) for i in (0, 1)], timeout=LIMIT)))
    d = only(admin.describe_consumer_groups([topic(name)]))
    see("described", f"{d.group_id} {d.state.name} {d.partition_assignor} {d.coordinator.id} {d.coordinator.host}:{d.coordinator.port} "
        f"{[(m.client_id, m.host, sorted((p.topic, p.partition) for p in m.assignment.topic_partitions)) for m in d.members]}")
    see("listed", [(g.group_id, g.is_simple_consumer_group, g.state.name) for g in future(admin.list_consumer_groups()).valid if g.group_id == topic(name)])
    c.close()
    until("empty", lambda: only(admin.describe_consumer_groups([topic(name)])).state.name, lambda s: s == "EMPTY")
    offsets = only(admin.list_consumer_group_offsets([confluent_kafka.ConsumerGroupTopicPartitions(topic(name))]))
    see("offsets", sorted((p.partition, p.offset) for p in offsets.topic_partitions))
    only(admin.alter_consumer_group_offsets([confluent_kafka.ConsumerGroupTopicPartitions(topic(name), [TopicPartition(topic(name), 0, 1)])]))
    c = consumer(topic(name), **more)
    c.subscribe([topic(name)])
    see("goes on", read(c, 4))
    c.close()
    until("empty", lambda: only(admin.describe_consumer_groups([topic(name)])).state.name, lambda s: s == "EMPTY")
    outcome("delete", lambda: only(admin.delete_consumer_groups([topic(name)])))
    outcome("delete again", lambda: only(admin.delete_consumer_groups([topic(name)])))


def transactions():
    p = Producer(config(transactional_id=topic("txn")))
    p.init_transactions(LIMIT)
    for i in range(3):
        p.begin_transaction()
        send(f"transaction {i}", p, [record("tx", 0, 2 * i), record("tx", 1, 2 * i + 1)])
        if i == 1:
            p.abort_transaction(LIMIT)
        else:
            p.commit_transaction(LIMIT)
    p.begin_transaction()
    send("to be fenced", p, [record("tx", 0, 9)])
    q = Producer(config(transactional_id=topic("txn")))
    q.init_transactions(LIMIT)
    q.begin_transaction()
    send("fences", q, [record("tx", 1, 10)])
    q.commit_transaction(LIMIT)
    outcome("fenced", lambda: p.commit_transaction(LIMIT))
    for level in ("read_uncommitted", "read_committed"):
        c = consumer(isolation_level=level)
        c.assign([TopicPartition(topic("tx"), i, 0) for i in (0, 1)])
        see(level, read(c))
        c.close()


def topics():
    made = topic("made")
    for step in ("create", "create again"):
        outcome(step, lambda: only(admin.create_topics([NewTopic(made, 2, 2)])))
    outcome("bad name", lambda: only(admin.create_topics([NewTopic("bad/name", 2, 2)])))
    until("created", lambda: only(admin.describe_topics(confluent_kafka.TopicCollection([made]))))
    outcome("grow", lambda: only(admin.create_partitions([NewPartitions(made, 4)])))
    outcome("shrink", lambda: only(admin.create_partitions([NewPartitions(made, 1)])))
    p = Producer(config())
    send("produce", p, [record("admin", 0, i) for i in range(4)])
    for at in (2, 100):
        outcome(f"delete records before {at}", lambda: only(admin.delete_records([TopicPartition(topic("admin"), 0, at)])).low_watermark)
    for step in ("delete", "delete again"):
        outcome(step, lambda: only(admin.delete_topics([made])))


def configs():
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic("admin"))

    def described():
        return "\n".join(sorted(f"{e.name}={e.value} {e.source} {e.is_read_only} {e.is_sensitive} {len(e.synonyms)}" for e in only(admin.describe_configs([resource])).values()))

    see("described", described())
    for value in ("123456789", "long"):
        change = ConfigResource(ConfigResource.Type.TOPIC, topic("admin"),
                                incremental_configs=[ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)])
        outcome(f"set to {value}", lambda: only(admin.incremental_alter_configs([change])))
    see("was set", until("set", described, lambda s: "123456789" in s))
    outcome("unknown topic", lambda: only(admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic("unknown"))])))


def acls():
    binding = AclBinding(ResourceType.TOPIC, topic("main"), ResourcePatternType.LITERAL, "User:" + prefix, "*", AclOperation.READ, AclPermissionType.ALLOW)
    mine = AclBindingFilter(ResourceType.ANY, None, ResourcePatternType.ANY, "User:" + prefix, None, AclOperation.ANY, AclPermissionType.ANY)
    outcome("create", lambda: only(admin.create_acls([binding])))
    see("described", until("created", lambda: [str(b) for b in future(admin.describe_acls(mine))], lambda v: len(v) == 1))
    outcome("delete", lambda: [str(b) for b in only(admin.delete_acls([mine]))])


def read_mirror():
    for level in ("read_uncommitted", "read_committed"):
        c = consumer(seeds=mirror_bootstrap, isolation_level=level)
        c.assign([TopicPartition(mirror, i, 0) for i in (0, 1)])
        see(level, read(c))
        for i in (0, 1):
            see("watermarks", c.get_watermark_offsets(TopicPartition(mirror, i), timeout=LIMIT))
        see("offsets for times", [(p.partition, p.offset, str(p.error)) for p in c.offsets_for_times([TopicPartition(mirror, i, FIRST_TIME + 30000) for i in (0, 1)], timeout=LIMIT)])
        c.close()
    for protocol in ("classic", "consumer") if new_protocol else ("classic",):
        c = consumer(topic("mirror-" + protocol), seeds=mirror_bootstrap, isolation_level="read_committed", group_protocol=protocol)
        c.subscribe([mirror])
        see("group " + protocol, read(c, 40))
        see("commit " + protocol, sorted((p.partition, p.offset, str(p.error)) for p in c.commit(offsets=[TopicPartition(mirror, 0, 5), TopicPartition(mirror, 1, 6)], asynchronous=False)))
        c.close()


parts = [("metadata", metadata), ("produce", produce), ("compression", compression), ("consume", consume), ("group", lambda: group("group"))]
if new_protocol:
    parts.append(("new group", lambda: group("newgroup", group_protocol="consumer")))
parts += [("transactions", transactions), ("topics", topics), ("configs", configs), ("acls", acls), ("mirror", read_mirror)]
for name, body in parts:
    line("P", name)
    try:
        body()
    except Exception:  # the next part may have more luck
        line("F", traceback.format_exc())
line("D")
