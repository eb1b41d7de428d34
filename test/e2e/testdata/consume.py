"""Reads partition 0 of a topic to its end with librdkafka and prints offsets and values.

usage: consume.py BOOTSTRAP TOPIC ISOLATION
"""

import sys

from confluent_kafka import Consumer, KafkaError, OFFSET_BEGINNING, TopicPartition

bootstrap, topic, isolation = sys.argv[1:]
consumer = Consumer({
    "bootstrap.servers": bootstrap,
    "group.id": "not-used",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": isolation,
    "check.crcs": True,
})
consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
while True:
    message = consumer.poll(60)
    if message is None:
        sys.exit("nothing came for a minute")
    if message.error() is None:
        print(message.offset(), message.value().decode())
    elif message.error().code() == KafkaError._PARTITION_EOF:
        break
    elif not message.error().retriable():
        sys.exit(str(message.error()))
consumer.close()
