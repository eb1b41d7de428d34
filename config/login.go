package config

import "strings"

// LoginName is the user name that a client's keys log in with, "" if they have none, or one that is
// looked up elsewhere.
func LoginName(p Properties) string {
	if p["sasl.jaas.config"] == "" {
		return ""
	}
	e, err := parseJAAS(p["sasl.jaas.config"])
	if err != nil || strings.Contains(e.options["username"], "${") {
		return ""
	}
	return e.options["username"]
}
