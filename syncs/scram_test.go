package syncs

import (
	"crypto/pbkdf2"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func (c *cluster) addUser(name string, mechanism int8) {
	c.t.Helper()
	req := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	u := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
	u.Name, u.Mechanism, u.Iterations, u.Salt = name, mechanism, 4096, []byte("salt")
	var err error
	if u.SaltedPassword, err = pbkdf2.Key(sha256.New, "password", u.Salt, 4096, 32); err != nil {
		c.t.Fatal(err)
	}
	req.Upsertions = append(req.Upsertions, u)
	resp, err := req.RequestWith(c.t.Context(), c.cl)
	if err != nil || resp.Results[0].ErrorCode != 0 {
		c.t.Fatal(resp, err)
	}
}

// TestSCRAMCredentialsAreMissed names users whose ACLs are of no use here.
func TestSCRAMCredentialsAreMissed(t *testing.T) {
	r := newACLRig(t)
	r.src.create(topicACL("a", "alice"))
	r.src.addUser("alice", 1)
	r.src.addUser("bob", 2)
	r.dst.addUser("bob", 1)
	report := r.round()
	if len(report.Warnings) != 1 || !strings.Contains(report.Warnings[0], "alice (SCRAM-SHA-256, 4096 iterations), bob (SCRAM-SHA-512, 4096 iterations);") {
		t.Errorf("%+v", report)
	}
	r.same(topicACL("a", "alice"))
	r.dst.addUser("alice", 1)
	r.dst.addUser("bob", 2)
	if report := r.round(); len(report.Warnings) != 0 {
		t.Errorf("%+v", report)
	}

	many := map[credential]int32{}
	for i := range 100 {
		many[credential{fmt.Sprintf("user-%03d", i), 7}] = 1
	}
	if text := missingSCRAM(many, nil); !strings.Contains(text, "user-019 (mechanism 7, 1 iterations) and 80 more;") || strings.Contains(text, "user-020") {
		t.Error(text)
	}
}
