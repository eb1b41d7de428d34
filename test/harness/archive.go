package harness

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// Half of a broker's start is loading classes. A class data archive, made once
// per version of Kafka and of Java by running a broker and ending it in an
// orderly way, saves that half: 1.4 seconds of CPU for each node on the machine
// where it was measured, and a third of the run of a tool.

// trainTimeout bounds the making of an archive.
const trainTimeout = time.Minute

// archiveFile names the archive of these jars and this Java. The JVM ignores one
// that does not fit, so a name that is too general would only be slow.
func (in *Installation) archiveFile(java string) (string, error) {
	real, err := filepath.EvalSymlinks(java)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(real)
	if err != nil {
		return "", err
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%d", in.Libs, real, info.ModTime().UnixNano()))
	return filepath.Join(cache, fmt.Sprintf("archive-%s-%s.jsa", in.Version, hex.EncodeToString(sum[:6]))), nil
}

// archiveFlags make a JVM use the archive, if there is one.
func (in *Installation) archiveFlags(java string) []string {
	file, err := in.archiveFile(java)
	if err != nil {
		return nil
	}
	if _, err := os.Stat(file); err != nil {
		return nil
	}
	return []string{"-XX:SharedArchiveFile=" + file, "-Xshare:auto"}
}

// ensureArchive makes the archive if it is not there. It is only for speed:
// without it everything works, so what goes wrong is logged, remembered and
// not tried again; only ctx's end is an error.
func (in *Installation) ensureArchive(ctx context.Context, java string, log *slog.Logger) error {
	file, err := in.archiveFile(java)
	if err != nil {
		log.Warn("no class data archive", "error", err)
		return nil
	}
	failed := file + ".failed"
	if exists(file) || exists(failed) {
		return nil
	}
	unlock, err := lockFile(ctx, file+".lock")
	if err != nil {
		return fmt.Errorf("wait for another process that makes the class data archive: %w", err)
	}
	defer unlock()
	if exists(file) || exists(failed) {
		return nil
	}
	begun := time.Now()
	err = in.train(ctx, file)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("make the class data archive: %w", ctx.Err())
	case err != nil:
		log.Warn("no class data archive: starts will be slower", "error", err)
		if err := os.WriteFile(failed, []byte(err.Error()), 0o644); err != nil {
			log.Warn("could not note that there is no class data archive", "error", err)
		}
	default:
		log.Info("class data archive made", "file", file, "took", time.Since(begun).Round(time.Millisecond))
	}
	return nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func (in *Installation) train(ctx context.Context, file string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, trainTimeout)
	defer cancel()
	made := file + ".new" // the lock keeps others away from it
	if err := os.RemoveAll(made); err != nil {
		return err
	}
	cfg, err := Config{
		Name: "training", Brokers: 1, StartTimeout: trainTimeout,
		JVMFlags: []string{"-XX:ArchiveClassesAtExit=" + made},
	}.withDefaults()
	if err != nil {
		return err
	}
	c, err := startOnce(ctx, cfg, in)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	if err := c.nodes[0].Stop(ctx); err != nil {
		return err
	}
	if !exists(made) {
		return fmt.Errorf("the JVM made none; the end of its log:\n%s", c.nodes[0].LogTail())
	}
	return os.Rename(made, file)
}
