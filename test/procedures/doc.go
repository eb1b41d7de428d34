// Package procedures executes docs/procedures: each page's commands are run by a shell
// against real clusters, from the page itself, and what they print is compared with what
// the page says. So a page cannot promise what does not happen.
//
// A page is a row of steps. A block
//
//	```sh run
//
// is run; the block marked output that follows it is what it has to print, where blanks
// count as one blank, … stands for any text in a line, and a line that is only … for any
// lines. run exit=N expects that exit status. A comment <!-- test: HOOK ARGS --> is what
// the world does meanwhile, or what the test looks at; readers do not see it. Other blocks
// are for reading only.
package procedures
