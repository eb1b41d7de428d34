// Package host starts plugins, looks after them, and checks what they answer.
//
// A plugin runs from the first question that somebody has for it until it does something wrong:
// ends, does not answer in time, answers what was not asked or more than a message may have. It is
// then ended, whatever it is doing, and started again when its backoff is over and somebody asks. In
// between questions are answered with the reason at once, so that nobody waits for a plugin longer
// than its timeout, twice if it has to be started.
//
//   - Host has the plugins that the sidecar is configured with.
//   - Plugin is one of them: questions go in, checked answers come out.
//   - run is one process of a plugin from start to end; process is what the operating system knows of it.
//   - check.go is what an answer has to be; the conformance kit tells authors the same.
//
// What is run is what was hashed: a private copy of the program. A plugin sees nothing of the
// sidecar's environment or files that are open, and does not outlive it.
package host
