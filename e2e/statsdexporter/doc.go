// Package statsdexporter tests against statsd_exporter's own code what Freshet's documents say: that
// a converted mapping file maps like the original, and how statsd_exporter reads a line of buckets.
package statsdexporter
