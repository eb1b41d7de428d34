package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/plugins"
	"github.com/cluster-mirroring/mirror-sidecar/plugins/policyv1"
	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// notes is what the plugin house writes down of the events that it is told of: a file for each mirror, in
// the folder of its key "notes". There, a file "deaf" makes it refuse, and "hang" makes it hang.
const notes = "notes"

// note is one event, and who took it.
type note struct {
	Topic, From, To string
	Partition       int32
	GivenUp         int64
	PID             int
}

// noteDown is the policy.
func noteDown(ctx context.Context, r *policyv1.NotifyRequest) (*policyv1.NotifyResponse, error) {
	dir := r.GetRound().GetPluginConfig()[notes]
	mirror := filepath.Join(dir, r.GetRound().GetMirror())
	if _, err := os.Stat(mirror + ".deaf"); err == nil {
		return nil, errors.New("it hears nothing")
	}
	if _, err := os.Stat(mirror + ".hang"); err == nil {
		<-ctx.Done() // for as long as the sidecar waits
		select {}
	}
	f, err := os.OpenFile(mirror, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for _, e := range r.GetEvents() {
		line, err := json.Marshal(note{
			Topic: e.GetTopic(), From: e.GetFromState(), To: e.GetToState(), Partition: e.GetPartition(), GivenUp: r.GetGivenUp(), PID: os.Getpid(),
		})
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(append(line, '\n')); err != nil {
			return nil, err
		}
	}
	return &policyv1.NotifyResponse{}, nil
}

// eventFunc is a sink of whole batches.
type eventFunc func(ctx context.Context, r *policyv1.NotifyRequest) (*policyv1.NotifyResponse, error)

// Notify implements plugins.EventSink.
func (f eventFunc) Notify(ctx context.Context, r *policyv1.NotifyRequest) (*policyv1.NotifyResponse, error) {
	return f(ctx, r)
}

var _ plugins.EventSink = eventFunc(nil)

// noted returns what was told of a mirror.
func (e *env) noted(mirror string) ([]note, error) {
	text, err := os.ReadFile(filepath.Join(e.notes(), mirror))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var out []note
	for line := range strings.Lines(string(text)) {
		var n note
		if err := json.Unmarshal([]byte(line), &n); err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
		out = append(out, n)
	}
	return out, nil
}

func (e *env) notes() string { return filepath.Dir(e.mode) }

// told returns what was told of a partition, when these states are among it in this order: on a slow
// machine something may come in between.
func (e *env) told(t *testing.T, mirror, topic string, partition int32, want ...string) []note {
	t.Helper()
	var of []note
	harness.AwaitT(t, patience, fmt.Sprintf("%s-%d is told to be %v", topic, partition, want), func(context.Context) error {
		all, err := e.noted(mirror)
		if err != nil {
			return err
		}
		of = slices.DeleteFunc(all, func(n note) bool { return n.Topic != topic || n.Partition != partition })
		left := want
		for _, n := range of {
			if len(left) > 0 && n.To == left[0] {
				left = left[1:]
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("of %v, %v is not told yet", want, left)
		}
		return nil
	})
	return of
}

// TestEventsAreTold tells a plugin what happens to partitions, while it is well, deaf, hanging and killed; and
// nothing else waits for it.
func TestEventsAreTold(t *testing.T) {
	e := start(t)
	const name, topic = "events", "events.orders"
	e.sourceTopic(t, topic, 2, 10)
	e.mirror(t, name, map[string]string{"mirror.policy.events": house})
	e.cli(t, "--start", "--mirror", name, "--topics", topic, "--wait")
	for p := range int32(2) {
		of := e.told(t, name, topic, p, "MIRRORING")
		for i, n := range of[1:] {
			if n.To != of[i].To && n.From != of[i].To {
				t.Errorf("%s-%d: %s from %s follows %s", topic, p, n.To, n.From, of[i].To)
			}
		}
	}

	// What it does not take is told again, in order.
	deaf := filepath.Join(e.notes(), name+".deaf")
	flag(t, deaf)
	e.cli(t, "--pause", "--mirror", name, "--topics", topic, "--wait")
	e.cli(t, "--resume", "--mirror", name, "--topics", topic, "--wait")
	e.says(t, []string{"--describe", "--policies", "--mirror", name}, house, "it hears nothing")
	if err := os.Remove(deaf); err != nil {
		t.Fatal(err)
	}
	for p := range int32(2) {
		e.told(t, name, topic, p, "MIRRORING", "PAUSING", "PAUSED", "MIRRORING")
	}

	if harness.Full() {
		e.killedAndHanging(t, name, topic)
	}

	e.cli(t, "--stop", "--mirror", name, "--topics", topic, "--wait")
	for p := range int32(2) {
		e.told(t, name, topic, p, "STOPPING", "STOPPED")
	}
}

// killedAndHanging goes on where TestEventsAreTold is, with a plugin that is killed, and one that hangs.
func (e *env) killedAndHanging(t *testing.T, name, topic string) {
	t.Helper()
	// A process that is gone is not missed.
	of := e.told(t, name, topic, 0, "MIRRORING")
	last := of[len(of)-1].PID
	if err := syscall.Kill(last, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// Nor is one that hangs; the mirror goes on meanwhile.
	hang := filepath.Join(e.notes(), name+".hang")
	flag(t, hang)
	e.cli(t, "--pause", "--mirror", name, "--topics", topic, "--wait")
	e.cli(t, "--resume", "--mirror", name, "--topics", topic, "--wait")
	e.write(t, topic, 0, 10)
	e.mirrored(t, topic)
	if err := os.Remove(hang); err != nil {
		t.Fatal(err)
	}
	of = e.told(t, name, topic, 0, "MIRRORING", "PAUSING", "PAUSED", "MIRRORING", "PAUSING", "PAUSED", "MIRRORING")
	if of[len(of)-1].PID == last {
		t.Errorf("process %d was killed, and goes on", last)
	}
}

func flag(t *testing.T, file string) {
	t.Helper()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
