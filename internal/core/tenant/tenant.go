// Package tenant holds the names of tenants: which names are valid, how a name travels with a
// request, and which requests may use which tenant. Callers that receive requests know where a
// request carries its token or header.
package tenant

import (
	"context"
	"fmt"
)

// Default is the tenant of requests and sockets that name none.
const Default = "default"

// Own is the tenant of Freshet's own metrics.
const Own = "freshet"

// maxLength is the maximum length of a name, in bytes: a name is also a directory and a label
// value.
const maxLength = 64

// naming says which names are valid.
const naming = "1 to 64 letters, digits, dots, dashes and underscores"

// Check returns an error if `name` is not a valid name of a tenant. Names become directories, so
// Check refuses any name that could leave the parent directory.
func Check(name string) error {
	if name == "" || len(name) > maxLength || name == "." || name == ".." {
		return fmt.Errorf("tenant %.80q: not a name; use %s", name, naming)
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.':
		default:
			return fmt.Errorf("tenant %.80q: %q is not allowed; use %s", name, c, naming)
		}
	}
	return nil
}

type contextKey struct{}

// NewContext returns ctx with `name`, the tenant for which ctx is used.
func NewContext(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, contextKey{}, name)
}

// FromContext returns the tenant that NewContext put into ctx. There is no default: a request
// that lost its tenant must not read another tenant's data.
func FromContext(ctx context.Context) (name string, ok bool) {
	name, ok = ctx.Value(contextKey{}).(string)
	return name, ok
}
