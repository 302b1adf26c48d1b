// Package e2e drives the binary and may use what it likes.
package e2e

import _ "github.com/freshet-io/freshet/internal/adapter/files"
