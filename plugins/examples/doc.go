// Package examples has plugins to learn from, and to use: each folder is one. docs/plugins.md lists them.
package examples
