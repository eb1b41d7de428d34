package readonly

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/ids"
)

const stateTopic = "__cluster_mirror_state"

var topicIDs = map[string]ids.UUID{"m": {1}, "n": {2}, "o": {3}, stateTopic: {4}}

// lookup: partitions 0 and 1 of topic m belong to mirror dr, topic n to one whose name is
// not known.
func lookup(t Topic, partition int32) (string, bool) {
	name := t.Name
	if name == "" {
		name, _ = topicName(t.ID)
	}
	switch name {
	case "m":
		return "dr", partition <= 1
	case "n":
		return "", true
	}
	return "", false
}

func topicName(id ids.UUID) (string, bool) {
	for name, other := range topicIDs {
		if id == other {
			return name, true
		}
	}
	return "", false
}

func rules() *Rules {
	return &Rules{Lookup: lookup, TopicName: topicName, StateTopic: stateTopic}
}

type asked struct {
	topic      string
	partitions []int32
}

func TestProduce(t *testing.T) {
	type result struct {
		topic     string
		partition int32
		code      int16
	}
	for name, tc := range map[string]struct {
		change func(*Rules)
		ask    []asked
		want   []result
		rest   []asked
	}{
		"nothing refused": {nil, []asked{{"o", []int32{0, 1}}}, nil, nil},
		"all refused":     {nil, []asked{{"m", []int32{0, 1}}}, []result{{"m", 0, 44}, {"m", 1, 44}}, nil},
		"by partition": {
			nil,
			[]asked{{"m", []int32{2, 1, 3, 0}}},
			[]result{{"m", 2, 0}, {"m", 1, 44}, {"m", 3, 0}, {"m", 0, 44}},
			[]asked{{"m", []int32{2, 3}}},
		},
		"by topic, in order": {
			nil,
			[]asked{{"o", []int32{5}}, {"n", []int32{7}}, {"o", []int32{6}}, {stateTopic, []int32{0}}},
			[]result{{"o", 5, 0}, {"n", 7, 44}, {"o", 6, 0}, {stateTopic, 0, 44}},
			[]asked{{"o", []int32{5}}, {"o", []int32{6}}},
		},
		"named twice": {
			nil,
			[]asked{{"o", []int32{5, 5}}, {"m", []int32{0}}},
			[]result{{"o", 5, 0}, {"o", 5, 0}, {"m", 0, 44}},
			[]asked{{"o", []int32{5, 5}}},
		},
		"KIP-1279's error": {
			func(r *Rules) { r.Code = ReadOnlyTopic },
			[]asked{{"m", []int32{0}}, {stateTopic, []int32{0}}},
			[]result{{"m", 0, 12834}, {stateTopic, 0, 44}},
			nil,
		},
		"not known yet": {
			func(r *Rules) { r.Pending = true },
			[]asked{{"m", []int32{0}}, {"o", []int32{0}}},
			[]result{{"m", 0, 6}, {"o", 0, 6}},
			nil,
		},
	} {
		for version := int16(0); version <= 13; version++ {
			t.Run(fmt.Sprintf("%s v%d", name, version), func(t *testing.T) {
				r := rules()
				if tc.change != nil {
					tc.change(r)
				}
				req := kmsg.NewPtrProduceRequest()
				req.Version = version
				req.TransactionID = kmsg.StringPtr("tx")
				for _, a := range tc.ask {
					rt := kmsg.NewProduceRequestTopic()
					if version >= 13 {
						rt.TopicID = topicIDs[a.topic]
					} else {
						rt.Topic = a.topic
					}
					for _, p := range a.partitions {
						rp := kmsg.NewProduceRequestTopicPartition()
						rp.Partition, rp.Records = p, []byte(a.topic)
						rt.Partitions = append(rt.Partitions, rp)
					}
					req.Topics = append(req.Topics, rt)
				}
				name := func(n string, id ids.UUID) string {
					if version >= 13 {
						n, _ = topicName(id)
					}
					return n
				}
				s := r.Produce(req)
				if tc.want == nil {
					if s != nil {
						t.Fatalf("refused %+v", s.Refused)
					}
					return
				}
				if s == nil {
					t.Fatal("nothing refused")
				}
				// The broker answers in another order, and with fields of its own.
				var resp *kmsg.ProduceResponse
				if s.Rest != nil {
					if *s.Rest.TransactionID != "tx" || s.Rest.Version != version {
						t.Errorf("rest %+v", s.Rest)
					}
					resp = kmsg.NewPtrProduceResponse()
					resp.ThrottleMillis = 9
					var rest []asked
					for _, rt := range s.Rest.Topics {
						a := asked{topic: name(rt.Topic, rt.TopicID)}
						at := kmsg.NewProduceResponseTopic()
						at.Topic, at.TopicID = rt.Topic, rt.TopicID
						for _, p := range rt.Partitions {
							a.partitions = append(a.partitions, p.Partition)
							ap := kmsg.NewProduceResponseTopicPartition()
							ap.Partition, ap.BaseOffset = p.Partition, 1000+int64(p.Partition)
							at.Partitions = slices.Insert(at.Partitions, 0, ap)
						}
						rest = append(rest, a)
						resp.Topics = slices.Insert(resp.Topics, 0, at)
					}
					if !slices.EqualFunc(rest, tc.rest, func(a, b asked) bool { return a.topic == b.topic && slices.Equal(a.partitions, b.partitions) }) {
						t.Errorf("rest %v, want %v", rest, tc.rest)
					}
				} else if tc.rest != nil {
					t.Errorf("no rest, want %v", tc.rest)
				}
				out := s.Merge(resp)
				// What goes over the wire is what counts.
				wire := kmsg.NewPtrProduceResponse()
				wire.Version = version
				if err := wire.ReadFrom(out.AppendTo(nil)); err != nil {
					t.Fatal(err)
				}
				if resp != nil && version >= 1 && wire.ThrottleMillis != 9 {
					t.Errorf("throttle %d", wire.ThrottleMillis)
				}
				var got []result
				for _, rt := range wire.Topics {
					for _, p := range rt.Partitions {
						topic := name(rt.Topic, rt.TopicID)
						got = append(got, result{topic, p.Partition, p.ErrorCode})
						switch {
						case p.ErrorCode == 0 && p.BaseOffset != 1000+int64(p.Partition):
							t.Errorf("%s-%d: offset %d", topic, p.Partition, p.BaseOffset)
						case p.ErrorCode != 0 && version >= 8 && p.ErrorMessage == nil:
							t.Errorf("%s-%d: no message", topic, p.Partition)
						case p.ErrorCode != 0 && topic == "m" && version >= 8 && !r.Pending:
							if want := "kafka-cluster-mirrors --stop --mirror dr --topics m"; !strings.Contains(*p.ErrorMessage, want) {
								t.Errorf("message %q lacks %q", *p.ErrorMessage, want)
							}
						}
						if len(p.ErrorRecords) != 0 {
							t.Error("records at fault")
						}
					}
				}
				if !slices.Equal(got, tc.want) {
					t.Errorf("got %v, want %v", got, tc.want)
				}
			})
		}
	}
}

