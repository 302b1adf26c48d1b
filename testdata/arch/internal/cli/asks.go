// Package cli knows a role and a server by more than their answers.
package cli

import (
	_ "github.com/freshet-io/freshet/internal/role/second"
	_ "github.com/freshet-io/freshet/internal/server"
)
