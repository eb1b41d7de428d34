package coordinator

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/config"
)

// TestConfigsThatMayNotBeSeen: one topic whose configs the mirror's user may not describe holds up no
// other one, and says what is missing.
func TestConfigsThatMayNotBeSeen(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	fake.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		resp := kmsg.NewPtrDescribeConfigsResponse()
		resp.Version = req.GetVersion()
		for _, asked := range req.(*kmsg.DescribeConfigsRequest).Resources {
			res := kmsg.NewDescribeConfigsResponseResource()
			res.ResourceType, res.ResourceName = asked.ResourceType, asked.ResourceName
			if asked.ResourceName == "b" {
				res.ErrorCode = kerr.TopicAuthorizationFailed.Code
			} else {
				c := kmsg.NewDescribeConfigsResponseResourceConfig()
				c.Name, c.Value, c.Source = "retention.ms", kmsg.StringPtr("5"), kmsg.ConfigSourceDynamicTopicConfig
				res.Configs = append(res.Configs, c)
			}
			resp.Resources = append(resp.Resources, res)
		}
		return resp, nil, true
	})
	src, err := KafkaSource(config.Providers{}, 1)(&config.Mirror{Bootstrap: fake.ListenAddrs(), RequestTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	topics, err := src.Topics(t.Context(), []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	if a := topics["a"]; a.Err != nil || a.Configs["retention.ms"] != "5" {
		t.Errorf("a: %+v", a)
	}
	if b := topics["b"]; b.Err == nil || !strings.Contains(b.Err.Error(), "lacks DESCRIBE_CONFIGS on topic b") {
		t.Errorf("b: %+v", b)
	}
}
