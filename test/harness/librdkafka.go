package harness

import "context"

// LibrdkafkaVersion is the release of librdkafka's Python client, which brings the library along.
const LibrdkafkaVersion = "2.6.1"

// Librdkafka gives a Python interpreter that has confluent_kafka, which is installed into the
// cache folder when it is not there. An error says why it cannot be had here, without python3 or
// a package index: tests may do without.
func Librdkafka(ctx context.Context) (python string, err error) {
	return LibrdkafkaOf(ctx, LibrdkafkaVersion)
}

// LibrdkafkaOf is [Librdkafka] of another version.
func LibrdkafkaOf(ctx context.Context, version string) (python string, err error) {
	return Python(ctx, "librdkafka-"+version, "confluent_kafka", "confluent-kafka=="+version)
}
