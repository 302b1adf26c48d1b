// Package statsdexporter checks two claims of Freshet's documents against statsd_exporter's own
// code: that a converted mapping file maps like the original, and how statsd_exporter reads a line
// of buckets.
package statsdexporter
