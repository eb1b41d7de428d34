package lastreplica

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// order is one way for all real replicas to die and to come back. Brokers are named by their
// place: 1 dies first.
type order struct {
	how string // killed or stopped
	// takeover: the sidecar that leads dies while all brokers are dead, and what it knew with it.
	takeover bool
	returns  [brokers]int
}

func (o order) String() string {
	also := ""
	if o.takeover {
		also = " and the leader"
	}
	return fmt.Sprintf("%s 1 2 3%s, back %s", o.how, also, strings.Trim(fmt.Sprint(o.returns), "[]"))
}

const (
	killed  = "killed"
	stopped = "stopped"
)

// orders are all orders of returning; all orders of dying are the same ones with the brokers
// renamed, which every test does by what dies.
func orders() []order {
	var out []order
	for _, how := range []string{killed, stopped} {
		for _, takeover := range []bool{false, true} {
			for _, r := range permutations() {
				out = append(out, order{how, takeover, r})
			}
		}
	}
	return out
}

func permutations() [][brokers]int {
	return [][brokers]int{{1, 2, 3}, {1, 3, 2}, {2, 1, 3}, {2, 3, 1}, {3, 1, 2}, {3, 2, 1}}
}

// chosen are the orders of the short form: an old log comes first.
func chosen() []order { return []order{{killed, true, [...]int{1, 3, 2}}} }

// withELR sets the level of eligible.leader.replicas.version. A policy refuses the write lock.
func withELR(level string) func(*stack.Config) {
	return func(c *stack.Config) {
		c.Kafka.Format = append(c.Kafka.Format, "--feature", "eligible.leader.replicas.version="+level)
		c.Kafka.ForbidConfigs = []string{"max.message.bytes"}
	}
}

// TestLastReplica: all real replicas die one after the other while the source writes on, so that
// each has a longer log than the one before; then they come back. Then the sidecars die and
// clients write around them.
func TestLastReplica(t *testing.T) {
	e := start(t, withELR("1"))
	if e.testOrders(t) {
		t.Run("rogue interval", e.testRogue)
	}
}

// TestLastReplicaWithoutELR: the same on a cluster whose controller does not remember who has all
// data.
func TestLastReplicaWithoutELR(t *testing.T) {
	if !harness.Full() {
		t.Skip("the long form only (MIRROR_FULL=1)")
	}
	start(t, withELR("0")).testOrders(t)
}

func (e *env) testOrders(t *testing.T) bool {
	some := chosen()
	if harness.Full() {
		some = orders()
	}
	deaths := permutations()
	for i, o := range some {
		// Who dies in which place is another one each time.
		dies := deaths[i%len(deaths)]
		name := fmt.Sprintf("%s (%s)", o, strings.Trim(fmt.Sprint(dies), "[]"))
		if !t.Run(name, func(t *testing.T) { e.testOrder(t, fmt.Sprintf("orders-%d", i), o, dies) }) {
			return false // what is left of it would be in the way of the next
		}
	}
	return !harness.Full() || t.Run("given up", e.testGivenUp) && t.Run("given up, nobody leads", e.testGivenUpUnled)
}

