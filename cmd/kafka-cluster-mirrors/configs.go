package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/config"
	"github.com/cluster-mirroring/mirror-sidecar/protocol"
)

// mirrorResource is the type of a mirror as a config resource (contract.md §1).
const mirrorResource kmsg.ConfigResourceType = 64

// changes collects what --alter shall do.
func (o *options) changes() ([]kmsg.IncrementalAlterConfigsRequestResourceConfig, error) {
	var out []kmsg.IncrementalAlterConfigsRequestResourceConfig
	seen := map[string]bool{}
	add := func(op kmsg.IncrementalAlterConfigOp, key string, value *string) error {
		if seen[key] {
			return usagef("%s is changed twice", key)
		}
		seen[key] = true
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Op, c.Value = key, op, value
		out = append(out, c)
		return nil
	}
	for _, kv := range o.addConfig {
		key, value, ok := strings.Cut(kv, "=")
		if key = strings.TrimSpace(key); !ok || key == "" {
			return nil, usagef("--add-config %q is not KEY=VALUE", kv)
		}
		if err := add(kmsg.IncrementalAlterConfigOpSet, key, &value); err != nil {
			return nil, err
		}
	}
	if o.addConfigFile != "" {
		p, err := config.ReadPropertiesFile(o.addConfigFile)
		if err != nil {
			return nil, err
		}
		for _, key := range p.Keys() {
			value := p[key]
			if err := add(kmsg.IncrementalAlterConfigOpSet, key, &value); err != nil {
				return nil, err
			}
		}
	}
	for _, key := range o.deleteConfig {
		if err := add(kmsg.IncrementalAlterConfigOpDelete, strings.TrimSpace(key), nil); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (o *options) alter(ctx context.Context, cl *kgo.Client, out io.Writer) error {
	changes, err := o.changes()
	if err != nil {
		return err
	}
	if len(changes) == 0 {
		return fmt.Errorf("%s holds nothing to change", o.addConfigFile)
	}
	if err := o.alterConfigs(ctx, cl, changes); err != nil {
		return err
	}
	if err := o.say(out, mirrorOutcome{Mirror: o.mirror, Altered: !o.dryRun, DryRun: o.dryRun}, o.did("altered")); err != nil || !o.dryRun || o.json {
		return err
	}
	return o.foresee(ctx, cl, out, changes)
}

// alterConfigs changes a mirror's configuration, or only asks whether it could be changed.
func (o *options) alterConfigs(ctx context.Context, cl *kgo.Client, changes []kmsg.IncrementalAlterConfigsRequestResourceConfig) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.ValidateOnly = o.dryRun
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.Configs = mirrorResource, o.mirror, changes
	req.Resources = append(req.Resources, r)
	resp, err := ask[*kmsg.IncrementalAlterConfigsResponse](ctx, cl, req)
	if err != nil {
		return err
	}
	if len(resp.Resources) != 1 {
		return fmt.Errorf("the answer does not speak of mirror %s", o.mirror)
	}
	return o.resourceError(resp.Resources[0].ErrorCode, resp.Resources[0].ErrorMessage)
}

// resourceError names the mirror where the answer does not, and knows how a broker answers
// that is not behind a sidecar.
func (o *options) resourceError(code int16, message *string) error {
	err := protocol.ErrorForCode(code, message)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.InvalidRequest) && strings.Contains(deref(message), "resource type"):
		return fmt.Errorf("the address answers, but is not a mirror sidecar's (it does not know mirrors as config resources): %w", err)
	case strings.Contains(err.Error(), o.mirror):
		return err
	}
	return fmt.Errorf("mirror %s: %w", o.mirror, err)
}

type configRow struct {
	Name      string  `json:"name"`
	Value     *string `json:"value"`
	Set       bool    `json:"set"`
	Sensitive bool    `json:"sensitive"`
	ReadOnly  bool    `json:"readOnly"`
	Doc       string  `json:"documentation,omitempty"`
}

// fetchConfigs asks for a mirror's configuration; all keys if none are named.
func (o *options) fetchConfigs(ctx context.Context, cl *kgo.Client, keys ...string) ([]configRow, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeDocumentation = true
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = mirrorResource, o.mirror, keys
	req.Resources = append(req.Resources, r)
	resp, err := ask[*kmsg.DescribeConfigsResponse](ctx, cl, req)
	if err != nil {
		return nil, err
	}
	if len(resp.Resources) != 1 {
		return nil, fmt.Errorf("the answer does not speak of mirror %s", o.mirror)
	}
	if err := o.resourceError(resp.Resources[0].ErrorCode, resp.Resources[0].ErrorMessage); err != nil {
		return nil, err
	}
	rows := []configRow{}
	for _, c := range resp.Resources[0].Configs {
		rows = append(rows, configRow{
			Name: c.Name, Value: c.Value, Sensitive: c.IsSensitive, ReadOnly: c.ReadOnly, Doc: deref(c.Documentation),
			Set: !c.IsDefault && c.Source != kmsg.ConfigSourceDefaultConfig,
		})
	}
	return rows, nil
}

func (o *options) describeConfigs(ctx context.Context, cl *kgo.Client, out io.Writer) error {
	rows, err := o.fetchConfigs(ctx, cl)
	if err != nil {
		return err
	}
	if o.json {
		return writeJSON(out, rows)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KEY\tVALUE\tSET\tMEANING")
	for _, r := range rows {
		value, set := dash(deref(r.Value)), "-"
		if r.Set {
			set = "*"
		}
		if r.Sensitive && r.Set {
			value = "[hidden]"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Name, value, set, dash(r.Doc))
	}
	return w.Flush()
}
