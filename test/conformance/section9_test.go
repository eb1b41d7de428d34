package conformance

// section9 tests what policies decide.
func section9() []row {
	return []row{
		{proves: "C9.1 C9.8 A4.1 A5.5 topics", run: policiesDecide},
		{proves: "C9.2 C9.9 configs", run: policiesConfigs},
		{proves: "A4.1 A4.2 plugins", run: policiesRefused},
		{proves: "C9.3 ACLs", run: policiesACLs},
		{proves: "C9.3 A5.5 what denies comes first", run: policiesDeny},
		{proves: "C9.3 ACLs of topics that are stopped", run: policiesStopped},
		{proves: "C9.4 C9.5 C9.6 C9.7 C9.10 groups", run: policiesGroups},
		{proves: "C9.11 C9.8 A5.5 a plugin that crashes", run: policiesCrash},
		{proves: "C9.12 events", run: policiesEvents},
		{proves: "C9.13 C5.11 quotas", run: policiesQuotas},
	}
}
