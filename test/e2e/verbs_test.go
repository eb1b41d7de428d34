package e2e

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// verb sends a request of the mirror APIs to the first sidecar that answers, and fails the
// test if it, or a topic of it, is refused.
func (e *env) verb(t *testing.T, req kmsg.Request) {
	t.Helper()
	eventually(t, "an answer to "+protocol.Name(req.Key()), func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		err := errors.New("no broker to ask")
		for _, b := range e.api.SeedBrokers() {
			var resp kmsg.Response
			if resp, err = b.Request(ctx, req); err == nil {
				return verbError(resp)
			}
		}
		return err
	})
}

func verbError(resp kmsg.Response) error {
	var code int16
	var message *string
	var topics []protocol.TopicResult
	switch r := resp.(type) {
	case *protocol.PauseMirrorTopicsResponse:
		code, message, topics = r.ErrorCode, r.ErrorMessage, r.Topics
	case *protocol.ResumeMirrorTopicsResponse:
		code, message, topics = r.ErrorCode, r.ErrorMessage, r.Topics
	case *protocol.RecoverMirrorTopicsResponse:
		code, message, topics = r.ErrorCode, r.ErrorMessage, r.Topics
	}
	err := protocol.ErrorForCode(code, message)
	for _, topic := range topics {
		if e := protocol.ErrorForCode(topic.ErrorCode, topic.ErrorMessage); e != nil {
			err = errors.Join(err, e)
		}
	}
	return err
}

// pause returns when all partitions of the topics are PAUSED.
func (e *env) pause(t *testing.T, mirror string, topics ...string) {
	t.Helper()
	req := protocol.NewPauseMirrorTopicsRequest()
	req.MirrorName, req.Topics = mirror, topics
	e.verb(t, &req)
	e.waitState(t, mirror, statePaused, topics...)
}

// resume returns when all partitions of the topics are MIRRORING.
func (e *env) resume(t *testing.T, mirror string, topics ...string) {
	t.Helper()
	req := protocol.NewResumeMirrorTopicsRequest()
	req.MirrorName, req.Topics = mirror, topics
	e.verb(t, &req)
	e.waitState(t, mirror, stateMirroring, topics...)
}
