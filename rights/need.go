package rights

import (
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Need is a right that somebody needs. Errors about rights are worded here, so that all of them say
// which operation on which resource is missing, and the command that grants it.
type Need struct {
	Operation Operation
	Resource  kmsg.ACLResourceType
	Name      string // of a topic, group or transactional id
	// For is what it is needed for.
	For string
}

// OfCluster is a right on the cluster.
func OfCluster(o Operation, why string) Need {
	return Need{Operation: o, Resource: kmsg.ACLResourceTypeCluster, For: why}
}

// OfTopic is a right on a topic.
func OfTopic(o Operation, topic, why string) Need {
	return Need{Operation: o, Resource: kmsg.ACLResourceTypeTopic, Name: topic, For: why}
}

// OfGroup is a right on a group.
func OfGroup(o Operation, group, why string) Need {
	return Need{Operation: o, Resource: kmsg.ACLResourceTypeGroup, Name: group, For: why}
}

// OfTransaction is a right on a transactional id.
func OfTransaction(o Operation, id, why string) Need {
	return Need{Operation: o, Resource: kmsg.ACLResourceTypeTransactionalId, Name: id, For: why}
}

// String names operation and resource.
func (n Need) String() string {
	on := "the cluster"
	switch n.Resource {
	case kmsg.ACLResourceTypeTopic:
		on = "topic " + n.Name
	case kmsg.ACLResourceTypeGroup:
		on = "group " + n.Name
	case kmsg.ACLResourceTypeTransactionalId:
		on = "transactional id " + n.Name
	}
	return n.Operation.String() + " on " + on
}

// Grant is the command that grants the right to a principal. Where its cluster is reached is
// for who runs it to know.
func (n Need) Grant(principal string) string {
	on := "--cluster"
	switch n.Resource {
	case kmsg.ACLResourceTypeTopic:
		on = "--topic " + quoted(n.Name)
	case kmsg.ACLResourceTypeGroup:
		on = "--group " + quoted(n.Name)
	case kmsg.ACLResourceTypeTransactionalId:
		on = "--transactional-id " + quoted(n.Name)
	}
	return fmt.Sprintf("kafka-acls.sh --bootstrap-server … --add --allow-principal %s --operation %s %s", quoted(principal), n.Operation.acl(), on)
}

// quoted is an argument as a shell takes it.
func quoted(arg string) string {
	if arg != "" && !strings.ContainsFunc(arg, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-:=,/", r))
	}) {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

// acl is the operation's name among the arguments of kafka-acls.sh.
func (o Operation) acl() string {
	var b strings.Builder
	for word := range strings.SplitSeq(o.String(), "_") {
		b.WriteString(word[:1] + strings.ToLower(word[1:]))
	}
	return b.String()
}

// Whose rights are asked for in errors.
const (
	// Sidecars are who the sidecars log in as at the destination.
	Sidecars = "the sidecars' principal"
	// MirrorUser is who a mirror logs in as at its source.
	MirrorUser = "the mirror's user at the source"
)

// Lacking adds to an error what right is missing, if that is what it is about: whose, and the command
// that grants it. Any other error, and none, is returned as it is.
func Lacking(err error, who string, n Need) error {
	if !Denied(err) {
		return err
	}
	return &lackingError{err: err, who: who, need: n}
}

// Denied tells whether an error is the authorizer's.
func Denied(err error) bool {
	for _, e := range []error{
		kerr.ClusterAuthorizationFailed, kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

type lackingError struct {
	err  error
	who  string
	need Need
}

func (e *lackingError) Error() string {
	return fmt.Sprintf("%v: %s lacks %s (%s)", e.err, e.who, e.need, e.need.Grant("<"+e.who+">"))
}

func (e *lackingError) Unwrap() error { return e.err }
