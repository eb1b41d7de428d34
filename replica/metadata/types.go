package metadata

import (
	"net"
	"strconv"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

// NoLeader is the value of Partition.Leader while no replica leads.
const NoLeader int32 = -1

// Partition is one partition as the log describes it. A published Partition is never
// changed, so it may be kept and read without a lock; the slices must not be written
// to.
type Partition struct {
	Topic     string
	TopicID   ids.UUID
	Partition int32

	Replicas, ISR, Adding, Removing []int32
	// Directories are the log directories of Replicas, in their order; see Online.
	Directories []ids.UUID
	// ELR holds the eligible leader replicas of KIP-966: out of the ISR, but known to
	// have everything up to the high watermark. LastKnownELR is the controller's last
	// resort when there is neither.
	ELR, LastKnownELR []int32

	Leader         int32 // NoLeader while there is none
	LeaderEpoch    int32
	PartitionEpoch int32
	// RecoveryState is 1 while the leader recovers from an unclean election, else 0.
	RecoveryState int8

	// LastRealISR are the real members of the last ISR that had any (R15), as far as
	// the log was seen; nil if unknown, which it is when a snapshot shows an ISR of
	// virtual replicas only.
	LastRealISR []int32
}

// Endpoint is one listener of a broker.
type Endpoint struct {
	Name, Host       string
	Port             uint16
	SecurityProtocol int16 // 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL
}

// Addr is host:port, as it is dialled.
func (e Endpoint) Addr() string { return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))) }

// Broker is a registration. The slices must not be written to.
type Broker struct {
	ID           int32
	Epoch        int64
	Incarnation  ids.UUID
	Fenced       bool
	ShuttingDown bool // in controlled shutdown
	Rack         string
	Endpoints    []Endpoint
	LogDirs      []ids.UUID
	CordonedDirs []ids.UUID
}

// Delta names what one applied batch, or one snapshot, changed. The names may repeat
// what did not change in effect; they never miss what did.
type Delta struct {
	Partitions    []ids.TopicPartition // changed or added
	RemovedTopics []ids.UUID
	Brokers       []int32  // registered, changed or unregistered
	Configs       []string // names of topics whose dynamic configs changed
	// BrokerDefaults and Features tell that any of those changed.
	BrokerDefaults, Features bool
}
