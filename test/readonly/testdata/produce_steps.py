"""One producer of librdkafka that takes the steps of standard input; see ProduceSteps.java."""

import json
import os
import sys
import time

from confluent_kafka import KafkaException, Producer


def tell(n, err=None):
    print(n, "ok" if err is None else f"{err.name()} {err.str()}".replace("\n", " "), flush=True)


def wait(path):
    end = time.monotonic() + 120
    while not os.path.exists(path):
        if time.monotonic() > end:
            raise RuntimeError("nobody made " + path)
        time.sleep(0.05)


conf = json.loads(sys.argv[1])
producer = Producer(conf)
if "transactional.id" in conf:
    producer.init_transactions(60)
sent = {}
for n, line in enumerate(sys.stdin):
    verb, *f = line.split()
    try:
        if verb == "send":
            def done(err, _, n=n):
                sent[n] = err

            producer.produce(f[0], partition=int(f[1]), value=f[2], on_delivery=done)
            continue
        if verb == "flush":
            if producer.flush(60) > 0:
                raise RuntimeError("records are left after a minute")
            for k, err in sent.items():
                tell(k, err)
            sent.clear()
        elif verb == "begin":
            producer.begin_transaction()
        elif verb == "commit":
            producer.commit_transaction(60)
        elif verb == "abort":
            producer.abort_transaction(60)
            sent.clear()
        elif verb == "touch":
            open(f[0], "x").close()
        elif verb == "pause":
            time.sleep(int(f[0]) / 1000)
        elif verb == "await":
            wait(f[0])
        else:
            raise ValueError(line)
        tell(n)
    except KafkaException as e:
        tell(n, e.args[0])
