package proxy

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cluster-mirroring/mirror-sidecar/protocol"
	"github.com/cluster-mirroring/mirror-sidecar/readonly"
)

// ConfigEntry is one key of a mirror's configuration as it may be shown: secrets have no
// value.
type ConfigEntry struct {
	Name                         string
	Value                        *string
	Default, Sensitive, ReadOnly bool
	Doc                          string
}

// ConfigOp is one change of a mirror's configuration. Op is Kafka's AlterConfigOp.
type ConfigOp struct {
	Name  string
	Op    int8
	Value *string
}

// MirrorConfigs is what sidecars keep as configuration: that of mirrors, which brokers do
// not know, and what mirror topics have apart from the write lock.
type MirrorConfigs interface {
	// Authorize asks as the caller whether it may describe the configuration of mirrors, or
	// alter it, and returns the client id to act under.
	Authorize(ctx context.Context, who Caller, alter bool) (clientID string, err error)
	// Describe returns a mirror's configuration; all keys if none are named.
	Describe(ctx context.Context, mirror string, keys []string) ([]ConfigEntry, error)
	// Alter changes a mirror's configuration, wherever it is coordinated.
	Alter(ctx context.Context, clientID, mirror string, ops []ConfigOp, validateOnly bool) error
	// TopicMirror is what a topic's mirror.name shows; ok is false for a topic of no mirror.
	TopicMirror(topic string) (value string, ok bool)
	// Wanted returns a topic's own values of the configs that the write lock holds, nil for
	// those it has none of; ok is false for a topic that is not locked.
	Wanted(topic string) (configs map[string]*string, ok bool)
}

const (
	// mirrorName is the read-only config of topics that says which mirror they belong to.
	mirrorName = "mirror.name"
	// mirrorSource is the source of a mirror's own configs. Kafka has no number for it;
	// clients show one that they do not know as unknown.
	mirrorSource kmsg.ConfigSource = 64
	// configTimeout bounds what a request does to the configuration of mirrors.
	configTimeout = 40 * time.Second
)

// configResource names what a config request is about.
type configResource struct {
	kind kmsg.ConfigResourceType
	name string
}

// describeConfigs answers for mirrors, and for the virtual broker's own id, which has no
// configs of its own; topics of mirrors are shown as if they were not locked. The rest
// of a request is the home broker's.
func (c *conn) describeConfigs(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrDescribeConfigsRequest())
	if err != nil {
		return exchange{}, err
	}
	rest := *req
	rest.Resources = nil
	var mirrors []kmsg.DescribeConfigsRequestResource
	topics := false
	for _, res := range req.Resources {
		switch {
		case c.isMirror(res.ResourceType):
			mirrors = append(mirrors, res)
		case c.isOwnBroker(res.ResourceType, res.ResourceName):
		default:
			rest.Resources = append(rest.Resources, res)
			topics = topics || c.isMirrorTopic(res.ResourceType, res.ResourceName)
		}
	}
	if len(rest.Resources) == len(req.Resources) && !topics {
		return r.forward(), nil
	}
	local := map[configResource]kmsg.DescribeConfigsResponseResource{}
	if len(mirrors) > 0 {
		err := c.consult(r, func(ctx context.Context, who Caller) error {
			c.p.describeMirrors(ctx, who, mirrors, local)
			return nil
		})
		if err != nil {
			return exchange{}, err
		}
	}
	merge := func(resp *kmsg.DescribeConfigsResponse) kmsg.Response {
		return c.mergeDescribed(req, resp, local)
	}
	if len(rest.Resources) == 0 {
		return c.local(r.header, merge(kmsg.NewPtrDescribeConfigsResponse())), nil
	}
	ex := relayed(r.header)
	if topics {
		// What a config would be without the topic's own value is among the synonyms.
		ex.version = max(r.version, 1)
		rest.Version, rest.IncludeSynonyms = ex.version, true
	}
	ex.send = encodeRequest(&rest, r.correlation, r.clientID)
	asked := ex.version
	ex.transform = func(body []byte) (kmsg.Response, error) {
		resp, err := decodeResponse(r.key, asked, body)
		if err != nil {
			return nil, err
		}
		return merge(resp.(*kmsg.DescribeConfigsResponse)), nil
	}
	return ex, nil
}