func TestAddPartitionsToTxn(t *testing.T) {
	topics := func(names ...string) (out []kmsg.AddPartitionsToTxnRequestTopic) {
		for _, n := range names {
			out = append(out, kmsg.AddPartitionsToTxnRequestTopic{Topic: n, Partitions: []int32{0, 2}})
		}
		return out
	}
	for name, tc := range map[string]struct {
		change func(*Rules)
		topics []string
		want   []int16 // nil: nothing refused
	}{
		"ordinary":      {nil, []string{"o"}, nil},
		"mirror":        {nil, []string{"m"}, []int16{29, 55}},
		"mixed":         {nil, []string{"o", "m"}, []int16{55, 55, 29, 55}},
		"other error":   {func(r *Rules) { r.Code = ReadOnlyTopic }, []string{"m", "o"}, []int16{12834, 55, 55, 55}},
		"state":         {nil, []string{stateTopic}, []int16{29, 29}},
		"not known yet": {func(r *Rules) { r.Pending = true }, []string{"o"}, []int16{51, 51}},
	} {
		t.Run(name, func(t *testing.T) {
			r := rules()
			if tc.change != nil {
				tc.change(r)
			}
			for version := int16(0); version <= 3; version++ {
				req := kmsg.NewPtrAddPartitionsToTxnRequest()
				req.Version = version
				req.Topics = topics(tc.topics...)
				s := r.AddPartitionsToTxn(req)
				if tc.want == nil {
					if s != nil {
						t.Fatalf("refused %+v", s.Refused)
					}
					continue
				}
				if s.Rest != nil {
					t.Errorf("rest %+v", s.Rest)
				}
				var got []int16
				for _, rt := range s.Merge(nil).Topics {
					for _, p := range rt.Partitions {
						got = append(got, p.ErrorCode)
					}
				}
				if !slices.Equal(got, tc.want) {
					t.Errorf("v%d: got %v, want %v", version, got, tc.want)
				}
			}
		})
	}
	t.Run("batched", func(t *testing.T) {
		for version := int16(4); version <= 5; version++ {
			req := kmsg.NewPtrAddPartitionsToTxnRequest()
			req.Version = version
			for id, topic := range []string{"o", "m", "o"} {
				tx := kmsg.NewAddPartitionsToTxnRequestTransaction()
				tx.TransactionalID = fmt.Sprint("tx", id)
				tx.Topics = []kmsg.AddPartitionsToTxnRequestTransactionTopic{{Topic: topic, Partitions: []int32{0}}, {Topic: "o", Partitions: []int32{1}}}
				req.Transactions = append(req.Transactions, tx)
			}
			s := rules().AddPartitionsToTxn(req)
			if len(s.Rest.Transactions) != 2 {
				t.Fatalf("rest %+v", s.Rest)
			}
			resp := kmsg.NewPtrAddPartitionsToTxnResponse()
			for _, id := range []string{"tx2", "tx0"} { // another order
				resp.Transactions = append(resp.Transactions, kmsg.AddPartitionsToTxnResponseTransaction{TransactionalID: id})
			}
			out := s.Merge(resp)
			var got []string
			for _, tx := range out.Transactions {
				got = append(got, tx.TransactionalID)
			}
			if !slices.Equal(got, []string{"tx0", "tx1", "tx2"}) {
				t.Errorf("order %v", got)
			}
			refused := out.Transactions[1].Topics
			if refused[0].Partitions[0].ErrorCode != 29 || refused[1].Partitions[0].ErrorCode != 55 {
				t.Errorf("%+v", refused)
			}
		}
	})
}

