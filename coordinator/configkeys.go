package coordinator

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A source may have topic configs that this cluster's version does not know: old ones that newer
// versions have dropped (message.format.version, message.downconversion.enable), or the
// other way round. A topic that names one cannot be created, so they are left out.

// configKeysAge is how long the list of known keys is believed: it changes with an upgrade.
const configKeysAge = 5 * time.Minute

// topicDefaults returns the topic configs that this cluster knows, as a broker lists them for the
// state topic, with the values of a topic that has none of its own.
func (d *Destination) topicDefaults(ctx context.Context) (map[string]string, error) {
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
	keys := make(map[string]string, len(rc.Configs))
	for _, c := range rc.Configs {
		keys[c.Key] = ""
		if c.Source != kmsg.ConfigSourceDynamicTopicConfig {
			keys[c.Key] = c.MaybeValue()
			continue
		}
		for _, s := range c.Synonyms {
			if s.Source != kmsg.ConfigSourceDynamicTopicConfig && s.Value != nil {
				keys[c.Key] = *s.Value
				break
			}
		}
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
