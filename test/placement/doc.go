// Package placement tests, with stock tools and real brokers, where partitions are: mirror
// topics that clients reassign, through the sidecars and around them, ordinary topics that
// land on virtual brokers, and clusters whose metadata.version cannot keep them off.
package placement