func TestDeleteRecords(t *testing.T) {
	for version := int16(0); version <= 2; version++ {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.Version = version
		for _, topic := range []string{"o", "m", stateTopic} {
			req.Topics = append(req.Topics, kmsg.DeleteRecordsRequestTopic{
				Topic: topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: 2}, {Partition: 1}},
			})
		}
		s := rules().DeleteRecords(req)
		if len(s.Rest.Topics) != 2 || len(s.Rest.Topics[1].Partitions) != 1 {
			t.Fatalf("rest %+v", s.Rest)
		}
		resp := kmsg.NewPtrDeleteRecordsResponse()
		for _, rt := range s.Rest.Topics {
			at := kmsg.NewDeleteRecordsResponseTopic()
			at.Topic = rt.Topic
			for _, p := range rt.Partitions {
				at.Partitions = slices.Insert(at.Partitions, 0, kmsg.DeleteRecordsResponseTopicPartition{Partition: p.Partition, LowWatermark: 77})
			}
			resp.Topics = slices.Insert(resp.Topics, 0, at)
		}
		var got []string
		for _, rt := range s.Merge(resp).Topics {
			for _, p := range rt.Partitions {
				got = append(got, fmt.Sprintf("%s-%d %d %d", rt.Topic, p.Partition, p.LowWatermark, p.ErrorCode))
			}
		}
		want := []string{"o-2 77 0", "o-1 77 0", "m-2 77 0", "m-1 -1 44", stateTopic + "-2 -1 44", stateTopic + "-1 -1 44"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if s := rules().DeleteRecords(&kmsg.DeleteRecordsRequest{Topics: []kmsg.DeleteRecordsRequestTopic{{Topic: "o"}}}); s != nil {
		t.Error("refused")
	}
}

