package main

import (
	"context"
	"errors"
	"testing"

	"github.com/cluster-mirroring/mirror-sidecar/replica"
)

// TestWhyThereIsNoHomeBroker: a login that is refused is told, also when the time was up in the middle of the next try.
func TestWhyThereIsNoHomeBroker(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	refused := errors.New("SASL_AUTHENTICATION_FAILED")
	tries := 0
	_, err := untilFound(ctx, func() (replica.Home, error) {
		if tries++; tries == 1 {
			return replica.Home{}, refused
		}
		cancel()
		return replica.Home{}, ctx.Err()
	})
	if !errors.Is(err, refused) {
		t.Errorf("%v after %d tries", err, tries)
	}
	other := &otherClusterError{home: "a", controllers: "b"}
	tries = 0
	if _, err := untilFound(t.Context(), func() (replica.Home, error) { tries++; return replica.Home{}, other }); !errors.Is(err, other) || tries != 1 {
		t.Errorf("another cluster: %v after %d tries", err, tries)
	}
}
