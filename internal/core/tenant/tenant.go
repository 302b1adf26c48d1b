// Package tenant holds the name of whose series are meant: which names there
// can be, how one travels with a request, and who may use which. Where a request has
// its token or header is known to those who take requests in.
package tenant

import (
	"context"
	"fmt"
)

// Default is the tenant of everything that names none.
const Default = "default"

// Own is the tenant of what Freshet measures of itself.
const Own = "freshet"

// maxLength of a name, in bytes: it is a directory and a label value.
const maxLength = 64

// Check says what is wrong with name as the name of a tenant. Names become
// directories, so that what could leave the directory above must not pass.
func Check(name string) error {
	if name == "" || len(name) > maxLength || name == "." || name == ".." {
		return fmt.Errorf("tenant %.80q: not a name; use 1 to %d letters, digits, dots, dashes and underscores", name, maxLength)
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.':
		default:
			return fmt.Errorf("tenant %.80q: %q is not allowed; use 1 to %d letters, digits, dots, dashes and underscores", name, c, maxLength)
		}
	}
	return nil
}

type contextKey struct{}

// NewContext returns ctx with the tenant on whose behalf it acts.
func NewContext(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, contextKey{}, name)
}

// FromContext returns the tenant that NewContext put into ctx. Without one there
// is no default: a request that lost its tenant must not read somebody else's.
func FromContext(ctx context.Context) (name string, ok bool) {
	name, ok = ctx.Value(contextKey{}).(string)
	return name, ok
}
