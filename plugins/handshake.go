package plugins

import (
	"context"
	"errors"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

// Name is what a plugin serves, in go-plugin's words.
const Name = "policy"

// MaxMessageBytes bounds what is sent to a plugin in one message. Hosts split what is larger where
// it can be split.
const MaxMessageBytes = 64 << 20

// Handshake is what host and plugin agree on before they talk. Its version changes with what cannot
// be said in package policyv1.
func Handshake() goplugin.HandshakeConfig {
	return goplugin.HandshakeConfig{ProtocolVersion: 1, MagicCookieKey: "MIRROR_SIDECAR_PLUGIN", MagicCookieValue: "policy"}
}

// Connection is the host's side for go-plugin: dispensed is the connection itself.
type Connection struct {
	goplugin.NetRPCUnsupportedPlugin
}

// GRPCClient implements go-plugin's interface.
func (Connection) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, c *grpc.ClientConn) (any, error) {
	return c, nil
}

// GRPCServer implements go-plugin's interface.
func (Connection) GRPCServer(*goplugin.GRPCBroker, *grpc.Server) error {
	return errors.New("this is the host's side")
}
