package syncs

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxUsersNamed bounds the users that one warning names.
const maxUsersNamed = 20

// credential is one SCRAM credential as a cluster tells of it.
type credential struct {
	user      string
	mechanism int8
}

func (c credential) mechanismName() string {
	switch c.mechanism {
	case 1:
		return "SCRAM-SHA-256"
	case 2:
		return "SCRAM-SHA-512"
	}
	return fmt.Sprintf("mechanism %d", c.mechanism)
}

// readSCRAM returns the SCRAM credentials of a cluster, with their iterations. That is all that a
// cluster tells of them.
func readSCRAM(ctx context.Context, cl *kgo.Client) (map[credential]int32, error) {
	req := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
	req.Users = nil // all
	resp, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return nil, fmt.Errorf("read which users have SCRAM credentials: %w", err)
	}
	out := map[credential]int32{}
	for _, u := range resp.Results {
		for _, c := range u.CredentialInfos {
			out[credential{u.User, c.Mechanism}] = c.Iterations
		}
	}
	return out, nil
}

// missingSCRAM words which users could log in at the source and cannot here; empty if there are
// none. Credentials themselves cannot be mirrored: a cluster keeps the stored key and the server
// key, hands out neither, and takes nothing but the salted password, which cannot be computed from
// them.
func missingSCRAM(source, here map[credential]int32) string {
	var users []string
	for c, iterations := range source {
		if _, ok := here[c]; !ok {
			users = append(users, fmt.Sprintf("%s (%s, %d iterations)", c.user, c.mechanismName(), iterations))
		}
	}
	if len(users) == 0 {
		return ""
	}
	slices.Sort(users)
	more := ""
	if n := len(users) - maxUsersNamed; n > 0 {
		users, more = users[:maxUsersNamed], fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("SCRAM credentials of the source are missing here, and cannot be mirrored, since Kafka neither tells nor takes their hashes: %s%s; "+
		"create them with kafka-configs.sh --alter --entity-type users --entity-name USER --add-config 'MECHANISM=[password=...]'", strings.Join(users, ", "), more)
}
