package readonly

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Asking for the state topic does not create it.
func TestMetadata(t *testing.T) {
	for name, tc := range map[string]struct {
		topics []string // nil: null
		rest   int      // -1: the request is as it should be
	}{
		"all":          {nil, -1},
		"none":         {[]string{}, -1},
		"others":       {[]string{"a", "b"}, -1},
		"it alone":     {[]string{stateTopic}, 0},
		"it twice":     {[]string{stateTopic, "a", stateTopic}, 1},
		"among others": {[]string{"a", stateTopic, "b"}, 2},
	} {
		for version := int16(0); version <= 13; version++ {
			t.Run(fmt.Sprintf("%s v%d", name, version), func(t *testing.T) {
				req := kmsg.NewPtrMetadataRequest()
				req.Version, req.AllowAutoTopicCreation = version, true
				if tc.topics != nil {
					req.Topics = []kmsg.MetadataRequestTopic{}
				}
				for _, name := range tc.topics {
					req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{Topic: &name})
				}
				s := rules().Metadata(req)
				if (s == nil) != (tc.rest < 0) {
					t.Fatalf("split %+v", s)
				}
				if s == nil {
					return
				}
				wire := kmsg.NewPtrMetadataRequest()
				wire.Version = s.Rest.Version
				if err := wire.ReadFrom(s.Rest.AppendTo(nil)); err != nil {
					t.Fatal(err)
				}
				if len(wire.Topics) != tc.rest || wire.Topics == nil || tc.rest == 0 && wire.Version == 0 {
					t.Errorf("the broker is asked for %d topics with v%d", len(wire.Topics), wire.Version)
				}
				resp := kmsg.NewPtrMetadataResponse()
				resp.Version, resp.ControllerID = s.Rest.Version, 7
				for _, rt := range wire.Topics {
					resp.Topics = append(resp.Topics, kmsg.MetadataResponseTopic{Topic: rt.Topic})
				}
				got := kmsg.NewPtrMetadataResponse()
				got.Version = version
				if err := got.ReadFrom(s.Merge(resp).AppendTo(nil)); err != nil {
					t.Fatal(err)
				}
				if len(got.Topics) != tc.rest+1 || *got.Topics[tc.rest].Topic != stateTopic || got.Topics[tc.rest].ErrorCode != 3 {
					t.Errorf("answer %+v", got.Topics)
				}
			})
		}
	}
}
