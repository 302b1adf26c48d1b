module github.com/freshet-io/freshet/lab/peers/telegraf

go 1.26.0

// For a plugin that is not built. The checksum database does not know it.
exclude github.com/SAP/go-hdb v1.14.18

// No tool directive: it would ask for the modules of all plugins.
require github.com/influxdata/telegraf v1.37.2

// Newer than telegraf asks for: the versions of Freshet's go.mod, which have those of a
// hundred others in their train. So `make clients` finds most of it downloaded and compiled.
require (
	github.com/klauspost/compress v1.20.3
	github.com/prometheus/prometheus v0.315.0
	golang.org/x/net v0.61.0
	golang.org/x/oauth2 v0.37.0
)