func (c *conn) isMirror(kind kmsg.ConfigResourceType) bool {
	return kind == readonly.MirrorResource && c.p.deps.Configs != nil
}

// isOwnBroker tells whether a resource is the virtual broker, at its own listener.
func (c *conn) isOwnBroker(kind kmsg.ConfigResourceType, name string) bool {
	broker := kind == kmsg.ConfigResourceTypeBroker || kind == kmsg.ConfigResourceTypeBrokerLogger
	return broker && c.p.cfg.Virtual && name == strconv.Itoa(int(c.p.cfg.IDs.Of(c.p.cfg.Home)))
}

func (c *conn) isMirrorTopic(kind kmsg.ConfigResourceType, name string) bool {
	if kind != kmsg.ConfigResourceTypeTopic || c.p.deps.Configs == nil {
		return false
	}
	_, ok := c.p.deps.Configs.TopicMirror(name)
	return ok
}

// describeMirrors puts the answers for mirrors into out.
func (p *Proxy) describeMirrors(ctx context.Context, who Caller, mirrors []kmsg.DescribeConfigsRequestResource, out map[configResource]kmsg.DescribeConfigsResponseResource) {
	ctx, cancel := context.WithTimeout(ctx, configTimeout)
	defer cancel()
	_, denied := p.deps.Configs.Authorize(ctx, who, false)
	for _, res := range mirrors {
		o := kmsg.NewDescribeConfigsResponseResource()
		o.ResourceType, o.ResourceName = res.ResourceType, res.ResourceName
		err := denied
		if err == nil {
			var keys []string
			if len(res.ConfigNames) > 0 {
				keys = res.ConfigNames
			}
			var entries []ConfigEntry
			entries, err = p.deps.Configs.Describe(ctx, res.ResourceName, keys)
			for _, e := range entries {
				o.Configs = append(o.Configs, describedEntry(e))
			}
		}
		o.ErrorCode, o.ErrorMessage = protocol.CodeOf(err)
		out[configResource{res.ResourceType, res.ResourceName}] = o
	}
}

func describedEntry(e ConfigEntry) kmsg.DescribeConfigsResponseResourceConfig {
	o := kmsg.NewDescribeConfigsResponseResourceConfig()
	o.Name, o.Value, o.ReadOnly, o.IsSensitive, o.IsDefault = e.Name, e.Value, e.ReadOnly, e.Sensitive, e.Default
	if e.Sensitive {
		o.Value = nil // whoever answers: no secret leaves here
	}
	o.Source = mirrorSource
	if e.Default {
		o.Source = kmsg.ConfigSourceDefaultConfig
	}
	o.ConfigType = kmsg.ConfigTypeString
	if e.Sensitive {
		o.ConfigType = kmsg.ConfigTypePassword
	}
	if e.Doc != "" {
		o.Documentation = &e.Doc
	}
	return o
}

// mergeDescribed puts the answers together in the order of the request. The broker may have
// been asked for more than the caller has.
func (c *conn) mergeDescribed(req *kmsg.DescribeConfigsRequest, resp *kmsg.DescribeConfigsResponse, local map[configResource]kmsg.DescribeConfigsResponseResource) kmsg.Response {
	answered := map[configResource][]kmsg.DescribeConfigsResponseResource{}
	for _, res := range resp.Resources {
		k := configResource{res.ResourceType, res.ResourceName}
		answered[k] = append(answered[k], res)
	}
	resp.Version, resp.Resources = req.Version, nil
	for _, res := range req.Resources {
		k := configResource{res.ResourceType, res.ResourceName}
		switch {
		case c.isMirror(res.ResourceType):
			resp.Resources = append(resp.Resources, local[k])
			continue
		case c.isOwnBroker(res.ResourceType, res.ResourceName):
			o := kmsg.NewDescribeConfigsResponseResource()
			o.ResourceType, o.ResourceName = res.ResourceType, res.ResourceName
			resp.Resources = append(resp.Resources, o)
			continue
		case len(answered[k]) == 0:
			continue
		}
		o := answered[k][0]
		answered[k] = answered[k][1:]
		if o.ErrorCode == errNone && c.isMirrorTopic(res.ResourceType, res.ResourceName) {
			c.p.unlock(&o, res.ConfigNames)
		}
		for i := range o.Configs {
			if !req.IncludeSynonyms {
				o.Configs[i].ConfigSynonyms = nil
			}
			o.Configs[i].IsDefault = o.Configs[i].IsDefault || o.Configs[i].Source == kmsg.ConfigSourceDefaultConfig
		}
		resp.Resources = append(resp.Resources, o)
	}
	return resp
}

