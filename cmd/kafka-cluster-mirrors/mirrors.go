package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// mirrorOutcome answers create, alter and delete.
type mirrorOutcome struct {
	Mirror  string `json:"mirror"`
	Created bool   `json:"created,omitempty"`
	Altered bool   `json:"altered,omitempty"`
	Deleted bool   `json:"deleted,omitempty"`
	DryRun  bool   `json:"dryRun,omitempty"`
}

func (o *options) create(ctx context.Context, cl *kgo.Client, out io.Writer) error {
	p, err := config.ReadPropertiesFile(o.mirrorConfig)
	if err != nil {
		return err
	}
	// Most mistakes are found before anybody is asked.
	if _, err := config.ParseMirror(p); err != nil {
		return fmt.Errorf("%s: %w", o.mirrorConfig, err)
	}
	req := protocol.NewCreateClusterMirrorRequest()
	req.MirrorName, req.ValidateOnly = o.mirror, o.dryRun
	for _, k := range p.Keys() {
		c := protocol.NewMirrorConfig()
		v := p[k]
		c.Name, c.Value = k, &v
		req.Configs = append(req.Configs, c)
	}
	if _, err := ask[*protocol.CreateClusterMirrorResponse](ctx, cl, &req); err != nil {
		return err
	}
	return o.say(out, mirrorOutcome{Mirror: o.mirror, Created: !o.dryRun, DryRun: o.dryRun}, o.did("created"))
}

func (o *options) delete(ctx context.Context, cl *kgo.Client, out io.Writer) error {
	req := protocol.NewDeleteClusterMirrorRequest()
	req.MirrorName, req.ValidateOnly = o.mirror, o.dryRun
	if _, err := ask[*protocol.DeleteClusterMirrorResponse](ctx, cl, &req); err != nil {
		return err
	}
	return o.say(out, mirrorOutcome{Mirror: o.mirror, Deleted: !o.dryRun, DryRun: o.dryRun}, o.did("deleted"))
}

// did says what happened to the mirror, or would have.
func (o *options) did(verb string) string {
	if o.dryRun {
		return fmt.Sprintf("Mirror %s would be %s.", o.mirror, verb)
	}
	return fmt.Sprintf("Mirror %s %s.", o.mirror, verb)
}

type listed struct {
	Mirror     string   `json:"mirror"`
	Topics     int32    `json:"topics"`
	ClusterID  string   `json:"sourceClusterId"`
	Bootstrap  string   `json:"sourceBootstrapServer"`
	TopicNames []string `json:"topicNames"`
}

func (o *options) list(ctx context.Context, cl *kgo.Client, out io.Writer) error {
	req := protocol.NewListClusterMirrorsRequest()
	req.IncludeTopicNames = o.json
	r, err := ask[*protocol.ListClusterMirrorsResponse](ctx, cl, &req)
	if err != nil {
		return err
	}
	rows := []listed{}
	for _, m := range r.Mirrors {
		if o.mirror == "" || o.mirror == m.MirrorName {
			rows = append(rows, listed{m.MirrorName, m.TopicCount, m.SourceClusterID, m.SourceBootstrap, append([]string{}, m.TopicNames...)})
		}
	}
	if o.mirror != "" && len(rows) == 0 {
		return fmt.Errorf("there is no mirror %q", o.mirror)
	}
	if o.json {
		return writeJSON(out, rows)
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(out, "No mirrors found.")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MIRROR\tTOPICS\tSOURCE-CLUSTER-ID\tSOURCE-BOOTSTRAP-SERVER")
	for _, m := range rows {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", m.Mirror, m.Topics, dash(m.ClusterID), dash(m.Bootstrap))
	}
	return w.Flush()
}
