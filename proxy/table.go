package proxy

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	keyControlledShutdown = int16(kmsg.ControlledShutdown)
	keyAPIVersions        = int16(kmsg.ApiVersions)
)

// at says at which kind of listener a row holds.
type at uint8

const (
	atClient at = 1 << iota
	atVirtual
	atBoth = atClient | atVirtual
)

// row is one API that is not merely relayed.
type row struct {
	key int16
	// max is the highest version this code has been written for. ApiVersions is
	// clamped to it, so that no client sends what cannot be read here.
	max int16
	at  at
	why string

	// light decides by the first bytes of a frame, which it may peek at. If ok, the
	// frame is streamed under the exchange; else handle gets the frame.
	light func(c *conn, h header, size int) (ex exchange, ok bool, err error)
	// handle decides with the whole frame in memory.
	handle func(c *conn, r *request) (exchange, error)
	// pooled says that nothing made by handle refers to the frame once the exchange
	// has been sent upstream.
	pooled bool
	// rewrite changes responses for clients and tells whether it did; see rewrite.go.
	// A row with nothing else streams its requests.
	rewrite func(p *Proxy, resp kmsg.Response) bool
}

// table is what the proxy knows of Kafka's APIs.
func table() []row {
	return []row{
		{
			key: keyAPIVersions, max: 5, at: atBoth, handle: (*conn).apiVersions,
			why: "versions are clamped to what the proxy reads, the mirror APIs are added, and who looks for the virtual broker (KIP-1242) has found it",
		},
		{
			key: int16(kmsg.SASLHandshake), max: 1, at: atBoth, handle: (*conn).saslHandshake,
			why: "version 0 is followed by tokens without request headers",
		},
		{
			key: keySASLAuthenticate, max: 2, at: atBoth, handle: (*conn).saslAuthenticate,
			why: "strangers are bounded until they have logged in",
		},

		// What tells clients of brokers and leaders.
		{
			key: int16(kmsg.Metadata), max: 13, at: atBoth, light: (*conn).lightMetadata, handle: (*conn).metadata, rewrite: rewriteMetadata,
			why: "virtual brokers are hidden, mirror partitions are led by a real in-sync replica, the state topic is internal and not created by asking for it",
		},
		{
			key: int16(kmsg.DescribeCluster), max: 2, at: atClient, rewrite: rewriteDescribeCluster,
			why: "virtual brokers are hidden",
		},
		{
			key: int16(kmsg.DescribeTopicPartitions), max: 0, at: atClient, rewrite: rewriteDescribeTopicPartitions,
			why: "as Metadata",
		},
		{
			key: int16(kmsg.FindCoordinator), max: 6, at: atBoth, handle: (*conn).findCoordinator, rewrite: rewriteFindCoordinator,
			why: "coordinators have addresses; key type 3 asks for a mirror's coordinator",
		},
		{
			key: int16(kmsg.ShareFetch), max: 2, at: atBoth, light: (*conn).lightShareFetch, handle: (*conn).shareFetch, rewrite: rewriteShareFetch,
			why: "answers name leaders and their addresses; the state topic is not for everybody",
		},
		{
			key: int16(kmsg.ShareGroupHeartbeat), max: 1, at: atBoth, handle: (*conn).shareGroupHeartbeat,
			why: "share groups cannot read mirror topics, and would never be told",
		},
		{
			key: int16(kmsg.ShareAcknowledge), max: 2, at: atClient, rewrite: rewriteShareAcknowledge,
			why: "answers name leaders and their addresses",
		},

		{
			key: int16(kmsg.ListConfigResources), max: 1, at: atClient, rewrite: rewriteListConfigResources,
			why: "brokers are among the resources, virtual ones are hidden",
		},

		// Reading a mirror partition.
		{
			key: int16(kmsg.Fetch), max: 18, at: atClient, light: (*conn).lightFetch, handle: (*conn).fetch, rewrite: rewriteFetch,
			why: "answers name leaders and their addresses; below version 11 a follower, which is what clients are sent to, does not answer consumers; the state topic is not for everybody",
		},
		{
			key: int16(kmsg.Fetch), max: 18, at: atVirtual, handle: (*conn).virtualFetch,
			why: "followers are served by the virtual broker; consumers are sent to a real replica",
		},
		{
			key: int16(kmsg.ListOffsets), max: 11, at: atBoth, handle: (*conn).listOffsets,
			why: "the real replica of a mirror partition follows, and its own end is not what consumers may see; the state topic is not for everybody",
		},
		{
			key: int16(kmsg.OffsetForLeaderEpoch), max: 4, at: atBoth, handle: (*conn).offsetForLeaderEpoch,
			why: "only a leader answers it, and a mirror partition's is virtual; the state topic is not for everybody",
		},
		{
			key: int16(kmsg.WriteTxnMarkers), max: 2, at: atVirtual, handle: (*conn).writeTxnMarkers,
			why: "sent to the leader, which is the virtual broker",
		},

		// Changing a mirror topic: package readonly.
		{
			key: int16(kmsg.Produce), max: 13, at: atBoth, light: (*conn).lightProduce, handle: (*conn).produce, pooled: true, rewrite: rewriteProduce,
			why: "mirror partitions are read only, fenced topics for a while; with acks=0 there is no answer; answers name leaders and their addresses",
		},
		{key: int16(kmsg.AddPartitionsToTxn), max: 5, at: atBoth, handle: (*conn).addPartitionsToTxn, why: "mirror partitions are read only, fenced topics for a while; the state topic's transactional ids"},
		{key: int16(kmsg.InitProducerID), max: 5, at: atBoth, light: (*conn).lightTransaction, handle: (*conn).initProducerID, why: "the state topic's transactional ids are the sidecars'"},
		{key: int16(kmsg.AddOffsetsToTxn), max: 4, at: atBoth, light: (*conn).lightTransaction, handle: (*conn).addOffsetsToTxn, why: "the state topic's transactional ids are the sidecars'"},
		{key: int16(kmsg.EndTxn), max: 5, at: atBoth, light: (*conn).lightEndTxn, handle: (*conn).endTxn, why: "the state topic's transactional ids are the sidecars'; a transaction whose partitions were refused is not known to the broker"},
		{key: int16(kmsg.TxnOffsetCommit), max: 6, at: atBoth, light: (*conn).lightTransaction, handle: (*conn).txnOffsetCommit, why: "the state topic's transactional ids are the sidecars'"},
		{key: int16(kmsg.DeleteRecords), max: 2, at: atBoth, handle: (*conn).deleteRecords, why: "mirror partitions are read only"},
		{key: int16(kmsg.CreateTopics), max: 7, at: atBoth, handle: (*conn).createTopics, why: "the state topic is the sidecars'; mirror.name is not set; where virtual brokers cannot be cordoned, replicas are chosen here"},
		{key: int16(kmsg.CreatePartitions), max: 3, at: atBoth, handle: (*conn).createPartitions, why: "a mirror topic grows with its source; where virtual brokers cannot be cordoned, replicas are chosen here"},
		{key: int16(kmsg.ElectLeaders), max: 2, at: atBoth, handle: (*conn).electLeaders, why: "an unclean election loses records of a mirror topic"},
		{key: int16(kmsg.WriteTxnMarkers), max: 2, at: atClient, handle: (*conn).clientTxnMarkers, why: "mirror partitions are read only"},
		{key: int16(kmsg.DeleteTopics), max: 6, at: atBoth, handle: (*conn).deleteTopics, why: "a mirror topic must be stopped first"},
		{
			key: int16(kmsg.AlterConfigs), max: 2, at: atBoth, handle: (*conn).alterConfigs,
			why: "the configs of the write lock; what replaces a whole configuration is not for mirrors",
		},
		{
			key: int16(kmsg.IncrementalAlterConfigs), max: 1, at: atBoth, handle: (*conn).incrementalAlterConfigs,
			why: "resource type 64 is a mirror; the configs of the write lock; mirror.name is not set",
		},

		// Configs that are not Kafka's.
		{
			key: int16(kmsg.DescribeConfigs), max: 4, at: atBoth, handle: (*conn).describeConfigs,
			why: "resource type 64 is a mirror; a mirror topic has mirror.name, and what the write lock hides; the home broker refuses to describe a virtual broker",
		},
		{
			key: int16(kmsg.AlterPartitionAssignments), max: 1, at: atBoth, handle: (*conn).alterPartitionAssignments,
			why: "clients move the real replicas of a mirror partition, its virtual ones stay in front",
		},
		{
			key: int16(kmsg.ListPartitionReassignments), max: 0, at: atClient, rewrite: rewriteListReassignments,
			why: "virtual replicas are hidden",
		},
		{key: int16(kmsg.AlterReplicaLogDirs), max: 2, at: atBoth, handle: (*conn).alterReplicaLogDirs, why: "replicas of a mirror partition do not move"},

		// What relaying makes senseless: the home broker would answer for itself.
		{key: int16(kmsg.ListGroups), max: 5, at: atVirtual, handle: (*conn).listGroups, why: "a virtual broker coordinates no group; who asks all brokers would be told of the home broker's twice"},
		{key: int16(kmsg.ListTransactions), max: 2, at: atVirtual, handle: (*conn).listTransactions, why: "as ListGroups"},
		{
			key: int16(kmsg.DescribeLogDirs), max: 5, at: atVirtual, handle: (*conn).describeLogDirs,
			why: "a virtual broker has no log; the home broker's would be counted twice",
		},
	}
}