// testOrder lets the brokers die, and come back, in an order.
func (e *env) testOrder(t *testing.T, topic string, o order, dies [brokers]int) {
	src := e.flowing(t, topic)
	e.mirrored(t, topic)
	node := func(place int) *harness.Node { return e.dst.Cluster.Node(int32(dies[place-1])) }
	hw := e.allDie(t, topic, o.how, dies)
	last, err := node(brokers).ReadLog(topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d records were visible, the last broker has %d, in sync %v", hw, last.EndOffset(), e.inSync(t, topic))
	e.logged(t, topic, node(brokers).ID())
	if o.takeover {
		e.leaderDies(t, topic)
	}

	begun := time.Now()
	well := time.Duration(0)
	for i, place := range o.returns {
		n := node(place)
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.settles(t, topic, last, hw)
		// Who has all data is back when it is the last one; what it waits for then is the state, which a
		// broker alone does not take writes of.
		if i == 0 && place != brokers && len(real(e.inSync(t, topic))) == 0 {
			e.waits(t, topic, node(brokers).ID())
		}
		if well == 0 && len(real(e.inSync(t, topic))) > 0 {
			well = time.Since(begun)
			t.Logf("a real replica is in sync %v after the first return, with %v back", well.Round(100*time.Millisecond), o.returns[:i+1])
		}
	}
	e.wellAgain(t, topic)
	t.Logf("all in sync %v after the first return", time.Since(begun).Round(100*time.Millisecond))
	e.equal(t, topic, src.end())
	for _, n := range e.dst.Cluster.Brokers() {
		l, err := n.ReadLog(topic, 0)
		if err != nil {
			t.Fatal(err)
		}
		kept(t, last, l, hw)
	}
}

// allDie ends one broker after the other, and returns how many records were visible before the
// last one. In between the mirror goes on, so that who died before has an old log.
func (e *env) allDie(t *testing.T, topic, how string, dies [brokers]int) (hw int64) {
	t.Helper()
	for _, id := range dies {
		eventually(t, "the mirror goes on", func(ctx context.Context) error {
			now, err := e.visible(ctx, topic)
			if err == nil && now < hw+20 {
				err = fmt.Errorf("%d records are visible, %d before", now, hw)
			}
			if err == nil {
				hw = now
			}
			return err
		})
		n := e.dst.Cluster.Node(int32(id))
		end := n.Kill
		if how == stopped {
			end = func() error {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				return n.Stop(ctx)
			}
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		eventually(t, fmt.Sprintf("broker %d leaves the ISR", id), func(context.Context) error {
			if isr := e.inSync(t, topic); slices.Contains(isr, int32(id)) {
				return fmt.Errorf("in sync: %v", isr)
			}
			return nil
		})
	}
	return hw
}

func (e *env) inSync(t *testing.T, topic string) []int32 {
	t.Helper()
	p, err := e.partition(topic)
	if err != nil {
		t.Fatal(err)
	}
	return p.ISR
}

// logged returns when the sidecar that leads has logged which broker the partition waits for: with
// all brokers dead nobody can be asked.
func (e *env) logged(t *testing.T, topic string, broker int32) {
	t.Helper()
	eventually(t, "the leader says what it waits for", func(context.Context) error {
		p, err := e.partition(topic)
		if err != nil {
			return err
		}
		c := e.dst.Sidecar(p.Leader - stack.VirtualOffset)
		if c == nil {
			return fmt.Errorf("led by %d", p.Leader)
		}
		text, err := os.ReadFile(c.LogFile())
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "no real replica is in sync") && strings.Contains(line, "topic="+topic) && names(line, broker) {
				return nil
			}
		}
		return errors.New("not logged")
	})
}

// names tells whether a message names a broker to bring back.
func names(message string, broker int32) bool {
	return regexp.MustCompile(fmt.Sprintf(`bring back broker [^;:]*\b%d\b`, broker)).MatchString(message)
}

// waits returns when describe says that the partition waits, and for which broker.
func (e *env) waits(t *testing.T, topic string, broker int32) {
	t.Helper()
	eventually(t, "describe says what is waited for", func(ctx context.Context) error {
		d, err := e.described(ctx, topic)
		// A sidecar that was started meanwhile has to read the state first, whose leader may be
		// the same broker: it says so instead.
		if errors.Is(err, kerr.CoordinatorLoadInProgress) && names(err.Error(), broker) {
			return nil
		}
		if err != nil {
			return err
		}
		if text(d.Detail) != waiting || !names(text(d.ErrorMessage), broker) {
			return errors.New(told(d))
		}
		return nil
	})
}

// settleTime is how long it is looked what becomes of a broker that came back.
const settleTime = 3 * time.Second

// settles looks at a partition after a broker came back. Whoever gets in sync has what was visible
// when the last one died, whose log last is.
func (e *env) settles(t *testing.T, topic string, last harness.Log, hw int64) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for begun := time.Now(); time.Since(begun) < settleTime; <-tick.C {
		for _, id := range real(e.inSync(t, topic)) {
			l, err := e.dst.Cluster.Node(id).ReadLog(topic, 0)
			if err != nil {
				t.Fatal(err)
			}
			kept(t, last, l, hw)
			if t.Failed() {
				t.FailNow()
			}
		}
	}
}

// leaderDies kills the sidecar that leads, and starts it again once another one leads, or nobody.
func (e *env) leaderDies(t *testing.T, topic string) {
	t.Helper()
	p, err := e.partition(topic)
	if err != nil {
		t.Fatal(err)
	}
	c := e.dst.Sidecar(p.Leader - stack.VirtualOffset)
	if c == nil {
		t.Fatalf("%s is led by %d", topic, p.Leader)
	}
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the dead sidecar leads no more", func(context.Context) error {
		now, err := e.partition(topic)
		if err == nil && now.LeaderEpoch == p.LeaderEpoch {
			err = fmt.Errorf("led by %d", now.Leader)
		}
		return err
	})
	if err := c.Launch(t.Context()); err != nil {
		t.Fatal(err)
	}
}
