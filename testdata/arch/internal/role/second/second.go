// Package second is a role that keeps the rules.
package second

import (
	_ "github.com/freshet-io/freshet/internal/adapter/files"
	_ "github.com/freshet-io/freshet/internal/lib/plain"
)
