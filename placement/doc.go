// Package placement says which real brokers the replicas of a partition go to: spread over
// racks, then over brokers, as Kafka does it, and never on a broker whose log directories
// are cordoned. It decides only; virtual brokers are not among those it chooses from.
package placement
