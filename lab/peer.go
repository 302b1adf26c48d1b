package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/freshet-io/freshet/lab/peers"
	"github.com/freshet-io/freshet/lab/report"
)

// peersDir keeps the built peers between runs.
const peersDir = ".cache/peers"

// buildPeers adds the peers to the lab as receivers. It builds the peers that are missing, which takes
// minutes for each, and leaves out peers that cannot be built.
func (l *lab) buildPeers(ctx context.Context) error {
	var steps []step
	for _, p := range peers.All() {
		if p.Built(peersDir) {
			l.addPeer(p)
			continue
		}
		steps = append(steps, step{
			what:  fmt.Sprintf("build %s %s, only this time; -no-peers leaves it out", p.Name, p.Version),
			takes: 2 * time.Minute,
			do: func(ctx context.Context) error {
				var said bytes.Buffer
				if err := p.Build(ctx, peersDir, &said); err != nil && ctx.Err() == nil {
					l.leaveOut("%v: %s", err, lastLine(said.String()))
					return nil
				}
				l.addPeer(p)
				return ctx.Err()
			},
		})
	}
	return l.progress.run(ctx, steps)
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func (l *lab) addPeer(p peers.Peer) {
	l.version(p.Name, p.Version)
	l.others = append(l.others, peerReceiver(p))
}

// peerReceiver returns a receiver that runs a peer on all cores.
func peerReceiver(p peers.Peer) receiver {
	name := p.Name
	if !p.Tags {
		name += ", no tags"
	}
	return receiver{name: name, group: report.Peer, flush: peers.Flush, unixgram: p.Unixgram, around: 6 * time.Second,
		start: func(ctx context.Context, _ string, _ cpus) (*running, error) {
			started, err := p.Start(ctx, peersDir)
			if err != nil {
				return nil, err
			}
			return &running{
				pid: started.PID, addresses: map[string]string{udp: started.UDP, unixgram: started.Unixgram}, stop: started.Stop,
				received: func(ctx context.Context) (counted, error) {
					r, err := started.Received(ctx)
					return counted{metrics: r.Metrics, datagrams: r.Datagrams}, err
				},
			}, nil
		}}
}
