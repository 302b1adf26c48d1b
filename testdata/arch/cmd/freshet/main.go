// Command freshet may import every layer.
package main

import (
	_ "github.com/freshet-io/freshet/internal/adapter/files"
	_ "github.com/freshet-io/freshet/internal/core/pure"
	_ "github.com/freshet-io/freshet/internal/lib/plain"
	_ "github.com/freshet-io/freshet/internal/role/first"
)

func main() {}
