// Package controller sends requests to the active KRaft controller of the
// destination cluster.
//
// Which controller is active is learnt from their answers only: the others say
// NOT_CONTROLLER, or, to a fetch of the metadata log, name the leader. The package
// decodes nothing else of an answer; what an error means is the caller's affair.
package controller
