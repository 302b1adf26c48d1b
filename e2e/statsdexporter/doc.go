// Package statsdexporter has statsd_exporter itself judge what Freshet says of it: that a
// converted file maps as the original does, and what it makes of a line of buckets.
package statsdexporter
