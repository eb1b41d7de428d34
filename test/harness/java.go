package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// javaBinary finds java where JAVA_HOME says, else on the PATH.
func javaBinary() (string, error) {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		java := filepath.Join(home, "bin", "java")
		if _, err := os.Stat(java); err != nil {
			return "", fmt.Errorf("JAVA_HOME=%s holds no java: %w", home, err)
		}
		return java, nil
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return "", fmt.Errorf("a JDK (17 or later) is needed on the PATH or in JAVA_HOME: %w", err)
	}
	return java, nil
}

// ToolRun says how to run a Java program from Kafka's jars.
type ToolRun struct {
	Class  string // main class
	Args   []string
	Stdin  io.Reader
	HeapMB int // 256 when 0
	// Flags go to the JVM, such as -D settings.
	Flags   []string
	Classes string // folder of classes beside Kafka's, see [Installation.Compile]
}

// ToolResult is what a finished program left.
type ToolResult struct {
	Stdout, Stderr string
	ExitCode       int
	Took           time.Duration
}

// ToolError says that a program ran to an end that was not success.
type ToolError struct {
	Class  string
	Result ToolResult
}

func (e *ToolError) Error() string {
	return fmt.Sprintf("%s ended with code %d after %s:\n%s", e.Class, e.Result.ExitCode,
		e.Result.Took.Round(time.Millisecond), lastBytes(e.Result.Stderr, tailBytes))
}

func lastBytes(s string, n int) string { return s[max(0, len(s)-n):] }

// maxToolOutput bounds what one program's output may take here.
const maxToolOutput = 256 << 20

// Tool runs a Java program from Kafka's jars to its end, or kills it when ctx
// ends. A non-zero exit code is a *ToolError; the result is given all the same.
func (in *Installation) Tool(ctx context.Context, run ToolRun) (ToolResult, error) {
	argv, err := in.toolCommand(run)
	if err != nil {
		return ToolResult{ExitCode: -1}, err
	}
	out, errOut := &boundedBuffer{limit: maxToolOutput}, &boundedBuffer{limit: maxToolOutput}
	runtime.LockOSThread() // see childAttr
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.SysProcAttr = childAttr(false)
	cmd.WaitDelay = 5 * time.Second
	cmd.Stdin, cmd.Stdout, cmd.Stderr = run.Stdin, out, errOut
	begun := time.Now()
	err = cmd.Run()
	res := ToolResult{Stdout: out.String(), Stderr: errOut.String(), Took: time.Since(begun), ExitCode: exitCodeOf(err)}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return res, nil
	case ctx.Err() != nil:
		return res, fmt.Errorf("%s was killed after %s: %w\n%s", run.Class, res.Took.Round(time.Millisecond), ctx.Err(), lastBytes(res.Stderr, tailBytes))
	case errors.As(err, &exit):
		return res, &ToolError{Class: run.Class, Result: res}
	default:
		return res, fmt.Errorf("run %s: %w", run.Class, err)
	}
}

// StartTool starts a Java program from Kafka's jars and leaves it running, its
// output going to logFile. Stdin is not supported.
func (in *Installation) StartTool(ctx context.Context, name string, run ToolRun, logFile string) (*Process, error) {
	argv, err := in.toolCommand(run)
	if err != nil {
		return nil, err
	}
	if run.Stdin != nil {
		return nil, fmt.Errorf("start %s: a program that is left running reads no input", name)
	}
	return StartProcess(ctx, name, argv, nil, logFile)
}

// Command is the command line that runs a Java program from Kafka's jars, for scripts.
func (in *Installation) Command(run ToolRun) ([]string, error) { return in.toolCommand(run) }

// WriteTools makes programs in a folder that are called as the scripts of a Kafka installation are: the
// names of the scripts, and the classes that they run.
func (in *Installation) WriteTools(dir string, classes map[string]string) error {
	for name, class := range classes {
		argv, err := in.Command(ToolRun{Class: class})
		if err != nil {
			return err
		}
		for i, a := range argv {
			argv[i] = "'" + a + "'"
		}
		script := "#!/bin/sh\nexec " + strings.Join(argv, " ") + " \"$@\"\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

func (in *Installation) toolCommand(run ToolRun) ([]string, error) {
	java, err := javaBinary()
	if err != nil {
		return nil, err
	}
	heap := run.HeapMB
	if heap == 0 {
		heap = 256
	}
	argv := append([]string{java, fmt.Sprintf("-Xmx%dm", heap)}, fastStart...)
	argv = append(argv, "-Djava.awt.headless=true", "-Dlog4j2.configurationFile="+in.toolLogging)
	argv = append(argv, in.archiveFlags(java)...)
	argv = append(argv, run.Flags...)
	cp := in.Classpath()
	if run.Classes != "" { // last, or the archive would not fit
		cp += string(os.PathListSeparator) + run.Classes
	}
	argv = append(argv, "-cp", cp, run.Class)
	return append(argv, run.Args...), nil
}

// boundedBuffer fails a writer that writes more than the limit.
type boundedBuffer struct {
	bytes.Buffer
	limit int
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.limit {
		return 0, fmt.Errorf("output is over %d bytes", b.limit)
	}
	return b.Buffer.Write(p)
}
