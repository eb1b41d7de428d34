// Package workload feeds a Kafka cluster with live producers of every kind that a
// mirror has to carry exactly: each codec, idempotent and transactional producers
// (commits, aborts and a transaction that stays open), a topic that the real log
// cleaner makes gaps in, and records of every odd shape. The demo, the end-to-end
// tests and the chaos tests use it.
//
// Records of one partition are numbered from 0 in the order in which they are
// produced, and the load keeps account of which numbers were acknowledged, committed and
// aborted. [Load.Check] reads a cluster, the source or its mirror, and says what is
// missing, doubled, out of order, damaged, or visible though it was aborted.
package workload
