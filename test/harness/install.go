package harness

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"text/template"
	"time"
)

const (
	// Version44 and Version43 are the lines of Kafka that the tests cover by
	// default. Any other version works by parameter.
	Version44 = "4.4.0"
	Version43 = "4.3.1"
	// Version39 is the last line before 4.0: a source that has not been upgraded yet.
	Version39 = "3.9.1"
	// DefaultVersion is what an empty version means.
	DefaultVersion = Version44
	// VersionHome asks for the installation that KAFKA_HOME names, whatever its
	// version is.
	VersionHome = "home"
	// MirrorMakerVersion is the newest MirrorMaker 2 whose artifact is
	// published where the rest is (connect-mirror 4.4.0 was not).
	MirrorMakerVersion = Version43

	// EnvCache names the folder that holds downloaded jars instead of the
	// user's cache folder.
	EnvCache = "MIRROR_TEST_CACHE"
	// EnvKafkaHome names an existing installation, used when it has the wanted version.
	EnvKafkaHome = "KAFKA_HOME"

	mavenTimeout = 15 * time.Minute
	// completeMarker is written last: a folder without it was interrupted.
	completeMarker = "complete"
)

// Installation is a set of Kafka's jars.
type Installation struct {
	Version string
	Libs    string // folder of the jars
	// brokerLogging and toolLogging are log4j2 configurations: everything at
	// INFO to standard output, and warnings to standard error. oldLogging is the former in the
	// words of log4j 1, which may be the one that versions before 4.0 find first.
	brokerLogging, toolLogging, oldLogging string
}

// Install finds or fetches the jars of a version. It may take minutes the
// first time, and milliseconds later; any number of processes may call it at once.
func Install(ctx context.Context, version string) (*Installation, error) {
	if version == "" {
		version = DefaultVersion
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	in := &Installation{Version: version}
	if err := in.writeLogging(cache); err != nil {
		return nil, err
	}
	if home := os.Getenv(EnvKafkaHome); home != "" {
		libs := filepath.Join(home, "libs")
		found, err := versionOf(libs)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s=%s is no Kafka installation: %w", EnvKafkaHome, home, err)
		case version == VersionHome || version == found:
			in.Version, in.Libs = found, libs
			return in, nil
		}
	} else if version == VersionHome {
		return nil, fmt.Errorf("the version asked for is that of %s, which is not set", EnvKafkaHome)
	}
	in.Libs, err = fetchJars(ctx, cache, "kafka-"+version, []artifact{
		{"org.apache.kafka", "kafka_2.13", version},
		{"org.apache.kafka", "kafka-tools", version},
		{"org.apache.kafka", "connect-runtime", version},
	})
	if err != nil {
		return nil, fmt.Errorf("fetch Kafka %s: %w", version, err)
	}
	return in, nil
}

// InstallMirrorMaker fetches MirrorMaker 2 (class [MirrorMakerClass]), which is
// kept apart from the brokers' jars: it is published for fewer versions.
func InstallMirrorMaker(ctx context.Context, version string) (*Installation, error) {
	if version == "" {
		version = MirrorMakerVersion
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	in := &Installation{Version: version}
	if err := in.writeLogging(cache); err != nil {
		return nil, err
	}
	in.Libs, err = fetchJars(ctx, cache, "mirrormaker-"+version, []artifact{
		{"org.apache.kafka", "connect-mirror", version},
	})
	if err != nil {
		return nil, fmt.Errorf("fetch MirrorMaker %s: %w", version, err)
	}
	return in, nil
}

// MirrorMakerClass is MirrorMaker 2's main class.
const MirrorMakerClass = "org.apache.kafka.connect.mirror.MirrorMaker"

// Classpath is what java's -cp takes.
func (in *Installation) Classpath() string { return filepath.Join(in.Libs, "*") }

func cacheDir() (string, error) {
	dir := os.Getenv(EnvCache)
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find the cache folder for Kafka's jars (set %s): %w", EnvCache, err)
		}
		dir = filepath.Join(user, "mirror-sidecar")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("cache folder: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder for Kafka's jars: %w", err)
	}
	return dir, nil
}

var kafkaJar = regexp.MustCompile(`^kafka-clients-(\d+\.\d+\.\d+.*)\.jar$`)

func versionOf(libs string) (string, error) {
	entries, err := os.ReadDir(libs)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if m := kafkaJar.FindStringSubmatch(e.Name()); m != nil && !strings.HasSuffix(m[1], "-test") {
			return m[1], nil
		}
	}
	return "", fmt.Errorf("no kafka-clients jar in %s", libs)
}

type artifact struct{ Group, Name, Version string }

// The logging binding is not among Kafka's dependencies; a distribution brings its own.
const log4jVersion = "2.24.3"

var pom = template.Must(template.New("pom").Parse(`<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>mirror-sidecar.test</groupId>
  <artifactId>{{.Name}}</artifactId>
  <version>1</version>
  <dependencies>{{range .Artifacts}}
    <dependency><groupId>{{.Group}}</groupId><artifactId>{{.Name}}</artifactId><version>{{.Version}}</version></dependency>{{end}}
  </dependencies>
</project>
`))

