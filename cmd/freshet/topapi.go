package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/freshet-io/freshet/internal/role/collector"
)

// defaultTop is how many rows of each list are shown unless told otherwise.
const defaultTop = 20

// serveTop says what is busiest in a tenant. To ask makes the server count, for a
// while.
func (s *server) serveTop(w http.ResponseWriter, r *http.Request) {
	respond := func(status int, body map[string]any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body) // fails if the client went away
	}
	limit, err := parseTop(r.FormValue("limit"))
	if err != nil {
		respond(http.StatusBadRequest, map[string]any{"status": "error", "errorType": "bad_data", "error": err.Error()})
		return
	}
	top, err := s.collector.Top(r.Context(), tenantOf(r), limit)
	if err != nil {
		return // the client went away
	}
	respond(http.StatusOK, map[string]any{"status": "success", "data": top})
}

// parseTop reads how many rows of each list are wanted.
func parseTop(text string) (int, error) {
	if text == "" {
		return defaultTop, nil
	}
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 || limit > collector.MaxTop {
		return 0, fmt.Errorf("limit = %s: is not a number from 1 to %d", text, collector.MaxTop)
	}
	return limit, nil
}
