"""Reads the first partition of a topic from its start until so many records have come, and prints their offsets.
A position that is lost, or seconds without a record, end it with a failure.

Arguments: bootstrap servers, topic, isolation level, number of records, seconds.
"""
import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

seeds, topic, level, count, idle = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5])
LOST = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION)

consumer = Consumer({
    "bootstrap.servers": seeds, "group.id": "no group", "auto.offset.reset": "error", "enable.auto.commit": False, "isolation.level": level,
    # What is known of leaders is not looked up for its own sake.
    "topic.metadata.refresh.interval.ms": 300000,
})
consumer.assign([TopicPartition(topic, 0, 0)])
last = time.monotonic()
while count > 0:
    m = consumer.poll(1)
    if m is None or m.error():
        if m is not None and (m.error().code() in LOST or m.error().fatal()):
            raise KafkaException(m.error())
        if m is not None:
            print(m.error(), file=sys.stderr)  # that a broker is gone, for one
        if time.monotonic() - last > idle:
            sys.exit(f"no record for {idle} seconds, {count} are missing")
        continue
    last = time.monotonic()
    count -= 1
    print(m.offset())
consumer.close()
