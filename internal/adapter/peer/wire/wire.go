// Package wire has the messages and methods of the protocol between nodes, generated from peer.proto.
// Package peer checks and uses them.
package wire

//go:generate go run github.com/bufbuild/buf/cmd/buf@v1.57.2 generate --template buf.gen.yaml
