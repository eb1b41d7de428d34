package coordinator

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// keeping are the configs without which the state topic would lose what it holds with time.
func keeping() [][2]string {
	return [][2]string{{"cleanup.policy", "compact"}, {"retention.ms", "-1"}}
}

// keep makes a state topic that is there already keep what is written to it. Somebody may have
// created it before the sidecars: brokers do so for whoever asks for it around the proxies
// (auto.create.topics.enable), and then it is deleted from like any other topic.
func (s *Store) keep(ctx context.Context) error {
	has := s.img.TopicConfig(StateTopic)
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, StateTopic
	for _, kv := range keeping() {
		if has[kv[0]] != kv[1] {
			c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			c.Name, c.Value = kv[0], &kv[1]
			res.Configs = append(res.Configs, c)
		}
	}
	if len(res.Configs) == 0 {
		return nil
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = append(req.Resources, res)
	resp, err := s.ctl.Request(ctx, req)
	if err != nil {
		return fmt.Errorf("make topic %s keep the mirrors' state: %w", StateTopic, err)
	}
	answer, ok := resp.(*kmsg.IncrementalAlterConfigsResponse)
	if !ok || len(answer.Resources) != 1 {
		return fmt.Errorf("make topic %s keep the mirrors' state: unexpected answer", StateTopic)
	}
	if e := kerr.ErrorForCode(answer.Resources[0].ErrorCode); e != nil {
		return fmt.Errorf("topic %s would not keep the mirrors' state, cleanup.policy=compact and retention.ms=-1 could not be set: %w%s",
			StateTopic, e, detail(answer.Resources[0].ErrorMessage))
	}
	s.log.Warn("the state topic was there, created by somebody else: it keeps everything now", "topic", StateTopic, "partitions", s.Partitions())
	return nil
}
