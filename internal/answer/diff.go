package answer

import "github.com/freshet-io/freshet/internal/lib/conf"

// Difference says what a configuration file would change: POST /api/v1/status/diff.
type Difference struct {
	Changes  []conf.Change `json:"changes"`
	Problems []string      `json:"problems"` // problems of the file; if there are any, Changes is empty
}
