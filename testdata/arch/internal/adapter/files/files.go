// Package files is an adapter that keeps the rules: it may open what it likes.
package files

import (
	_ "net/http"
	_ "os"

	_ "github.com/freshet-io/freshet/internal/adapter/files/format"
	_ "github.com/freshet-io/freshet/internal/core/pure"
)
