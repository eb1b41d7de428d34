package coordinator

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cluster-mirroring/mirror-sidecar/batch"
	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// maxNameLength is Kafka's bound on topic names, which mirror names share.
const maxNameLength = 249

// maxTopicsPerRequest bounds one start or stop.
const maxTopicsPerRequest = 5000

// checkName refuses a name that no mirror may have.
func checkName(name string) *Error {
	switch {
	case name == "":
		return refuse(protocol.InvalidClusterMirrorName, "a mirror needs a name")
	case len(name) > maxNameLength:
		return refuse(protocol.InvalidClusterMirrorName, "mirror name %.20q… is longer than %d characters", name, maxNameLength)
	case name == "." || name == "..":
		return refuse(protocol.InvalidClusterMirrorName, "mirror name %q is not allowed", name)
	}
	for _, r := range name {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-') {
			return refuse(protocol.InvalidClusterMirrorName, "mirror name %q: allowed are letters, digits, '.', '_' and '-'", name)
		}
	}
	for _, suffix := range []string{".removed", ".stopped", ".paused"} {
		if strings.HasSuffix(name, suffix) {
			return refuse(protocol.InvalidClusterMirrorName, "mirror name %q: names may not end in %s", name, suffix)
		}
	}
	return nil
}

// internalTopic tells whether a topic is one that is never mirrored, whatever the
// patterns say (design.md §12).
func internalTopic(name string) bool {
	switch name {
	case "__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata", "__remote_log_metadata", StateTopic, "__mirror_state":
		return true
	}
	return false
}

// TopicResult is the answer for one topic.
type TopicResult struct {
	Name string
	Err  *Error
	Note string // what is to be known although there is no error
	// Skipped says that a request which only asks what would be done would leave the topic out,
	// although one of its patterns matches; Note says why.
	Skipped bool
}

// validateCreate checks everything that can be checked before anything is written, and
// asks the source for its cluster id.
func (c *Coordinator) validateCreate(ctx context.Context, name string, configs config.Properties) (sourceID string, err error) {
	if refused := checkName(name); refused != nil {
		return "", refused
	}
	cfg, err := parsed(name, configs)
	if err != nil {
		return "", err
	}
	if _, exists := c.view.Mirror(name); exists {
		return "", refuse(protocol.ClusterMirrorAlreadyExists, "mirror %s exists already", name)
	}
	if _, err := c.sealed(name, nil, configs); err != nil {
		return "", err
	}
	if err := c.checkPolicies(ctx, name, nil, configs); err != nil {
		return "", err
	}
	src, err := c.deps.Source(cfg)
	if err != nil {
		return "", refuse(kerr.InvalidConfig.Code, "mirror %s: %v", name, err)
	}
	defer src.Close()
	sourceID, err = src.ClusterID(ctx)
	if err != nil {
		return "", refuse(kerr.InvalidRequest.Code, "mirror %s: the source at %s does not answer: %v; nothing was changed", name, strings.Join(cfg.Bootstrap, ","), err)
	}
	if sourceID == c.cfg.ClusterID {
		return "", refuse(kerr.InvalidRequest.Code, "mirror %s: %s is this cluster itself (cluster id %s); bootstrap.servers must name the source", name, strings.Join(cfg.Bootstrap, ","), sourceID)
	}
	if batch.NewTagger(sourceID, c.cfg.ClusterID).Collides() {
		return "", refuse(kerr.InvalidRequest.Code, "mirror %s: the producer id tag of source cluster %s is also this cluster's; these two cannot mirror each other", name, sourceID)
	}
	for _, m := range c.view.Mirrors() {
		if m.SourceClusterID != sourceID && batch.Tag(m.SourceClusterID) == batch.Tag(sourceID) {
			return "", refuse(kerr.InvalidRequest.Code, "mirror %s: the producer id tag of source cluster %s is also that of cluster %s (mirror %s); both cannot be mirrored here", name, sourceID, m.SourceClusterID, m.Name)
		}
	}
	return sourceID, nil
}

// createMirror runs on the coordinator of the mirror's name.
func (c *Coordinator) createMirror(ctx context.Context, name string, configs config.Properties, validateOnly bool) error {
	sourceID, err := c.validateCreate(ctx, name, configs)
	if err != nil || validateOnly {
		return err
	}
	err = c.act(ctx, name, func() error {
		if _, exists := c.view.Mirror(name); exists {
			return refuse(protocol.ClusterMirrorAlreadyExists, "mirror %s exists already", name)
		}
		stored, err := c.sealed(name, nil, configs)
		if err != nil {
			return err
		}
		return c.store.Put(ctx, record{kind: kindMirror, mirror: name, value: Mirror{Name: name, SourceClusterID: sourceID, Configs: stored}})
	})
	if err != nil {
		return fmt.Errorf("create mirror %s: %w", name, err)
	}
	c.log.Info("mirror created", "mirror", name, "source", sourceID, "config", configs.Redacted())
	return nil
}

// mirror returns a mirror, or the error that there is none.
func (c *Coordinator) mirror(name string) (Mirror, error) {
	m, ok := c.view.Mirror(name)
	if !ok {
		return Mirror{}, refuse(protocol.UnknownClusterMirror, "there is no mirror %q", name)
	}
	return m, nil
}

// deleteMirror runs on the coordinator of the mirror's name.
func (c *Coordinator) deleteMirror(ctx context.Context, name string, validateOnly bool) error {
	return c.act(ctx, name, func() error {
		if _, err := c.mirror(name); err != nil {
			return err
		}
		var busy []string
		records := []record{{kind: kindMirror, mirror: name}}
		for _, t := range c.view.Topics(name) {
			if !c.stopped(t) {
				busy = append(busy, t.Name)
			}
			records = append(records, record{kind: kindTopic, topic: topicKey{name, t.Name}})
		}
		if len(busy) > 0 {
			more := ""
			if len(busy) > 10 {
				busy, more = busy[:10], ", …"
			}
			return refuse(protocol.ClusterMirrorNotEmpty, "mirror %s has topics that are not STOPPED: %s%s; stop them first", name, strings.Join(busy, ", "), more)
		}
		if validateOnly {
			return nil
		}
		// The mirror's own record goes last: until then a crash leaves a mirror to delete again.
		slices.Reverse(records)
		var states []record
		for _, k := range c.view.partitionKeys(name) {
			states = append(states, record{kind: kindState, partition: k}, record{kind: kindLineage, partition: k})
		}
		// What it has created beside topics stays, as they do, and is nobody's from now on.
		for _, k := range c.view.ownedKeys(name) {
			states = append(states, record{kind: kindOwned, owned: k})
		}
		for chunk := range slices.Chunk(append(states, records...), maxRecordsPerPut) {
			if err := c.store.PutAs(ctx, name, chunk...); err != nil {
				return fmt.Errorf("delete mirror %s: %w", name, err)
			}
		}
		c.log.Info("mirror deleted", "mirror", name)
		return nil
	})
}
