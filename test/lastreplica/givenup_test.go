package lastreplica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
	"github.com/cluster-mirroring/mirror-sidecar/test/stack"
)

// testGivenUp: the last broker does not come back. It was also the last one of the topics without which
// nobody can write anything down: the operator gives them up by Kafka's own means, as told, then what
// only that broker had of the mirror, which goes on with the others. When it does come back after all,
// it follows them.
func (e *env) testGivenUp(t *testing.T) {
	const topic = "given-up"
	src := e.flowing(t, topic)
	e.mirrored(t, topic)
	e.allDie(t, topic, killed, [brokers]int{1, 2, 3})
	e.leaderDies(t, topic)
	e.othersReturn(t)
	e.waits(t, topic, brokers)
	e.givesUp(t, topic)
	e.backAfterAll(t, topic, src)
}

// testGivenUpUnled: the sidecars die first, so that no virtual replica is left to lead: the last
// broker is all that the controllers would elect.
func (e *env) testGivenUpUnled(t *testing.T) {
	const topic = "given-up-unled"
	src := e.flowing(t, topic)
	e.mirrored(t, topic)
	for _, c := range e.dst.Sidecars {
		if err := c.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	for id := range int32(brokers) {
		if id > 0 {
			if err := e.dst.Cluster.Node(id).Kill(); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, fmt.Sprintf("who lives of broker %d to %d is in sync", id+1, brokers), func(context.Context) error {
			isr := e.inSync(t, topic)
			if slices.Sort(isr); len(isr) != brokers-int(id) || isr[0] != id+1 {
				return fmt.Errorf("in sync: %v", isr)
			}
			return nil
		})
	}
	if err := e.dst.Cluster.Node(brokers).Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nobody leads", func(context.Context) error {
		p, err := e.partition(topic)
		if err == nil && p.Leader >= 0 {
			err = fmt.Errorf("led by %d", p.Leader)
		}
		return err
	})
	e.othersReturn(t)
	for _, c := range e.dst.Sidecars[:brokers-1] {
		if err := c.Launch(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	e.waits(t, topic, brokers)
	p, err := e.partition(topic)
	if err != nil || p.Leader >= 0 {
		t.Fatalf("led by %d, %v", p.Leader, err)
	}
	t.Logf("nobody leads; in sync %v, eligible %v", p.ISR, p.ELR)
	e.givesUp(t, topic)
	if err := e.dst.Sidecar(brokers).Launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.backAfterAll(t, topic, src)
}

// othersReturn starts all brokers but the last.
func (e *env) othersReturn(t *testing.T) {
	t.Helper()
	for id := int32(1); id < brokers; id++ {
		if err := e.dst.Cluster.Node(id).Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func (e *env) backAfterAll(t *testing.T, topic string, src *source) {
	t.Helper()
	if err := e.dst.Cluster.Node(brokers).Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.wellAgain(t, topic)
	e.equal(t, topic, src.end())
}

// givesUp is what an operator does who will not wait for the last broker.
func (e *env) givesUp(t *testing.T, topic string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	recoverTopic := func(args ...string) error {
		out, err := e.dst.CLI(ctx, append([]string{"--recover", "--mirror", mirror, "--topics", topic}, args...)...)
		switch {
		case err == nil && len(args) == 0:
			t.Fatal("recovered without --allow-truncate")
		case err != nil:
			return fmt.Errorf("%w\n%s", err, out) // topics that are refused are in what it prints
		}
		return nil
	}
	// First what nothing can be written down without.
	var said error
	eventually(t, "recover says what comes first", func(context.Context) error {
		said = recoverTopic("--allow-truncate")
		if said == nil {
			t.Fatal("it was written down although the broker is gone that has it all")
		}
		if !names(said.Error(), brokers) || !strings.Contains(said.Error(), "__transaction_state") || !strings.Contains(said.Error(), "__cluster_mirror_state") {
			return said
		}
		return nil
	})
	t.Logf("the operator is told: %v", said)
	eventually(t, "/readyz says so too", func(ctx context.Context) error {
		body, err := readyz(ctx, e.dst.Sidecars[0])
		if err == nil && (!names(body, brokers) || !strings.Contains(body, "__transaction_state")) {
			err = errors.New(body)
		}
		return err
	})
	begun := time.Now()
	e.elect(ctx, t, said.Error())
	// Then the topic, and not by mistake.
	eventually(t, "recover names the broker", func(context.Context) error {
		err := recoverTopic()
		if !names(err.Error(), brokers) || !strings.Contains(err.Error(), "--allow-truncate") {
			return err
		}
		return nil
	})
	eventually(t, "the operator gives up", func(context.Context) error { return recoverTopic("--allow-truncate") })
	eventually(t, "the mirror goes on with two brokers", func(ctx context.Context) error {
		d, err := e.described(ctx, topic)
		if err == nil && (d.State != stateMirroring || text(d.Detail) == waiting) {
			err = errors.New(told(d))
		}
		if isr := e.inSync(t, topic); err == nil && len(real(isr)) != brokers-1 {
			err = fmt.Errorf("in sync: %v", isr)
		}
		return err
	})
	t.Logf("the mirror goes on %v after the elections", time.Since(begun).Round(100*time.Millisecond))
}

// command is an election as sidecars word it.
var command = regexp.MustCompile(`(for p in [0-9 ]+; do )?kafka-leader-election\.sh [^;\n]+(; done)?`)

// elect runs the commands that a message has, as they are.
func (e *env) elect(ctx context.Context, t *testing.T, message string) {
	t.Helper()
	in, err := harness.Install(ctx, harness.DefaultVersion)
	if err != nil {
		t.Fatal(err)
	}
	tools := t.TempDir()
	if err := in.WriteTools(tools, map[string]string{"kafka-leader-election.sh": "org.apache.kafka.tools.LeaderElectionCommand"}); err != nil {
		t.Fatal(err)
	}
	commands := command.FindAllString(message, -1)
	if len(commands) != 2 {
		t.Fatalf("%d commands in: %s", len(commands), message)
	}
	for _, c := range commands {
		eventually(t, c, func(ctx context.Context) error {
			cmd := exec.CommandContext(ctx, "bash", "-euc", c)
			cmd.Env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			t.Logf("%s: %s", c, out)
			return nil
		})
	}
}

func readyz(ctx context.Context, c *stack.Sidecar) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.HTTP+"/readyz", http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return string(body), err
}
