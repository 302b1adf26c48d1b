package stage

import "context"

type key struct{}

// NewContext returns ctx with t, the trip under way.
func NewContext(ctx context.Context, t *Trip) context.Context {
	return context.WithValue(ctx, key{}, t)
}

// FromContext returns the trip under way, or nil.
func FromContext(ctx context.Context) *Trip {
	t, _ := ctx.Value(key{}).(*Trip)
	return t
}
