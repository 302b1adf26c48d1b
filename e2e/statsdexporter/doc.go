// Package statsdexporter checks two claims of Freshet's documents against statsd_exporter's own code: a
// converted mapping file maps like the original, and statsd_exporter counts no value of a line of
// buckets.
package statsdexporter
