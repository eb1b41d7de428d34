// Package policies tests what is mirrored beside records, and what decides on it: topics, configs,
// ACLs, offsets of groups and quotas, through real clusters, sidecars and plugins.
//
// The tests share one source and one destination, which start with the first of them. Each has
// mirrors, topics and groups of its own.
package policies
