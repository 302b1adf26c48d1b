package limit

import (
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Config is the "limits" section of the configuration file.
type Config struct {
	MaxSeries             int `yaml:"max_series" help:"series that a tenant may have at once; 0: no limit"`
	MaxSeriesPerMetric    int `yaml:"max_series_per_metric" help:"series that a metric of a tenant may have at once; 0: no limit"`
	MaxNewSeriesPerMinute int `yaml:"max_new_series_per_minute" help:"new series of a tenant in a minute, possibly all at once; 0: no limit"`

	MaxSeriesBytes conf.Bytes `yaml:"max_series_bytes" help:"largest size of a series' name and tags, as sent, together with a check's host and the origin fields of mapping.origin_labels; 0: up to 512KiB"`

	Tenants map[string]Override `yaml:"tenants" help:"limits of single tenants, by name"`
}

// Override has the limits of one tenant that differ from the general ones.
type Override struct {
	MaxSeries             conf.OptionalInt `yaml:"max_series" help:"overrides limits.max_series"`
	MaxSeriesPerMetric    conf.OptionalInt `yaml:"max_series_per_metric" help:"overrides limits.max_series_per_metric"`
	MaxNewSeriesPerMinute conf.OptionalInt `yaml:"max_new_series_per_minute" help:"overrides limits.max_new_series_per_minute"`
}

// DefaultConfig fits a machine with 2 GB to spare. A series takes 6 kB, as docs/operations.md
// calculates. The collector's tables, open tiles and the heads of two stores take 3.6 to 4.2 kB, as
// e2e/sizing_test.go measures. The rest is a margin.
func DefaultConfig() Config {
	return Config{
		// 100,000 x 6 kB = 600 MB for one tenant.
		MaxSeries: 100_000,
		// A tenth of MaxSeries, 60 MB, so that one metric cannot take all places.
		MaxSeriesPerMetric: 10_000,
		// Enough for a deployment of 3,000 containers with 10 series each within a minute. A series
		// that is gone stays in the heads of the stores for up to three hours. At this rate a
		// tenant is full after three minutes.
		MaxNewSeriesPerMinute: 30_000,
		// Three times the usual UDP datagram of a client, and half of the usual datagram to a Unix
		// socket. The limits above assume that a series has some hundred bytes: series of 60 kB
		// would take far more memory.
		MaxSeriesBytes: 4 << 10,
	}
}

// Validate is part of conf.Validator.
func (c Config) Validate() []conf.Problem {
	var problems []conf.Problem
	for _, limit := range []struct {
		key   string
		value int
	}{
		{"max_series", c.MaxSeries},
		{"max_series_per_metric", c.MaxSeriesPerMetric},
		{"max_new_series_per_minute", c.MaxNewSeriesPerMinute},
	} {
		if limit.value < 0 {
			problems = append(problems, conf.Problem{Key: limit.key, Text: "must be 0 or more; 0 is no limit"})
		}
	}
	if c.MaxSeriesBytes < 0 {
		problems = append(problems,
			conf.Problem{Key: "max_series_bytes", Text: "must be 0 or more; 0 allows any length up to 512KiB"})
	}
	for name := range c.Tenants {
		if err := tenant.Check(name); err != nil {
			problems = append(problems, conf.Problem{Key: "tenants." + name, Text: err.Error()})
		}
	}
	return problems
}

// bounds are the limits of one tenant; 0 means no limit.
type bounds struct{ series, metricSeries, newSeries, bytes int }

// longest returns how many bytes the name and tags of a series may have.
func (b *bounds) longest() int {
	if b.bytes > 0 {
		return min(b.bytes, maxKey)
	}
	return maxKey
}

// long reports whether a series is too long, by the bytes of its name and tags or by its key.
func (b *bounds) long(length int, key []byte) bool { return length > b.longest() || len(key) > maxKey }

// Of returns the limits of a tenant: its overrides, and the general limits for the rest.
func (c Config) Of(tenant string) Config {
	o := c.Tenants[tenant]
	return Config{
		MaxSeries:             o.MaxSeries.Or(c.MaxSeries),
		MaxSeriesPerMetric:    o.MaxSeriesPerMetric.Or(c.MaxSeriesPerMetric),
		MaxNewSeriesPerMinute: o.MaxNewSeriesPerMinute.Or(c.MaxNewSeriesPerMinute),
		MaxSeriesBytes:        c.MaxSeriesBytes,
	}
}

func (c Config) of(tenant string) bounds {
	c = c.Of(tenant)
	return bounds{
		series: c.MaxSeries, metricSeries: c.MaxSeriesPerMetric, newSeries: c.MaxNewSeriesPerMinute,
		bytes: int(c.MaxSeriesBytes),
	}
}