var versionForm = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+-]*$`)

// fetchJars lets Maven copy the artifacts and all they need into a folder of
// the cache, once. One lock for the whole cache: Maven's own repository is not
// safe for concurrent writers.
func fetchJars(ctx context.Context, cache, name string, artifacts []artifact) (libs string, err error) {
	dir := filepath.Join(cache, name)
	libs = filepath.Join(dir, "libs")
	marker := filepath.Join(dir, completeMarker)
	if _, err := os.Stat(marker); err == nil {
		return libs, nil
	}
	for _, a := range artifacts {
		if !versionForm.MatchString(a.Version) {
			return "", fmt.Errorf("%q is no version", a.Version)
		}
	}
	unlock, err := lockFile(ctx, filepath.Join(cache, "lock"))
	if err != nil {
		return "", fmt.Errorf("wait for another process that fetches: %w", err)
	}
	defer unlock()
	if _, err := os.Stat(marker); err == nil { // the other process did it
		return libs, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	artifacts = append(artifacts,
		artifact{"org.apache.logging.log4j", "log4j-slf4j-impl", log4jVersion},
		artifact{"org.apache.logging.log4j", "log4j-core", log4jVersion})
	var text bytes.Buffer
	if err := pom.Execute(&text, struct {
		Name      string
		Artifacts []artifact
	}{name, artifacts}); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "pom.xml"), text.Bytes(), 0o644); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, mavenTimeout)
	defer cancel()
	// The second try asks Maven to forget failures that it remembers (-U).
	args := []string{"-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=" + libs}
	out, err := runChild(ctx, dir, "mvn", args...)
	if err != nil && ctx.Err() == nil {
		out, err = runChild(ctx, dir, "mvn", append([]string{"-U"}, args...)...)
	}
	if err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return "", fmt.Errorf("mvn is not on the PATH; install Maven, or set %s to an installation of this version: %w", EnvKafkaHome, err)
		}
		return "", fmt.Errorf("mvn %s in %s: %w\n%s", strings.Join(args, " "), dir, err, out)
	}
	if _, err := os.Stat(libs); err != nil {
		return "", fmt.Errorf("mvn succeeded and copied nothing: %w", err)
	}
	if err := os.WriteFile(marker, nil, 0o644); err != nil {
		return "", err
	}
	return libs, nil
}

const brokerLogging = `status=error
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=INFO
rootLogger.appenderRef.out.ref=out
`

const toolLogging = `status=error
appender.err.type=Console
appender.err.name=err
appender.err.target=SYSTEM_ERR
appender.err.layout.type=PatternLayout
appender.err.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=WARN
rootLogger.appenderRef.err.ref=err
`

const oldLogging = `log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
`

// loggingFlags are what a JVM that stays needs to log as the harness expects.
func (in *Installation) loggingFlags() []string {
	return []string{"-Dlog4j2.configurationFile=" + in.brokerLogging, "-Dlog4j.configuration=file:" + in.oldLogging}
}

func (in *Installation) writeLogging(cache string) error {
	in.brokerLogging = filepath.Join(cache, "log4j2-broker.properties")
	in.toolLogging = filepath.Join(cache, "log4j2-tool.properties")
	in.oldLogging = filepath.Join(cache, "log4j1-broker.properties")
	for name, text := range map[string]string{in.brokerLogging: brokerLogging, in.toolLogging: toolLogging, in.oldLogging: oldLogging} {
		if old, err := os.ReadFile(name); err == nil && string(old) == text {
			continue
		}
		if err := writeAtomically(name, []byte(text)); err != nil {
			return fmt.Errorf("write logging configuration: %w", err)
		}
	}
	return nil
}

// writeAtomically lets concurrent writers and readers see a whole file.
func writeAtomically(name string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err := f.Write(data); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Chmod(f.Name(), 0o644); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// FindClass returns the first of the named classes that the jars hold: tools
// move between packages from one Kafka version to the next.
func (in *Installation) FindClass(names ...string) (string, error) {
	entries, err := os.ReadDir(in.Libs)
	if err != nil {
		return "", fmt.Errorf("read Kafka's jars: %w", err)
	}
	have := map[string]bool{}
	for _, e := range entries {
		base := e.Name()
		if !strings.HasSuffix(base, ".jar") || !strings.HasPrefix(base, "kafka") && !strings.HasPrefix(base, "connect") {
			continue
		}
		if err := classesIn(filepath.Join(in.Libs, base), names, have); err != nil {
			return "", err
		}
	}
	for _, n := range names {
		if have[n] {
			return n, nil
		}
	}
	return "", fmt.Errorf("kafka %s has no class %s: %w", in.Version, strings.Join(names, " or "), fs.ErrNotExist)
}

func classesIn(jar string, names []string, have map[string]bool) error {
	z, err := zip.OpenReader(jar)
	if err != nil {
		return fmt.Errorf("open %s: %w", jar, err)
	}
	defer z.Close()
	paths := make([]string, len(names))
	for i, n := range names {
		paths[i] = strings.ReplaceAll(n, ".", "/") + ".class"
	}
	for _, f := range z.File {
		for i, p := range paths {
			if f.Name == p {
				have[names[i]] = true
			}
		}
	}
	return nil
}

// sortedKeys gives maps a stable order in files and command lines.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