func TestAlterReplicaLogDirs(t *testing.T) {
	req := kmsg.NewPtrAlterReplicaLogDirsRequest()
	for _, dir := range []string{"/a", "/b"} {
		req.Dirs = append(req.Dirs, kmsg.AlterReplicaLogDirsRequestDir{Dir: dir, Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{
			{Topic: "m", Partitions: []int32{0, 2}}, {Topic: "n", Partitions: []int32{0}},
		}})
	}
	s := rules().AlterReplicaLogDirs(req)
	if len(s.Rest.Dirs) != 2 || len(s.Rest.Dirs[0].Topics) != 1 || !slices.Equal(s.Rest.Dirs[0].Topics[0].Partitions, []int32{2}) {
		t.Fatalf("rest %+v", s.Rest)
	}
	resp := kmsg.NewPtrAlterReplicaLogDirsResponse()
	resp.Topics = []kmsg.AlterReplicaLogDirsResponseTopic{{Topic: "m", Partitions: []kmsg.AlterReplicaLogDirsResponseTopicPartition{{Partition: 2}}}}
	out := s.Merge(resp)
	if len(out.Topics) != 2 || len(out.Topics[0].Partitions) != 3 || out.Topics[0].Partitions[1].ErrorCode != 44 || len(out.Topics[1].Partitions) != 2 {
		t.Errorf("%+v", out.Topics)
	}
}

func TestCreatePartitions(t *testing.T) {
	for version := int16(0); version <= 3; version++ {
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.Version = version
		for _, topic := range []string{"p", "m", "o"} {
			req.Topics = append(req.Topics, kmsg.CreatePartitionsRequestTopic{Topic: topic, Count: 9})
		}
		s := rules().CreatePartitions(req)
		if len(s.Rest.Topics) != 2 {
			t.Fatalf("rest %+v", s.Rest)
		}
		resp := kmsg.NewPtrCreatePartitionsResponse()
		resp.Topics = []kmsg.CreatePartitionsResponseTopic{{Topic: "o"}, {Topic: "p", ErrorCode: 3}}
		var got []string
		for _, rt := range s.Merge(resp).Topics {
			got = append(got, fmt.Sprint(rt.Topic, rt.ErrorCode))
		}
		if !slices.Equal(got, []string{"p3", "m44", "o0"}) {
			t.Errorf("got %q", got)
		}
	}
	if code := (&Rules{Pending: true}).CreatePartitions(&kmsg.CreatePartitionsRequest{Topics: []kmsg.CreatePartitionsRequestTopic{{Topic: "o"}}}).Merge(nil).Topics[0].ErrorCode; code != 41 {
		t.Errorf("error %d while it is not known", code)
	}
}

func TestDeleteTopics(t *testing.T) {
	for version := int16(0); version <= 6; version++ {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.Version = version
		if version < 6 {
			req.TopicNames = []string{"p", "m", stateTopic, "o"}
		} else {
			req.Topics = []kmsg.DeleteTopicsRequestTopic{
				{Topic: kmsg.StringPtr("p")}, {Topic: kmsg.StringPtr("m")}, {TopicID: topicIDs[stateTopic]}, {TopicID: topicIDs["o"]},
			}
		}
		s := rules().DeleteTopics(req)
		if len(s.Rest.TopicNames)+len(s.Rest.Topics) != 2 || len(s.Refused) != 2 {
			t.Fatalf("rest %+v", s.Rest)
		}
		resp := kmsg.NewPtrDeleteTopicsResponse()
		resp.Topics = []kmsg.DeleteTopicsResponseTopic{
			{Topic: kmsg.StringPtr("o"), TopicID: topicIDs["o"], ErrorCode: 1},
			{Topic: kmsg.StringPtr("p"), ErrorCode: 2},
		}
		var got []int16
		for _, rt := range s.Merge(resp).Topics {
			got = append(got, rt.ErrorCode)
		}
		if !slices.Equal(got, []int16{2, 44, 44, 1}) {
			t.Errorf("v%d: got %v", version, got)
		}
	}
}

