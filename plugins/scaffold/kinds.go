package scaffold

// kind is what differs between the kinds of policies, in the words of each language. All of them begin
// with the same rule, which every author understands and replaces: what begins with a prefix is left out.
type kind struct {
	Name string // as mirror.policy.<kind> has it
	What string // one item, in a sentence
	Key  string // what the rule looks at, in a sentence

	// Go.
	Field, Func string // of the SDK
	Param       string // after the round
	Subject     string // what the rule looks at
	Value       string // what else is returned beside the decision, with a comma
	Result      string // the type of that
	Facts       string // an argument of a test, from c.subject

	// Python.
	PyParam, PySubject, PyFacts string
	PyAlso                      string // what else may be returned, in a sentence
}

// kinds lists those that decide; events is by itself.
var kinds = []kind{
	{
		Name: "topics", What: "a topic", Key: "its name",
		Field: "Topics", Func: "TopicFunc", Param: "topic *policyv1.TopicFacts", Subject: "topic.GetName()",
		Facts:   "&policyv1.TopicFacts{Name: c.subject}",
		PyParam: "facts", PySubject: "facts.name", PyFacts: "pb.TopicFacts(name=subject)",
	},
	{
		Name: "configs", What: "a config of a topic", Key: "its name",
		Field: "Configs", Func: "ConfigFunc", Param: "topic string, config *policyv1.ConfigFacts", Subject: "config.GetName()",
		Value: ", nil", Result: ", *string", Facts: `"orders", &policyv1.ConfigFacts{Name: c.subject, SourceValue: "1"}`,
		PyParam: "topic, facts", PySubject: "facts.name", PyFacts: `"orders", pb.ConfigFacts(name=subject, source_value="1")`,
		PyAlso: "A pair of it and a text sets that instead of the source's value.",
	},
	{
		Name: "acls", What: "an ACL", Key: "its principal",
		Field: "ACLs", Func: "ACLFunc", Param: "acl *policyv1.AclFacts", Subject: "acl.GetAcl().GetPrincipal()",
		Value: ", nil", Result: ", *policyv1.AclBinding", Facts: "&policyv1.AclFacts{Acl: &policyv1.AclBinding{Principal: c.subject}}",
		PyParam: "facts", PySubject: "facts.acl.principal", PyFacts: "pb.AclFacts(acl=pb.AclBinding(principal=subject))",
		PyAlso: "A pair of it and an AclBinding creates that one instead.",
	},
	{
		Name: "groups", What: "a consumer group", Key: "its name",
		Field: "Groups", Func: "GroupFunc", Param: "group *policyv1.GroupFacts", Subject: "group.GetGroup()",
		Facts:   "&policyv1.GroupFacts{Group: c.subject}",
		PyParam: "facts", PySubject: "facts.group", PyFacts: "pb.GroupFacts(group=subject)",
	},
	{
		Name: "quotas", What: "a client quota", Key: "its key",
		Field: "Quotas", Func: "QuotaFunc", Param: "quota *policyv1.QuotaFacts", Subject: "quota.GetKey()",
		Value: ", nil", Result: ", *float64", Facts: "&policyv1.QuotaFacts{Key: c.subject}",
		PyParam: "facts", PySubject: "facts.key", PyFacts: "pb.QuotaFacts(key=subject)",
		PyAlso: "A pair of it and a number sets that instead of the source's value.",
	},
}

var events = kind{Name: "events", What: "a change of a partition"}

// KindNames are what Options.Kind may be.
func KindNames() []string {
	var out []string
	for _, k := range kinds {
		out = append(out, k.Name)
	}
	return append(out, events.Name)
}

func kindOf(name string) (kind, bool) {
	for _, k := range append(kinds[:len(kinds):len(kinds)], events) {
		if k.Name == name {
			return k, true
		}
	}
	return kind{}, false
}
