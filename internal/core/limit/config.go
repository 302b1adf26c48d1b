package limit

import (
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Config is the "limits" section of the configuration file.
type Config struct {
	MaxSeries             int `yaml:"max_series" help:"series that a tenant may have at once; 0 for any number"`
	MaxSeriesPerMetric    int `yaml:"max_series_per_metric" help:"series that one metric of a tenant may have at once; 0 for any number"`
	MaxNewSeriesPerMinute int `yaml:"max_new_series_per_minute" help:"series that a tenant may begin in a minute, all of them at once if need be; 0 for any number"`

	MaxSeriesBytes conf.Bytes `yaml:"max_series_bytes" help:"longest name and tags of a series, as they are sent; 0 for any length up to 512KiB. Longer ones have no place, as if they were too many"`

	Tenants map[string]Override `yaml:"tenants" help:"other limits for some tenants, by name"`
}

// Override is what one tenant has in place of the limits of all.
type Override struct {
	MaxSeries             conf.OptionalInt `yaml:"max_series" help:"in place of limits.max_series"`
	MaxSeriesPerMetric    conf.OptionalInt `yaml:"max_series_per_metric" help:"in place of limits.max_series_per_metric"`
	MaxNewSeriesPerMinute conf.OptionalInt `yaml:"max_new_series_per_minute" help:"in place of limits.max_new_series_per_minute"`
}

// DefaultConfig fits a machine with 2 GB to spare. A series takes 6 kB, as
// docs/operations.md calculates: the collector's tables, open tiles, and the heads of
// two stores, 3.6 to 4.2 kB as e2e/sizing_test.go measures, and a margin.
func DefaultConfig() Config {
	return Config{
		// 100,000 x 6 kB = 600 MB for one tenant.
		MaxSeries: 100_000,
		// A tenth of them, 60 MB: no metric takes the place of all others.
		MaxSeriesPerMetric: 10_000,
		// A deployment of 3,000 containers with 10 series each within a minute. At
		// this rate a series that is gone stays in the heads of the stores for up to
		// three hours: 30,000 a minute for the three minutes until the tenant is full.
		MaxNewSeriesPerMinute: 30_000,
		// Three of what clients send in one UDP datagram, and half of what they send
		// to a Unix socket. The limits above count on series of some hundred bytes:
		// with 60 kB each they would be worth fifty times as much.
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
			problems = append(problems, conf.Problem{Key: limit.key, Text: "must be 0, for no limit, or more"})
		}
	}
	if c.MaxSeriesBytes < 0 {
		problems = append(problems, conf.Problem{Key: "max_series_bytes", Text: "must be 0, for any length up to 512KiB, or more"})
	}
	for name := range c.Tenants {
		if err := tenant.Check(name); err != nil {
			problems = append(problems, conf.Problem{Key: "tenants." + name, Text: err.Error()})
		}
	}
	return problems
}

// bounds are the limits of one tenant; 0 is no limit.
type bounds struct{ series, metricSeries, newSeries, bytes int }

// longest is how many bytes of name and tags a series may have.
func (b *bounds) longest() int {
	if b.bytes > 0 {
		return min(b.bytes, maxKey)
	}
	return maxKey
}

// long reports whether a series with so many bytes of name and tags, and this key, is
// too long.
func (b *bounds) long(length int, key []byte) bool { return length > b.longest() || len(key) > maxKey }

// Of is what holds for a tenant: its own limits, and those of all where it has none.
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
	return bounds{series: c.MaxSeries, metricSeries: c.MaxSeriesPerMetric, newSeries: c.MaxNewSeriesPerMinute, bytes: int(c.MaxSeriesBytes)}
}