// rowsFor returns the rows of a listener by API key, those of the mirror APIs too.
func rowsFor(cfg Config, deps Deps) map[int16]*row {
	here := atClient
	if cfg.Virtual {
		here = atVirtual
	}
	rows := make(map[int16]*row)
	for _, r := range table() {
		if r.at&here == 0 {
			continue
		}
		if here == atVirtual {
			r.rewrite = nil // its clients see what the brokers tell
		}
		if r.handle == nil && r.light == nil {
			r.light = lightRewrite
		}
		rows[r.key] = &r
	}
	if deps.Mirror != nil {
		for _, key := range deps.Mirror.Keys() {
			rows[key] = &row{key: key, at: atBoth, handle: (*conn).mirrorAPI, why: "served by the sidecar itself"}
		}
	}
	return rows
}

// request is a request frame in memory.
type request struct {
	header
	// raw is the frame with its length before it.
	raw []byte
	// body is the part of raw behind the header.
	body []byte
	// buf is the pooled buffer of raw, if it has one.
	buf *buffer
	// counted is what a large request has of Proxy.budget, decoded what it has of Proxy.decoding, and
	// answer how much of that its answer comes to, if it is passed on.
	counted, decoded taken
	answer           int64
}

// drop gives back the frame, which nothing refers to any more.
func (r *request) drop() {
	r.raw, r.body = nil, nil
	r.buf.release()
	r.buf = nil
	r.counted.keep(0)
}