// unlock shows a mirror topic's configs as they will be when it is stopped, and the mirror
// that it belongs to.
func (p *Proxy) unlock(res *kmsg.DescribeConfigsResponseResource, asked []string) {
	// What can be written to can be configured, whatever is still remembered of it.
	id, known := p.deps.View.Topic(res.ResourceName)
	if wanted, ok := p.deps.Configs.Wanted(res.ResourceName); ok && known && p.readOnly(id, readonly.AnyPartition) {
		for i := range res.Configs {
			if value, locked := wanted[res.Configs[i].Name]; locked {
				unlockConfig(&res.Configs[i], value)
			}
		}
	}
	value, ok := p.deps.Configs.TopicMirror(res.ResourceName)
	if !ok || len(asked) > 0 && !slices.Contains(asked, mirrorName) {
		return
	}
	o := kmsg.NewDescribeConfigsResponseResourceConfig()
	o.Name, o.Value, o.ReadOnly = mirrorName, &value, true
	// Not the topic's own dynamic config: tools that keep topics as declared would try to
	// take that away, for ever.
	o.Source = kmsg.ConfigSourceStaticBrokerConfig
	o.ConfigSynonyms = []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{{Name: mirrorName, Value: &value, Source: o.Source}}
	o.ConfigType = kmsg.ConfigTypeString
	doc := "The mirror that the topic belongs to; with .paused or .stopped while it is."
	o.Documentation = &doc
	res.Configs = append(res.Configs, o)
}

// unlockConfig puts a topic's own value in place of the write lock's, or, if it has none, what
// the topic has without one.
func unlockConfig(e *kmsg.DescribeConfigsResponseResourceConfig, own *string) {
	if e.Source != kmsg.ConfigSourceDynamicTopicConfig {
		return // not locked yet, or no longer
	}
	synonyms := slices.DeleteFunc(e.ConfigSynonyms, func(s kmsg.DescribeConfigsResponseResourceConfigConfigSynonym) bool {
		return s.Source == kmsg.ConfigSourceDynamicTopicConfig
	})
	switch {
	case own != nil:
		s := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
		s.Name, s.Value, s.Source = e.Name, own, kmsg.ConfigSourceDynamicTopicConfig
		synonyms = append([]kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{s}, synonyms...)
	case len(synonyms) == 0:
		value := kafkaDefault(e.Name)
		e.Value, e.Source, e.ConfigSynonyms = value, kmsg.ConfigSourceDefaultConfig, nil
		return
	}
	e.Value, e.Source, e.ConfigSynonyms = synonyms[0].Value, synonyms[0].Source, synonyms
}

// kafkaDefault is Kafka's default of a config of the write lock, for brokers that do not
// list it among the synonyms.
func kafkaDefault(name string) *string {
	v := "false"
	switch name {
	case "max.message.bytes":
		v = "1048588"
	case "min.insync.replicas":
		v = "1"
	}
	return &v
}

