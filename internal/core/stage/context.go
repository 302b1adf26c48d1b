package stage

import "context"

type key struct{}

// NewContext says which trip is under way.
func NewContext(ctx context.Context, t *Trip) context.Context {
	return context.WithValue(ctx, key{}, t)
}

// FromContext is the trip that is under way, or nil.
func FromContext(ctx context.Context) *Trip {
	t, _ := ctx.Value(key{}).(*Trip)
	return t
}
