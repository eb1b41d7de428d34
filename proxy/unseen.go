package proxy

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/readonly"
)

// A refusal says that a topic is a mirror's, and which mirror's. Who may not even see a topic is not
// told that it exists: the broker, which would have refused him, is asked before that is said.

// seenTopics bounds what a connection remembers of them.
const seenTopics = 1000

// hide lets rules refuse topics that the caller may not see as the broker would. It tells whether there
// are any, so that the rules have to decide anew.
func (c *conn) hide(r *request, rules *readonly.Rules, refused []readonly.Refused) (some bool, err error) {
	var ask []string
	for _, f := range refused {
		if f.Mirror != "" && f.Topic != "" && !slices.Contains(ask, f.Topic) && !time.Now().Before(c.seen[f.Topic]) {
			ask = append(ask, f.Topic)
		}
	}
	if len(ask) == 0 {
		return false, nil
	}
	hidden := make(map[string]bool, len(ask))
	err = c.consult(r, func(ctx context.Context, who Caller) error {
		req := kmsg.NewPtrMetadataRequest()
		req.Version = 12
		for _, name := range ask {
			t := kmsg.NewMetadataRequestTopic()
			t.Topic = kmsg.StringPtr(name)
			req.Topics = append(req.Topics, t)
		}
		got, err := who.Request(ctx, req)
		if err != nil {
			return fmt.Errorf("ask whether the caller may see the topics that are refused: %w", err)
		}
		for _, t := range got.(*kmsg.MetadataResponse).Topics {
			if t.Topic != nil && t.ErrorCode == errTopicAuthorization {
				hidden[*t.Topic] = true
			}
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	if c.seen == nil || len(c.seen)+len(ask) > seenTopics {
		c.seen = make(map[string]time.Time, len(ask))
	}
	for _, name := range ask {
		if !hidden[name] {
			c.seen[name] = time.Now().Add(authorityLasts)
		}
	}
	if len(hidden) == 0 {
		return false, nil
	}
	rules.Hidden = func(topic string) bool { return hidden[topic] }
	return true, nil
}
