package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/explain"
)

// explainer returns an Explainer that knows the present state of this server.
func (s *server) explainer() (*explain.Explainer, error) {
	now := time.Now()
	x, err := explain.New(s.inForce(), now)
	if err != nil {
		return nil, err
	}
	x.Peek = s.peekName
	x.Arrives = func(tenant string) (sockets []string) {
		for _, l := range s.collector.Listening() {
			if l.Tenant == tenant {
				sockets = append(sockets, l.Network+" "+l.Address)
			}
		}
		return sockets
	}
	x.Admit = func(tenant string, key []byte, source uint64, length int) limit.Prospect {
		return s.limiter.Peek(now.UnixNano(), tenant, key, source, length)
	}
	return x, nil
}

// serveExplain explains a line or a datagram. A GET has the line in the parameter `line`, and a POST has
// the raw datagram as its body.
func (s *server) serveExplain(w http.ResponseWriter, r *http.Request) {
	respond := func(status int, body map[string]any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body) // fails only if the client is gone
	}
	refuse := func(status int, kind string, err error) {
		respond(status, map[string]any{"status": "error", "errorType": kind, "error": err.Error()})
	}
	packet := []byte(r.URL.Query().Get("line"))
	if r.Method == http.MethodPost {
		var err error
		if packet, err = io.ReadAll(http.MaxBytesReader(w, r.Body, explain.MaxBytes)); err != nil {
			refuse(http.StatusBadRequest, "bad_data", fmt.Errorf("read the datagram: %w", err))
			return
		}
	}
	name := tenantOf(r)
	if asked := r.URL.Query().Get("tenant"); asked != "" && asked != name {
		if err := tenant.Check(asked); err != nil {
			refuse(http.StatusBadRequest, "bad_data", err)
			return
		}
		// The answer shows names of the tenant. Other tenants, and users of other addresses, must not
		// see them.
		err := s.notOperator(r)
		if s.access.Load() != nil && !s.vouched(r, claimOf(r)) {
			err = fmt.Errorf("send the request as tenant %s, by its token or header", asked)
		}
		if err != nil {
			refuse(http.StatusForbidden, "forbidden", fmt.Errorf("lines of another tenant are not explained: %w", err))
			return
		}
		name = asked
	}
	x, err := s.explainer()
	if err != nil {
		refuse(http.StatusInternalServerError, "internal", err)
		return
	}
	respond(http.StatusOK, map[string]any{"status": "success", "data": x.Explain(name, packet)})
}
