// Package rights asks Kafka what somebody may do.
//
// Nobody but the cluster's authorizer decides (contract.md §8), and it is not asked
// about somebody but by somebody: each question here is a request that goes to a broker
// under the identity whose rights are in question, and that changes nothing. It works
// with any authorizer, and says "everything" where there is none.
package rights
