package syncs

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// quotasAtATime bounds one request: each of them is a record of the metadata log.
const quotasAtATime = 500

// quotaChange sets a quota, or removes it.
type quotaChange struct {
	quota
	remove bool
}

// alterQuotas changes up to quotasAtATime quotas, and returns for each what became of it. An error
// means that this is not known of any. A broker does all or nothing for one entity.
func alterQuotas(ctx context.Context, cl *kgo.Client, changes []quotaChange) ([]error, error) {
	req := kmsg.NewPtrAlterClientQuotasRequest()
	at := map[string]int{} // entries by entity: each may be there once only
	for _, c := range changes {
		i, known := at[c.of()]
		if !known {
			i = len(req.Entries)
			at[c.of()] = i
			e := kmsg.NewAlterClientQuotasRequestEntry()
			for _, part := range c.entity {
				p := kmsg.NewAlterClientQuotasRequestEntryEntity()
				p.Type = part.kind
				if !part.isDefault {
					p.Name = &part.name
				}
				e.Entity = append(e.Entity, p)
			}
			req.Entries = append(req.Entries, e)
		}
		op := kmsg.NewAlterClientQuotasRequestEntryOp()
		op.Key, op.Value, op.Remove = c.key, c.value, c.remove
		req.Entries[i].Ops = append(req.Entries[i].Ops, op)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("change %d client quotas: %w", len(changes), err)
	}
	results := make(map[string]error, len(resp.Entries))
	for _, e := range resp.Entries {
		var entity []component
		for _, c := range e.Entity {
			entity = append(entity, componentOf(c.Type, c.Name))
		}
		var err error
		if code := kerr.ErrorForCode(e.ErrorCode); code != nil {
			err = fmt.Errorf("change: %w%s", code, detail(e.ErrorMessage))
		}
		results[(quota{entity: ordered(entity)}).of()] = err
	}
	out := make([]error, len(changes))
	for i, c := range changes {
		err, told := results[c.of()]
		if !told {
			return nil, fmt.Errorf("change %d client quotas: the answer is not about %s", len(changes), c.of())
		}
		out[i] = err
	}
	return out, nil
}
