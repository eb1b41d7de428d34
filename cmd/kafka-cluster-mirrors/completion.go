package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// completionScript returns what writes the completion of a shell, nil for one it is not
// written for.
func completionScript(shell string) func(io.Writer) error {
	var script func() string
	switch shell {
	case "bash":
		script = bashCompletion
	case "zsh":
		script = zshCompletion
	case "fish":
		script = fishCompletion
	default:
		return nil
	}
	return func(out io.Writer) error {
		_, err := io.WriteString(out, script())
		return err
	}
}

func actionFlags() []string {
	var out []string
	for _, a := range actions() {
		out = append(out, "--"+a.name)
	}
	return out
}

// flagsOf are the flags that an action takes, but not its own.
func flagsOf(a *action) []string {
	var out []string
	for _, d := range optionTable() {
		if a.accepts(d.name) {
			out = append(out, "--"+d.name)
		}
	}
	return out
}

func optionsThat(c completion) string {
	var out []string
	for _, d := range optionTable() {
		if d.complete == c && d.arg != "" {
			out = append(out, "--"+d.name)
		}
	}
	return strings.Join(out, "|")
}

// bashCompletion reads the line itself, since bash takes host:port apart.
func bashCompletion() string {
	var cases strings.Builder
	for _, a := range actions() {
		fmt.Fprintf(&cases, "    %s) flags=%q ;;\n", "--"+a.name, strings.Join(flagsOf(&a), " "))
	}
	return strings.NewReplacer(
		"@ACTIONS@", strings.Join(actionFlags(), " "),
		"@ACTIONCASE@", strings.Join(actionFlags(), "|"),
		"@CASES@", strings.TrimSuffix(cases.String(), "\n"),
		"@FILES@", optionsThat(completeFile), "@MIRRORS@", optionsThat(completeMirror), "@TOPICS@", optionsThat(completeTopic),
		"@OTHERS@", optionsThat(completeNothing),
	).Replace(`# bash completion for kafka-cluster-mirrors
_kafka_cluster_mirrors_ask() {
  local -a ask=("${words[0]}" --bootstrap-server "$bootstrap")
  [[ -n $bootstrap ]] || return
  [[ -z $config ]] || ask+=(--command-config "$config")
  if type -P timeout >/dev/null; then ask=(timeout 5 "${ask[@]}"); fi
  "${ask[@]}" "$@" 2>/dev/null
}
_kafka_cluster_mirrors() {
  local line="${COMP_LINE:0:COMP_POINT}" cur="" prev="" action="" bootstrap="" config="" mirror="" flags="" before i
  local -a words
  read -ra words <<<"$line"
  if [[ $line != *[[:space:]] ]]; then
    cur="${words[${#words[@]}-1]}"
    words=("${words[@]:0:${#words[@]}-1}")
  fi
  prev="${words[${#words[@]}-1]}"
  for ((i = 1; i < ${#words[@]}; i++)); do
    before="${words[i-1]}"
    case "$before" in
    --bootstrap-server) bootstrap="${words[i]}" ;;
    --command-config) config="${words[i]}" ;;
    --mirror) mirror="${words[i]}" ;;
    esac
    case "${words[i]}" in
    @ACTIONCASE@) action="${words[i]}" ;;
    esac
  done
  COMPREPLY=()
  case "$prev" in
  @FILES@) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
  @MIRRORS@) COMPREPLY=($(compgen -W "$(_kafka_cluster_mirrors_ask --list | awk 'NR > 1 { print $1 }')" -- "$cur")); return ;;
  @TOPICS@)
    [[ -n $mirror ]] || return
    COMPREPLY=($(compgen -W "$(_kafka_cluster_mirrors_ask --describe --mirror "$mirror" | awk 'NR > 1 { print $2 }' | sort -u)" -- "$cur"))
    return ;;
  --completion) COMPREPLY=($(compgen -W "bash zsh fish" -- "$cur")); return ;;
  --decode-log) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
  @OTHERS@) return ;;
  esac
  case "$action" in
@CASES@
    *) flags="--help --bootstrap-server --command-config @ACTIONS@" ;;
  esac
  COMPREPLY=($(compgen -W "$flags" -- "$cur"))
}
complete -F _kafka_cluster_mirrors kafka-cluster-mirrors
`)
}

// zshText is a text inside of an _arguments specification in single quotes.
func zshText(s string) string {
	return strings.NewReplacer("'", `'\''`, "[", `\[`, "]", `\]`, ":", `\:`).Replace(s)
}

