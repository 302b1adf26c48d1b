// Package partial carries in a context whether a query accepts an answer that may lack the newest samples.
package partial

import (
	"context"
	"errors"
)

// ErrElsewhere means that this node lacks what a query needs, and that another node of the cluster has it.
var ErrElsewhere = errors.New("ask another node")

type key struct{}

// NewContext returns a context of a query that accepts a partial answer. The answer has a warning.
func NewContext(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// Accepted reports whether the query of a context accepts a partial answer.
func Accepted(ctx context.Context) bool {
	accepted, _ := ctx.Value(key{}).(bool)
	return accepted
}
