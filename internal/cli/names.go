package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"

	"github.com/prometheus/common/model"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
)

// maxCompletions bounds each list of names, since nobody reads more.
const maxCompletions = 200

// names are the names that a server has, to complete what a user writes. A server that gives no answer before
// ctx ends has none: the user then writes on without them.
type names struct {
	ctx    context.Context // of one completion
	server apiclient.Server
}

// Metrics returns metrics that begin with `prefix`.
func (n names) Metrics(prefix string) []string {
	if prefix == "" { // no selector, because a selector may not be empty
		return n.Values("__name__")
	}
	return n.Values("__name__", fmt.Sprintf("{__name__=~%q}", regexp.QuoteMeta(prefix)+".*"))
}

// Labels returns the labels of the series that match a selector.
func (n names) Labels(selectors ...string) []string { return n.ask("/api/v1/labels", selectors) }

// Values returns the values that a label has in the series that match a selector.
func (n names) Values(label string, selectors ...string) []string {
	path := url.PathEscape(model.EscapeName(label, model.ValueEncodingEscaping))
	return n.ask("/api/v1/label/"+path+"/values", selectors)
}

func (n names) ask(path string, selectors []string) (found []string) {
	params := url.Values{"limit": {fmt.Sprint(maxCompletions)}}
	if len(selectors) > 0 {
		params["match[]"] = selectors
	}
	_, a, err := n.server.Ask(n.ctx, path, params)
	if err != nil || json.Unmarshal(a.Data, &found) != nil {
		return nil
	}
	return found
}
