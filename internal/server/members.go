package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/peer"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/role/gateway"
)

// changeTime bounds a change of a node's part in the cluster. Removing the leader takes an election.
const changeTime = 20 * time.Second

// serveChange returns the handler that changes the part of the node in the parameter `node`. A drain lasts for the
// parameter `for`, or without an end. Any node hands the call to the leader.
func (s *server) serveChange(kind peer.ChangeKind) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		respond := func(status int, body map[string]any) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(body) // fails if the client is gone
		}
		refuse := func(status int, kind, text string) {
			respond(status, map[string]any{"status": "error", "errorType": kind, "error": text})
		}
		change, err := readChange(kind, r)
		switch {
		case s.gateway == nil:
			refuse(http.StatusNotFound, "not_found", "this server is not a node of a cluster")
			return
		case err != nil:
			refuse(http.StatusBadRequest, "bad_data", err.Error())
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), changeTime)
		defer cancel()
		err = s.gateway.Call(ctx, func(ctx context.Context, at string) error {
			if at == s.config.Cluster.Node {
				return s.nodes.handler.Change(ctx, change)
			}
			return s.nodes.peers.Change(ctx, at, change)
		})
		switch {
		case err == nil:
			respond(http.StatusOK, map[string]any{"status": "success"})
		case ctx.Err() != nil, errors.Is(err, gateway.ErrNoLeader):
			refuse(http.StatusServiceUnavailable, "unavailable", err.Error())
		default:
			refuse(http.StatusConflict, "conflict", err.Error())
		}
	}
}

func readChange(kind peer.ChangeKind, r *http.Request) (c peer.Change, err error) {
	c.Kind, c.Node = kind, r.FormValue("node")
	if c.Node == "" {
		return c, errors.New("the parameter node is missing: it names a node of the cluster")
	}
	if lasts := r.FormValue("for"); lasts != "" && kind == peer.Drain {
		if c.Lasts, err = time.ParseDuration(lasts); err != nil || c.Lasts < time.Second {
			return c, fmt.Errorf("the parameter for is %.80q, not a duration of at least 1s, such as 1h", lasts)
		}
	}
	return c, nil
}

// Change implements peer.Handler.
func (h peerHandler) Change(ctx context.Context, c peer.Change) error {
	g, err := h.member()
	if err != nil {
		return fmt.Errorf("%w: %w", replica.ErrNotLeader, err)
	}
	switch node := c.Node; c.Kind {
	case peer.Replace:
		err = g.Replace(ctx, node)
	case peer.Remove:
		err = g.Remove(ctx, node)
	case peer.Drain:
		err = g.Drain(ctx, node, c.Lasts)
	case peer.Undrain:
		err = g.Undrain(ctx, node)
	default:
		return fmt.Errorf("node %s does not know change %d of a node: it has an older version", h.config.Node, c.Kind)
	}
	switch {
	case errors.Is(err, member.ErrUnknownNode):
		return fmt.Errorf("%w %.80q; `freshet cluster status` names all nodes", err, c.Node)
	case errors.Is(err, member.ErrAnswers):
		return fmt.Errorf("node %s cannot be replaced: %w; stop it first", c.Node, err)
	case errors.Is(err, member.ErrTooFew):
		return fmt.Errorf("node %s cannot be removed: %w, so the cluster could not go on; start them, or see "+
			"`freshet cluster status`", c.Node, err)
	case errors.Is(err, member.ErrNobodyElse):
		return fmt.Errorf("node %s cannot be drained: %w; see `freshet cluster status`", c.Node, err)
	case errors.Is(err, member.ErrOlder):
		return fmt.Errorf("%w: upgrade all nodes, and wait for cluster.upgrade_after", err)
	}
	return h.notLeader(g, err)
}
