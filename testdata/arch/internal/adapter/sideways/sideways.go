// Package sideways is an adapter that reaches for another and for a role.
package sideways

import (
	_ "github.com/freshet-io/freshet/internal/adapter/files"
	_ "github.com/freshet-io/freshet/internal/role/second"
)
