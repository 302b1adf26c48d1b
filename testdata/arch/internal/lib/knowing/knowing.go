// Package knowing is a library that knows something of metrics.
package knowing

import _ "github.com/freshet-io/freshet/internal/core/pure"
