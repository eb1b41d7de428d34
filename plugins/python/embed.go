// Package python has what a policy written in Python needs of this project: a module that makes a
// plugin of functions, and the list of the libraries that it uses. Scaffolds copy both.
package python

import _ "embed"

// Module is mirror_policy.py.
//
//go:embed mirror_policy.py
var Module []byte

// Requirements are for pip.
//
//go:embed requirements.txt
var Requirements []byte
