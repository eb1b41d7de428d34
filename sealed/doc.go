// Package sealed encrypts single secrets with keys from a file, and says with which one each was: what
// lies in the state topic can be read by everybody who may read that topic, and by those who have its
// disks. A secret is bound to what it belongs to, so that it cannot be moved elsewhere by who cannot
// read it.
//
// The file is read again whenever it is needed. That is seldom, and so a changed one counts at once.
package sealed