func TestConfigs(t *testing.T) {
	topic := kmsg.ConfigResourceTypeTopic
	for name, tc := range map[string]struct {
		kind    kmsg.ConfigResourceType
		topic   string
		configs []string
		whole   bool // AlterConfigs refuses it
		part    bool // IncrementalAlterConfigs refuses it
	}{
		"ordinary":     {topic, "o", []string{"max.message.bytes"}, false, false},
		"harmless":     {topic, "m", []string{"retention.ms"}, true, false},
		"size":         {topic, "m", []string{"retention.ms", "max.message.bytes"}, true, true},
		"isr":          {topic, "m", []string{"min.insync.replicas"}, true, true},
		"unclean":      {topic, "m", []string{"unclean.leader.election.enable"}, true, true},
		"tiered":       {topic, "m", []string{"remote.storage.enable"}, true, true},
		"broker":       {kmsg.ConfigResourceTypeBroker, "m", []string{"min.insync.replicas"}, false, false},
		"unknown name": {topic, "n", []string{"min.insync.replicas"}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			ac := kmsg.NewPtrAlterConfigsRequest()
			ic := kmsg.NewPtrIncrementalAlterConfigsRequest()
			ar := kmsg.AlterConfigsRequestResource{ResourceType: tc.kind, ResourceName: tc.topic}
			ir := kmsg.IncrementalAlterConfigsRequestResource{ResourceType: tc.kind, ResourceName: tc.topic}
			for _, c := range tc.configs {
				ar.Configs = append(ar.Configs, kmsg.AlterConfigsRequestResourceConfig{Name: c})
				ir.Configs = append(ir.Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: c})
			}
			other := kmsg.AlterConfigsRequestResource{ResourceType: topic, ResourceName: "other"}
			iother := kmsg.IncrementalAlterConfigsRequestResource{ResourceType: topic, ResourceName: "other"}
			ac.Resources = []kmsg.AlterConfigsRequestResource{ar, other}
			ic.Resources = []kmsg.IncrementalAlterConfigsRequestResource{iother, ir}

			as := rules().AlterConfigs(ac)
			if (as != nil) != tc.whole {
				t.Fatalf("AlterConfigs: %+v", as)
			}
			if as != nil {
				out := as.Merge(&kmsg.AlterConfigsResponse{Resources: []kmsg.AlterConfigsResponseResource{{ResourceType: topic, ResourceName: "other"}}})
				if len(as.Rest.Resources) != 1 || out.Resources[0].ErrorCode != 44 || out.Resources[0].ErrorMessage == nil || out.Resources[1].ErrorCode != 0 {
					t.Errorf("%+v", out)
				}
			}
			is := rules().IncrementalAlterConfigs(ic)
			if (is != nil) != tc.part {
				t.Fatalf("IncrementalAlterConfigs: %+v", is)
			}
			if is != nil {
				out := is.Merge(&kmsg.IncrementalAlterConfigsResponse{Resources: []kmsg.IncrementalAlterConfigsResponseResource{{ResourceType: topic, ResourceName: "other"}}})
				if len(is.Rest.Resources) != 1 || out.Resources[1].ErrorCode != 44 || out.Resources[0].ErrorCode != 0 {
					t.Errorf("%+v", out)
				}
				if tc.topic == "m" && !strings.Contains(*out.Resources[1].ErrorMessage, "--mirror dr") {
					t.Errorf("message %q", *out.Resources[1].ErrorMessage)
				}
			}
		})
	}
}

func TestParseErrorCode(t *testing.T) {
	for s, want := range map[string]ErrorCode{"": PolicyViolation, "policy-violation": PolicyViolation, "read-only-topic": ReadOnlyTopic, "nonsense": 0} {
		got, err := ParseErrorCode(s)
		if got != want || (err != nil) != (want == 0) {
			t.Errorf("%q: %d, %v", s, got, err)
		}
	}
}
