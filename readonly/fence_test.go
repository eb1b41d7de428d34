package readonly

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A fenced topic answers with errors that producers retry, a mirror topic with its own.
func TestFence(t *testing.T) {
	r := rules()
	r.Fenced = func(topic string) (time.Duration, bool) { return 90 * time.Second, topic == "o" || topic == "m" }
	for version := int16(3); version <= 13; version++ {
		req := kmsg.NewPtrProduceRequest()
		req.Version = version
		for _, name := range []string{"o", "m", "p"} {
			rt := kmsg.NewProduceRequestTopic()
			rt.Topic, rt.TopicID = name, topicIDs[name]
			if version >= 13 {
				rt.Topic = ""
			}
			rt.Partitions = []kmsg.ProduceRequestTopicPartition{{Partition: 0}}
			req.Topics = append(req.Topics, rt)
		}
		s := r.Produce(req)
		var got []int16
		for _, rt := range s.Merge(nil).Topics {
			for _, p := range rt.Partitions {
				got = append(got, p.ErrorCode)
				if p.ErrorCode == 19 && (p.ErrorMessage == nil || !strings.Contains(*p.ErrorMessage, "1m30s")) {
					t.Errorf("message %v", p.ErrorMessage)
				}
			}
		}
		if want := []int16{19, 44}; !slices.Equal(got, want) || s.Rest == nil || len(s.Rest.Topics) != 1 {
			t.Errorf("v%d: codes %v, want %v; rest %+v", version, got, want, s.Rest)
		}
	}
	txn := kmsg.NewPtrAddPartitionsToTxnRequest()
	txn.Version = 3
	txn.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "o", Partitions: []int32{0}}, {Topic: "p", Partitions: []int32{0}}}
	out := r.AddPartitionsToTxn(txn).Merge(nil).Topics
	if out[0].Partitions[0].ErrorCode != 51 || out[1].Partitions[0].ErrorCode != 55 {
		t.Errorf("%+v", out)
	}
	// A fence holds back writes, not what an administrator does.
	if s := r.CreatePartitions(&kmsg.CreatePartitionsRequest{Topics: []kmsg.CreatePartitionsRequestTopic{{Topic: "o"}}}); s != nil {
		t.Errorf("refused %+v", s.Refused)
	}
}

func TestMirrorNameIsNotSet(t *testing.T) {
	for name, tc := range map[string]struct {
		kind   kmsg.ConfigResourceType
		topic  string
		config string
		whole  int16 // what AlterConfigs answers; 0: nothing is refused
		part   int16
	}{
		"ordinary topic": {kmsg.ConfigResourceTypeTopic, "o", "mirror.name", 42, 42},
		"mirror topic":   {kmsg.ConfigResourceTypeTopic, "m", "mirror.name", 42, 42},
		"broker":         {kmsg.ConfigResourceTypeBroker, "1", "mirror.name", 0, 0},
		"mirror":         {MirrorResource, "dr", "request.timeout.ms", 42, 0},
	} {
		t.Run(name, func(t *testing.T) {
			ac := &kmsg.AlterConfigsRequest{Resources: []kmsg.AlterConfigsRequestResource{{
				ResourceType: tc.kind, ResourceName: tc.topic, Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: "a"}, {Name: tc.config}},
			}}}
			var code int16
			if s := rules().AlterConfigs(ac); s != nil {
				out := s.Merge(nil).Resources[0]
				code = out.ErrorCode
				if out.ErrorMessage == nil || !strings.Contains(*out.ErrorMessage, tc.topic) {
					t.Errorf("message %v", out.ErrorMessage)
				}
			}
			if code != tc.whole {
				t.Errorf("AlterConfigs: code %d, want %d", code, tc.whole)
			}
			for op := range kmsg.IncrementalAlterConfigOp(4) {
				ic := &kmsg.IncrementalAlterConfigsRequest{Resources: []kmsg.IncrementalAlterConfigsRequestResource{{
					ResourceType: tc.kind, ResourceName: tc.topic, Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: tc.config, Op: op}},
				}}}
				code = 0
				if s := rules().IncrementalAlterConfigs(ic); s != nil {
					code = s.Merge(nil).Resources[0].ErrorCode
				}
				if code != tc.part {
					t.Errorf("IncrementalAlterConfigs: code %d, want %d", code, tc.part)
				}
			}
		})
	}
}

// Only the sidecars create the state topic and say what it keeps.
func TestStateTopicIsTheSidecars(t *testing.T) {
	for version := int16(0); version <= 7; version++ {
		req := kmsg.NewPtrCreateTopicsRequest()
		req.Version = version
		for _, name := range []string{"new", stateTopic, "named", "other"} {
			ct := kmsg.NewCreateTopicsRequestTopic()
			ct.Topic = name
			if name == "named" {
				ct.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "mirror.name"}}
			}
			req.Topics = append(req.Topics, ct)
		}
		r := rules()
		r.Pending = true // is no reason to refuse
		s := r.CreateTopics(req)
		if s == nil || len(s.Rest.Topics) != 2 {
			t.Fatalf("%+v", s)
		}
		resp := kmsg.NewPtrCreateTopicsResponse()
		resp.Topics = []kmsg.CreateTopicsResponseTopic{{Topic: "other", ErrorCode: 36}, {Topic: "new"}}
		var got []int16
		for _, rt := range s.Merge(resp).Topics {
			got = append(got, rt.ErrorCode)
		}
		if want := []int16{0, 44, 42, 36}; !slices.Equal(got, want) {
			t.Errorf("v%d: got %v, want %v", version, got, want)
		}
	}
	if s := rules().CreateTopics(&kmsg.CreateTopicsRequest{Topics: []kmsg.CreateTopicsRequestTopic{{Topic: "new"}}}); s != nil {
		t.Errorf("refused %+v", s.Refused)
	}
	ic := &kmsg.IncrementalAlterConfigsRequest{Resources: []kmsg.IncrementalAlterConfigsRequestResource{{
		ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: stateTopic, Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "retention.ms"}},
	}}}
	if s := rules().IncrementalAlterConfigs(ic); s == nil || s.Merge(nil).Resources[0].ErrorCode != 44 {
		t.Errorf("%+v", s)
	}
}
