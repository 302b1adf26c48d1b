module github.com/freshet-io/freshet/lab/logging

go 1.26.0

replace github.com/freshet-io/freshet => ../..

require (
	github.com/freshet-io/freshet v0.0.0
	github.com/rs/zerolog v1.35.1
	github.com/sirupsen/logrus v1.10.2
	go.uber.org/zap v1.28.0
	golang.org/x/sys v0.49.0
)

require (
	github.com/mattn/go-colorable v0.1.14 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	go.uber.org/multierr v1.11.0 // indirect
)
