module github.com/freshet-io/freshet/lab/peers/telegraf

go 1.26.0

// For a plugin that is not built. The checksum database does not know it.
exclude github.com/SAP/go-hdb v1.14.18

// No tool directive: it would ask for the modules of all plugins.
require github.com/influxdata/telegraf v1.37.2
