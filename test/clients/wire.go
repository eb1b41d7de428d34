package main

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// wire sends requests of every version that there is, and has every field of every response compared: what there is of
// clients that nobody here has heard of. Requests that would change something are such that brokers refuse, or only
// validate, them.
type wire struct {
	franz
	id [16]byte // of the main topic
}

// jsonOf words a message with all its fields. What is drawn by chance, or of this moment, is taken out; an address is
// written as others write it.
func jsonOf(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	text := string(data)
	for _, r := range wireChances() {
		text = r.re.ReplaceAllString(text, r.name)
	}
	return text
}

func wireChances() []chance {
	return []chance{
		{`"Host":"$1:$2"`, regexp.MustCompile(`"Host":"([0-9.]+)","Port":([0-9]+)`)},
		{`"<none>"`, regexp.MustCompile(`\[0(,0){15}\]`)},
		{`"<uuid>"`, regexp.MustCompile(`\[\d+(,\d+){15}\]`)},
		{`"$1":"<drawn>"`, regexp.MustCompile(`"(ControllerID|ProducerID|StartTimestamp|LastTimestamp|LastFetchTimestamp|LastCaughtUpTimestamp|TotalBytes|UsableBytes|Dir)":("[^"]*"|-?\d+)`)},
		{``, regexp.MustCompile(`"UnknownTags":\{\},?`)},
	}
}

func runWire(ctx context.Context, c *client, _ *world, l leg) (*transcript, error) {
	w := &wire{franz: franz{l: l, prefix: l.prefix(c)}}
	var err error
	if w.cl, err = w.client(kgo.DisableIdempotentWrite()); err != nil { // what is fetched of it is produced again
		return nil, err
	}
	defer w.cl.Close()
	w.admin = kadm.NewClient(w.cl)
	topics, err := w.admin.ListTopics(ctx, w.topic("main"))
	if err != nil {
		return nil, err
	}
	w.id = topics[w.topic("main")].ID
	for i := range 10 {
		for _, r := range []*kgo.Record{w.record("main", int32(i%2), i), w.record("group", int32(i%2), i)} {
			if err := w.cl.ProduceSync(ctx, r).FirstErr(); err != nil {
				return nil, err
			}
		}
	}
	for _, p := range []struct {
		name     string
		requests func() []kmsg.Request
	}{
		{"metadata", w.metadataRequests},
		{"produce", w.produceRequests},
		{"consume", w.consumeRequests},
		{"group", w.groupRequests},
		{"transactions", w.transactionRequests},
		{"share", w.shareRequests},
		{"topics", w.topicRequests},
		{"configs", w.configRequests},
		{"acls", w.securityRequests},
		{"cluster", w.clusterRequests},
	} {
		w.do(p.name, func() error { return w.everyVersion(ctx, p.requests()) })
	}
	return &w.transcript, nil
}

// everyVersion sends each request in each version, to broker 1.
func (w *wire) everyVersion(ctx context.Context, requests []kmsg.Request) error {
	for version := int16(0); ; version++ {
		var now []kmsg.Request
		max := kversion.Stable()
		for _, r := range requests {
			if version <= r.MaxVersion() {
				now = append(now, r)
				max.SetMaxKeyVersion(r.Key(), version)
			}
		}
		if len(now) == 0 {
			return nil
		}
		err := w.with(func(cl *kgo.Client) error {
			for _, r := range now {
				resp, err := cl.Broker(1).Request(ctx, r)
				step := fmt.Sprintf("%s v%d", kmsg.NameForKey(r.Key()), version)
				if err != nil {
					w.outcome(step, nil, err)
					continue
				}
				if resp.GetVersion() != version {
					w.see(step, fmt.Sprint("the broker wants version ", resp.GetVersion()))
					continue
				}
				w.see(step, jsonOf(resp))
			}
			return nil
		}, kgo.MaxVersions(max))
		if err != nil {
			return err
		}
	}
}
