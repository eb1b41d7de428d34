package protocol

import (
	"fmt"
	"math"
	"unicode/utf16"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// CoordinatorPartition is the partition of the state topic, of n, that a mirror partition
// belongs to.
func CoordinatorPartition(mirror string, tp ids.TopicPartition, n int32) int32 {
	return partitionFor(fmt.Sprintf("%s:%s:%d", mirror, tp.TopicID, tp.Partition), n)
}

// MirrorPartition is the partition of the state topic, of n, that a mirror as a whole
// belongs to.
func MirrorPartition(mirror string, n int32) int32 { return partitionFor(mirror, n) }

// partitionFor takes a hash as Kafka's coordinators do, so that KIP-1279's tools find the
// same coordinator. n of 0 would be a topic without partitions: there is no answer.
func partitionFor(key string, n int32) int32 {
	if n <= 0 {
		return -1
	}
	h := javaHash(key)
	switch {
	case h == math.MinInt32:
		h = 0 // its absolute value does not exist
	case h < 0:
		h = -h
	}
	return h % n
}

// javaHash is String.hashCode, which counts UTF-16 code units and wraps at 32 bits.
func javaHash(s string) int32 {
	var h int32
	for _, u := range utf16.Encode([]rune(s)) {
		h = 31*h + int32(u)
	}
	return h
}
