package coordinator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// A source may have topic configs that this cluster's version does not know: old ones that newer
// versions have dropped (message.format.version, message.downconversion.enable), or the
// other way round. A topic that names one cannot be created, so they are left out.

// configKeysAge is how long the list of known keys is believed: it changes with an upgrade.
const configKeysAge = 5 * time.Minute

// knownTopicConfigs returns the names of the topic configs that this cluster knows, as a broker
// lists them for the state topic.
func (d *Destination) knownTopicConfigs(ctx context.Context) (map[string]bool, error) {
	d.mu.Lock()
	keys, asked := d.configKeys, d.configKeysAsked
	d.mu.Unlock()
	if keys != nil && time.Since(asked) < configKeysAge {
		return keys, nil
	}
	if err := d.once(ctx, "config keys", d.askConfigKeys); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.configKeys, nil
}

func (d *Destination) askConfigKeys(ctx context.Context) error {
	described, err := d.adm.DescribeTopicConfigs(ctx, StateTopic)
	var rc kadm.ResourceConfig
	if err == nil {
		rc, err = described.On(StateTopic, nil)
	}
	if err == nil {
		err = rc.Err
	}
	if err != nil {
		return fmt.Errorf("which topic configs this cluster knows: %w", err)
	}
	keys := make(map[string]bool, len(rc.Configs))
	for _, c := range rc.Configs {
		keys[c.Key] = true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.configKeys, d.configKeysAsked = keys, time.Now()
	return nil
}

// once asks this cluster something that it is not being asked already, and waits for it no longer
// than ctx. Nobody who wants something else waits: d.mu is not held.
func (d *Destination) once(ctx context.Context, what string, ask func(context.Context) error) error {
	done := d.asking.DoChan(what, func() (any, error) {
		// Not ctx itself: others wait for it too.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), adminTimeout)
		defer cancel()
		return nil, ask(ctx)
	})
	select {
	case r := <-done:
		return r.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// knownConfigs leaves out what this cluster does not know of a source topic's configs.
func (d *Destination) knownConfigs(ctx context.Context, configs map[string]string) (known map[string]string, left []string, err error) {
	if len(configs) == 0 {
		return configs, nil, nil
	}
	keys, err := d.knownTopicConfigs(ctx)
	if err != nil {
		return nil, nil, err
	}
	known = make(map[string]string, len(configs))
	for _, k := range slices.Sorted(maps.Keys(configs)) {
		if keys[k] {
			known[k] = configs[k]
		} else {
			left = append(left, k)
		}
	}
	return known, left, nil
}
