package offsets

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
)

// LookAgain drops moves from where a group no longer stands. Since it was looked at its consumers
// may have been here and gone: they must not read again what they have read here. Such moves are
// kept from then on. Of groups that cannot be read nothing is moved; they are in failed, by name.
func LookAgain(ctx context.Context, cl *kgo.Client, plans []*Plan) (failed map[string]error) {
	var ask []Group
	for _, p := range plans {
		if len(p.Moves) > 0 {
			ask = append(ask, Group{Name: p.Group.Name, Type: p.Group.Type})
		}
	}
	filled, failed := Fetch(ctx, cl, ask)
	now := map[string]map[Partition]Position{}
	for _, g := range filled {
		now[g.Name] = g.Positions
	}
	for _, p := range plans {
		if failed[p.Group.Name] != nil {
			p.Moves = nil
			continue
		}
		p.Moves = slices.DeleteFunc(p.Moves, func(m Move) bool {
			at := int64(-1)
			if o, ok := now[p.Group.Name][m.Partition]; ok {
				at = o.At
			}
			if at == m.From {
				return false
			}
			why := fmt.Sprintf("%d was committed here meanwhile by another", at)
			if at < 0 {
				why = "its offset was deleted here meanwhile"
			}
			p.Kept = append(p.Kept, Kept{m.Partition, at, why})
			return true
		})
	}
	return failed
}