// incrementalAlterConfigs changes the configuration of mirrors, and passes on what the rules
// let through.
func (c *conn) incrementalAlterConfigs(r *request) (exchange, error) {
	req, err := decode(r, kmsg.NewPtrIncrementalAlterConfigsRequest())
	if err != nil {
		return exchange{}, err
	}
	rest := *req
	rest.Resources = nil
	var mirrors []kmsg.IncrementalAlterConfigsRequestResource
	for _, res := range req.Resources {
		if c.isMirror(res.ResourceType) {
			mirrors = append(mirrors, res)
		} else {
			rest.Resources = append(rest.Resources, res)
		}
	}
	var local map[string]kmsg.IncrementalAlterConfigsResponseResource
	if len(mirrors) > 0 {
		err := c.consult(r, func(ctx context.Context, who Caller) error {
			local = c.p.alterMirrors(ctx, who, mirrors, req.ValidateOnly)
			return nil
		})
		if err != nil {
			return exchange{}, err
		}
	}
	var refused []readonly.Refused
	send := kmsg.Request(&rest)
	merge := merger(func(resp *kmsg.IncrementalAlterConfigsResponse) *kmsg.IncrementalAlterConfigsResponse { return resp })
	rules := c.p.readRules()
	s := rules.IncrementalAlterConfigs(&rest)
	if s != nil {
		if some, err := c.hide(r, &rules, s.Refused); err != nil {
			return exchange{}, err
		} else if some {
			s = rules.IncrementalAlterConfigs(&rest)
		}
	}
	if s != nil {
		refused, send, merge = s.Refused, orNil(s.Rest), merger(s.Merge)
	} else if len(mirrors) == 0 {
		return r.forward(), nil
	} else if len(rest.Resources) == 0 {
		send = nil
	}
	return c.split(r, refused, send, func(resp kmsg.Response) kmsg.Response {
		got, _ := merge(resp).(*kmsg.IncrementalAlterConfigsResponse)
		return mergeAltered(req, got, local, c.isMirror)
	}), nil
}

// alterMirrors changes the configuration of mirrors and returns the answers by name. One that
// is named twice is refused, as brokers do.
func (p *Proxy) alterMirrors(ctx context.Context, who Caller, mirrors []kmsg.IncrementalAlterConfigsRequestResource, validateOnly bool) map[string]kmsg.IncrementalAlterConfigsResponseResource {
	ctx, cancel := context.WithTimeout(ctx, configTimeout)
	defer cancel()
	clientID, denied := p.deps.Configs.Authorize(ctx, who, true)
	times := map[string]int{}
	for _, res := range mirrors {
		times[res.ResourceName]++
	}
	out := map[string]kmsg.IncrementalAlterConfigsResponseResource{}
	for _, res := range mirrors {
		o := kmsg.NewIncrementalAlterConfigsResponseResource()
		o.ResourceType, o.ResourceName = res.ResourceType, res.ResourceName
		err := denied
		switch {
		case err != nil:
		case times[res.ResourceName] > 1:
			err = protocol.Errorf(errInvalidRequest, "mirror %q is named more than once in the request", res.ResourceName)
		default:
			ops := make([]ConfigOp, 0, len(res.Configs))
			for _, cfg := range res.Configs {
				ops = append(ops, ConfigOp{Name: cfg.Name, Op: int8(cfg.Op), Value: cfg.Value})
			}
			err = p.deps.Configs.Alter(ctx, clientID, res.ResourceName, ops, validateOnly)
		}
		o.ErrorCode, o.ErrorMessage = protocol.CodeOf(err)
		out[res.ResourceName] = o
	}
	return out
}

// mergeAltered puts the answers together in the order of the request.
func mergeAltered(req *kmsg.IncrementalAlterConfigsRequest, resp *kmsg.IncrementalAlterConfigsResponse,
	local map[string]kmsg.IncrementalAlterConfigsResponseResource, isMirror func(kmsg.ConfigResourceType) bool,
) kmsg.Response {
	if len(local) == 0 {
		return resp
	}
	out := kmsg.NewPtrIncrementalAlterConfigsResponse()
	answered := map[configResource][]kmsg.IncrementalAlterConfigsResponseResource{}
	if resp != nil {
		*out = *resp
		for _, res := range resp.Resources {
			k := configResource{res.ResourceType, res.ResourceName}
			answered[k] = append(answered[k], res)
		}
	}
	out.Version, out.Resources = req.Version, nil
	for _, res := range req.Resources {
		k := configResource{res.ResourceType, res.ResourceName}
		if isMirror(res.ResourceType) {
			out.Resources = append(out.Resources, local[res.ResourceName])
		} else if len(answered[k]) > 0 {
			out.Resources = append(out.Resources, answered[k][0])
			answered[k] = answered[k][1:]
		}
	}
	return out
}