func zshCompletion() string {
	var b strings.Builder
	b.WriteString(`#compdef kafka-cluster-mirrors
# zsh completion for kafka-cluster-mirrors
_kafka_cluster_mirrors_ask() {
  local -a ask=(kafka-cluster-mirrors --bootstrap-server "${(Q)opt_args[--bootstrap-server]}")
  [[ -n ${opt_args[--bootstrap-server]} ]] || return
  [[ -z ${opt_args[--command-config]} ]] || ask+=(--command-config "${(Q)opt_args[--command-config]}")
  if whence -p timeout >/dev/null; then ask=(timeout 5 $ask); fi
  $ask "$@" 2>/dev/null
}
_kafka_cluster_mirrors_mirrors() {
  local -a names=(${(f)"$(_kafka_cluster_mirrors_ask --list | awk 'NR > 1 { print $1 }')"})
  compadd -a names
}
_kafka_cluster_mirrors_topics() {
  [[ -n ${opt_args[--mirror]} ]] || return
  local -a names=(${(f)"$(_kafka_cluster_mirrors_ask --describe --mirror "${(Q)opt_args[--mirror]}" | awk 'NR > 1 { print $2 }' | sort -u)"})
  compadd -a names
}
_kafka_cluster_mirrors() {
  _arguments \
    '(-h --help)'{-h,--help}'[explain an action, or all]' \
`)
	all := strings.Join(actionFlags(), " ")
	for _, a := range actions() {
		value := ""
		switch {
		case a.value != "":
			value = ":" + a.value + ":(bash zsh fish)"
		case a.files:
			value = ":FILE:_files"
		}
		fmt.Fprintf(&b, "    '(%s)--%s[%s]%s' \\\n", all, a.name, zshText(a.short), value)
	}
	for i, d := range optionTable() {
		value := ""
		if d.arg != "" {
			value = ":" + zshText(d.arg) + ":" + [...]string{" ", "_files", "_kafka_cluster_mirrors_mirrors", "_kafka_cluster_mirrors_topics"}[d.complete]
		}
		end := " \\"
		if i == len(optionTable())-1 {
			end = ""
		}
		fmt.Fprintf(&b, "    '--%s[%s]%s'%s\n", d.name, zshText(d.doc), value, end)
	}
	b.WriteString("}\nif [[ $funcstack[1] == _kafka-cluster-mirrors ]]; then\n  _kafka_cluster_mirrors \"$@\"\nelse\n" +
		"  compdef _kafka_cluster_mirrors kafka-cluster-mirrors\nfi\n")
	return b.String()
}

func fishText(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'"
}

func fishCompletion() string {
	var b strings.Builder
	b.WriteString(`# fish completion for kafka-cluster-mirrors
function __kafka_cluster_mirrors_value
    set -l words (commandline -opc)
    for i in (seq (count $words))
        if test "$words[$i]" = $argv[1]; and test $i -lt (count $words)
            echo $words[(math $i + 1)]
        end
    end
end
function __kafka_cluster_mirrors_any
    for a in $argv
        contains -- --$a (commandline -opc); and return 0
    end
    return 1
end
function __kafka_cluster_mirrors_ask
    set -l bootstrap (__kafka_cluster_mirrors_value --bootstrap-server)
    test -n "$bootstrap"; or return
    set -l ask kafka-cluster-mirrors --bootstrap-server $bootstrap
    set -l config (__kafka_cluster_mirrors_value --command-config)
    test -n "$config"; and set -a ask --command-config $config
    type -q timeout; and set -p ask timeout 5
    command $ask $argv 2>/dev/null
end
function __kafka_cluster_mirrors_mirrors
    __kafka_cluster_mirrors_ask --list | awk 'NR > 1 { print $1 }'
end
function __kafka_cluster_mirrors_topics
    set -l mirror (__kafka_cluster_mirrors_value --mirror)
    test -n "$mirror"; and __kafka_cluster_mirrors_ask --describe --mirror $mirror | awk 'NR > 1 { print $2 }' | sort -u
end
complete -c kafka-cluster-mirrors -f
complete -c kafka-cluster-mirrors -s h -l help -d 'explain an action, or all'
`)
	var names []string
	for _, a := range actions() {
		names = append(names, a.name)
	}
	none := fishText("not __kafka_cluster_mirrors_any " + strings.Join(names, " "))
	for _, a := range actions() {
		when, value := " -n "+none, ""
		switch { // with the condition, what follows the flag would not be offered
		case a.value != "":
			when, value = "", " -x -a 'bash zsh fish'"
		case a.files:
			when, value = "", " -r -F"
		}
		fmt.Fprintf(&b, "complete -c kafka-cluster-mirrors%s -l %s -d %s%s\n", when, a.name, fishText(a.short), value)
	}
	for _, d := range optionTable() {
		var takers []string
		for _, a := range actions() {
			if a.accepts(d.name) {
				takers = append(takers, a.name)
			}
		}
		when := ""
		if !slices.Contains(always(), d.name) { // those come first on many lines
			when = " -n " + fishText("__kafka_cluster_mirrors_any "+strings.Join(takers, " "))
		}
		value := ""
		switch {
		case d.arg == "":
		case d.complete == completeFile:
			value = " -r -F"
		case d.complete == completeMirror:
			value = " -x -a '(__kafka_cluster_mirrors_mirrors)'"
		case d.complete == completeTopic:
			value = " -x -a '(__kafka_cluster_mirrors_topics)'"
		default:
			value = " -x"
		}
		fmt.Fprintf(&b, "complete -c kafka-cluster-mirrors%s -l %s -d %s%s\n", when, d.name, fishText(d.doc), value)
	}
	return b.String()
}
