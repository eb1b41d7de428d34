package availability

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/test/harness"
)

// counted waits until a metric, summed over all sidecars that run, is as wanted.
func (e *env) counted(t *testing.T, metric string, want func(sum float64) bool) {
	t.Helper()
	harness.AwaitT(t, patience, metric, func(ctx context.Context) error {
		sum := 0.0
		for _, c := range e.dst.Sidecars {
			if !c.Running() {
				continue
			}
			v, err := scrape(ctx, "http://"+c.HTTP+"/metrics", metric)
			if err != nil {
				return fmt.Errorf("sidecar %d: %w", c.Broker, err)
			}
			sum += v
		}
		if !want(sum) {
			return fmt.Errorf("the sum is %v", sum)
		}
		return nil
	})
}

func scrape(ctx context.Context, url, metric string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), " "); ok && name == metric {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", url, metric)
}

// none is what a metric of trouble shows while there is none.
func none(sum float64) bool { return sum == 0 }

// some is what it shows in trouble.
func some(sum float64) bool { return sum > 0 }

// well: the sidecars count what they lead, and nothing else, whoever of them is away.
func (e *env) well(t *testing.T) {
	t.Helper()
	partitions := 0
	for _, topic := range e.load.Topics() {
		partitions += int(topic.Partitions)
	}
	e.counted(t, "kafka_mirror_leader_count", func(sum float64) bool { return sum == float64(partitions) })
	for _, m := range []string{"under_replicated", "under_min_isr", "offline"} {
		e.counted(t, "kafka_mirror_"+m+"_partitions", none)
	}
}
