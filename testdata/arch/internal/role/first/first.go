// Package first is a role that reaches sideways and up.
package first

import (
	_ "github.com/freshet-io/freshet/cmd/freshet"
	_ "github.com/freshet-io/freshet/internal/core/pure"
	_ "github.com/freshet-io/freshet/internal/role/second"
)
