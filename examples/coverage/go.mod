module github.com/freshet-io/freshet/examples/coverage

go 1.26.0

replace (
	github.com/freshet-io/freshet/client => ../../client
	github.com/freshet-io/freshet/slogring => ../../slogring
)

require (
	github.com/elastic/elastic-transport-go/v8 v8.11.0
	github.com/freshet-io/freshet/client v0.0.0
	github.com/freshet-io/freshet/slogring v0.0.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/otel v1.46.0 // indirect
	go.opentelemetry.io/otel/metric v1.46.0 // indirect
	go.opentelemetry.io/otel/trace v1.46.0 // indirect
)
