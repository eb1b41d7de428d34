package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// LibrdkafkaVersion is the release of librdkafka's Python client, which brings the library along.
const LibrdkafkaVersion = "2.6.1"

// Librdkafka gives a Python interpreter that has confluent_kafka, which is installed into the
// cache folder when it is not there. An error says why it cannot be had here, without python3 or
// a package index: tests may do without.
func Librdkafka(ctx context.Context) (python string, err error) {
	return LibrdkafkaOf(ctx, LibrdkafkaVersion)
}

// LibrdkafkaOf is [Librdkafka] of another version.
func LibrdkafkaOf(ctx context.Context, version string) (python string, err error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "librdkafka-"+version)
	python = filepath.Join(dir, "bin", "python")
	works := func() bool {
		_, err := runChild(ctx, "", python, "-c", "import confluent_kafka")
		return err == nil
	}
	if works() {
		return python, nil
	}
	unlock, err := lockFile(ctx, dir+".lock")
	if err != nil {
		return "", fmt.Errorf("librdkafka: %w", err)
	}
	defer unlock()
	if works() {
		return python, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("librdkafka: %w", err)
	}
	for _, args := range [][]string{
		{"python3", "-m", "venv", dir},
		{python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "confluent-kafka==" + version},
	} {
		if out, err := runChild(ctx, "", args[0], args[1:]...); err != nil {
			return "", fmt.Errorf("librdkafka: %v: %w\n%s", args, err, out)
		}
	}
	return python, nil
}
