// Package server may import a role, and knows a command.
package server

import (
	_ "github.com/freshet-io/freshet/internal/cli"
	_ "github.com/freshet-io/freshet/internal/role/second"
)