// forward is the exchange that passes the request on as it is.
func (r *request) forward() exchange {
	ex := relayed(r.header)
	ex.send = r.raw
	return ex
}

// lightRewrite streams the request and rewrites the response.
func lightRewrite(c *conn, h header, _ int) (exchange, bool, error) {
	ex := relayed(h)
	ex.transform = c.p.rewriter(h.key, h.version)
	return ex, true, nil
}

// apiVersion is a version of an API.
type apiVersion struct{ key, version int16 }

// rewriter returns the transform that decodes a response and lets the table's row
// rewrite it; nil if there is nothing to rewrite at this listener.
func (p *Proxy) rewriter(key, version int16) func(body []byte) (kmsg.Response, error) {
	return p.rewriters[apiVersion{key, version}]
}

func (p *Proxy) makeRewriters() {
	p.rewriters = make(map[apiVersion]func(body []byte) (kmsg.Response, error))
	for key, r := range p.rows {
		for version := int16(0); r.rewrite != nil && version <= r.max; version++ {
			p.rewriters[apiVersion{key, version}] = func(body []byte) (kmsg.Response, error) {
				resp, err := decodeResponse(key, version, body)
				if err != nil {
					return nil, err
				}
				if !r.rewrite(p, resp) {
					return nil, nil
				}
				return resp, nil
			}
		}
	}
}
