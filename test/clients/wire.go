package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

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
// written as others write it; and lists of things are sorted, for brokers give them in no order.
func jsonOf(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	numbers := json.NewDecoder(bytes.NewReader(data))
	numbers.UseNumber()
	var tree any
	if err := numbers.Decode(&tree); err != nil {
		return err.Error()
	}
	return encode(plain(tree))
}

func encode(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// drawn tells what is drawn by chance, or is of this moment.
func drawn(field string) bool {
	switch field {
	case "ControllerID", "ProducerID", "StartTimestamp", "LastTimestamp", "TotalBytes", "UsableBytes", "Dir", "ProtocolMetadata", "MemberAssignment":
		return true
	}
	return false
}

func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "UnknownTags")
		if host, ok := v["Host"].(string); ok && v["Port"] != nil {
			v["Host"] = fmt.Sprint(host, ":", v["Port"])
			delete(v, "Port")
		}
		for k := range v {
			if drawn(k) {
				v[k] = "drawn"
				continue
			}
			v[k] = plain(v[k])
		}
		return v
	case []any:
		if id := uuidText(v); id != "" {
			return id
		}
		things := false
		for i := range v {
			v[i] = plain(v[i])
			_, isMap := v[i].(map[string]any)
			things = things || isMap
		}
		if things {
			slices.SortFunc(v, func(a, b any) int { return strings.Compare(unaddressed(encode(a)), unaddressed(encode(b))) })
		}
		return v
	case string: // as kadm has ids
		if len(v) == 24 && strings.HasSuffix(v, "==") {
			return "uuid"
		}
	}
	return v
}

// unaddressed takes addresses out of what is sorted: which comes first is chance.
func unaddressed(s string) string {
	return regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllString(s, "")
}

// uuidText knows a UUID, which JSON has as sixteen numbers.
func uuidText(v []any) string {
	if len(v) != 16 {
		return ""
	}
	zero := true
	for _, e := range v {
		n, ok := e.(json.Number)
		if !ok {
			return ""
		}
		zero = zero && n == "0"
	}
	if zero {
		return "none"
	}
	return "uuid"
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

// insist asks again if what went wrong is the client's own: that a connection has ended before, or that what it knows of
// brokers has just been renewed.
func insist(ask func() (kmsg.Response, error)) (resp kmsg.Response, err error) {
	for range 5 {
		if resp, err = ask(); err == nil || !kgo.IsRetryableBrokerErr(err) {
			break
		}
	}
	return resp, err
}

// everyVersion sends each request in each version, to broker 1.
func (w *wire) everyVersion(ctx context.Context, requests []kmsg.Request) error {
	for version := int16(0); ; version++ {
		var now []kmsg.Request
		max := kversion.Stable()
		for _, r := range requests {
			if m, ok := r.(*kmsg.MetadataRequest); ok && len(m.Topics) == 0 && version == 0 {
				continue // means all topics, of others, too
			}
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
				resp, err := insist(func() (kmsg.Response, error) { return cl.Broker(1).Request(ctx, r) })
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
