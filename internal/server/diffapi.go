package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/role/ruler"
)

// maxConfigFile bounds the size of a configuration file in a request, in bytes. A mapping rule takes
// some hundred bytes.
const maxConfigFile = 1 << 20

// serveDiff answers with the changes that the configuration file in the request's body would make, with the rule files
// that it names as they are now. The request itself changes nothing.
func (s *server) serveDiff(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxConfigFile))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		// This fails only if the client is gone.
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "error", "errorType": "bad_data",
			"error": fmt.Sprintf("read the file: %v", err)})
		return
	}
	d := answer.Difference{Changes: []conf.Change{}, Rules: []answer.RuleChange{}, Problems: []string{}}
	next, err := s.reloader.source.LoadText(r.URL.Query().Get("name"), text)
	var rules ruler.Files
	if err == nil {
		rules, err = readRules(s.inForce().Reloaded(next)) // a reload refuses a broken file
	}
	if err != nil {
		d.Problems = conf.Lines(err)
	} else {
		d.Changes = append(d.Changes, conf.Diff(s.inForce(), next)...)
		if s.ruler != nil {
			d.Rules = s.ruler.Diff(rules)
		}
	}
	_ = json.NewEncoder(w).Encode(struct {
		Status string            `json:"status"`
		Data   answer.Difference `json:"data"`
	}{"success", d}) // fails only if the client is gone
}
