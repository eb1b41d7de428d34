package proxy

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/readonly"
)

// TestUnseenMirrorTopics: who may not see a topic is not told that it is a mirror's.
func TestUnseenMirrorTopics(t *testing.T) {
	for name, sees := range map[string]bool{"sees it": true, "does not": false} {
		t.Run(name, func(t *testing.T) {
			b := startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response {
				r, ok := req.(*kmsg.MetadataRequest)
				if !ok {
					t.Errorf("%T came to the broker", req)
					return req.ResponseKind()
				}
				resp := kmsg.NewPtrMetadataResponse()
				for _, asked := range r.Topics {
					mt := kmsg.NewMetadataResponseTopic()
					if mt.Topic = asked.Topic; !sees {
						mt.ErrorCode = errTopicAuthorization
					}
					resp.Topics = append(resp.Topics, mt)
				}
				return resp
			}))
			s := setup{view: newFakeView(mirrorPart("m", topicID(1), 0))}
			_, addr := s.start(t, b)
			c := dial(t, addr)
			code, told := errTopicAuthorization, false
			if sees {
				code, told = errPolicyViolation, true
			}
			var asked int
			for i, version := range []int16{9, 12, 13} {
				req := produceRequest(version, -1, "m", 0)
				if version >= 13 {
					req.Topics[0].Topic, req.Topics[0].TopicID = "", topicID(1)
				}
				if p := c.ask(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]; p.ErrorCode != code || (p.ErrorMessage != nil) != told {
					t.Errorf("produce v%d: %+v", version, p)
				}
				if now := len(b.requests()); i > 0 && sees && now != asked {
					t.Error("it is asked again what is known")
				} else {
					asked = now
				}
			}
			del := kmsg.NewPtrDeleteTopicsRequest()
			del.Version, del.TopicNames = 5, []string{"m"}
			if r := c.ask(del).(*kmsg.DeleteTopicsResponse).Topics[0]; r.ErrorCode != code || (r.ErrorMessage != nil) != told {
				t.Errorf("delete: %+v", r)
			}
			grow := kmsg.NewPtrCreatePartitionsRequest()
			grow.Version = 3
			grow.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "m", Count: 2}}
			if r := c.ask(grow).(*kmsg.CreatePartitionsResponse).Topics[0]; r.ErrorCode != code || (r.ErrorMessage != nil) != told {
				t.Errorf("create partitions: %+v", r)
			}
			cut := kmsg.NewPtrDeleteRecordsRequest()
			cut.Version = 2
			cut.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "m", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{}}}}
			if r := c.ask(cut).(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]; r.ErrorCode != code {
				t.Errorf("delete records: %+v", r)
			}
			replaced := kmsg.NewPtrAlterConfigsRequest()
			replaced.Version = 2
			replaced.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "m"}}
			if r := c.ask(replaced).(*kmsg.AlterConfigsResponse).Resources[0]; r.ErrorCode != code || (r.ErrorMessage != nil) != told {
				t.Errorf("alter configs: %+v", r)
			}
			altered := kmsg.NewPtrIncrementalAlterConfigsRequest()
			altered.Version = 1
			altered.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{
				ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "m",
				Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "max.message.bytes", Value: kmsg.StringPtr("1")}},
			}}
			if r := c.ask(altered).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]; r.ErrorCode != code || (r.ErrorMessage != nil) != told {
				t.Errorf("incremental alter configs: %+v", r)
			}
			moved := kmsg.NewPtrAlterReplicaLogDirsRequest()
			moved.Version = 2
			moved.Dirs = []kmsg.AlterReplicaLogDirsRequestDir{{Dir: "/d", Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: "m", Partitions: []int32{0}}}}}
			if r := c.ask(moved).(*kmsg.AlterReplicaLogDirsResponse).Topics[0].Partitions[0]; r.ErrorCode != code {
				t.Errorf("alter replica log dirs: %+v", r)
			}
			elected := kmsg.NewPtrElectLeadersRequest()
			elected.Version, elected.ElectionType = 2, 1
			elected.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "m", Partitions: []int32{0}}}
			if r := c.ask(elected).(*kmsg.ElectLeadersResponse).Topics[0].Partitions[0]; r.ErrorCode != code || (r.ErrorMessage != nil) != told {
				t.Errorf("elect leaders: %+v", r)
			}
			marked := kmsg.NewPtrWriteTxnMarkersRequest()
			marked.Version = 1
			marked.Markers = []kmsg.WriteTxnMarkersRequestMarker{{Topics: []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: "m", Partitions: []int32{0}}}}}
			if r := c.ask(marked).(*kmsg.WriteTxnMarkersResponse).Markers[0].Topics[0].Partitions[0]; r.ErrorCode != code {
				t.Errorf("write markers: %+v", r)
			}
		})
	}
}

// TestUnseenMirrorTopicsInTransactions: where read-only topics have an error of their own, it names them too.
func TestUnseenMirrorTopicsInTransactions(t *testing.T) {
	for _, seen := range []bool{true, false} {
		b := startBroker(t, answers(t, func(req kmsg.Request) kmsg.Response {
			resp := req.ResponseKind()
			if r, ok := resp.(*kmsg.MetadataResponse); ok {
				mt := kmsg.NewMetadataResponseTopic()
				if mt.Topic = kmsg.StringPtr("m"); !seen {
					mt.ErrorCode = errTopicAuthorization
				}
				r.Topics = append(r.Topics, mt)
			}
			return resp
		}))
		s := setup{view: newFakeView(mirrorPart("m", topicID(1), 0))}
		s.cfg.ReadOnlyError = readonly.ReadOnlyTopic
		_, addr := s.start(t, b)
		req := kmsg.NewPtrAddPartitionsToTxnRequest()
		req.Version, req.TransactionalID = 3, "t"
		req.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "m", Partitions: []int32{0}}}
		want := errTopicAuthorization
		if seen {
			want = int16(readonly.ReadOnlyTopic)
		}
		if p := dial(t, addr).ask(req).(*kmsg.AddPartitionsToTxnResponse).Topics[0].Partitions[0]; p.ErrorCode != want {
			t.Errorf("seen %v: %+v", seen, p)
		}
	}
}
