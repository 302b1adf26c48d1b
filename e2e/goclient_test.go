package e2e

import (
	"testing"
	"time"

	"github.com/DataDog/datadog-go/v5/statsd"
)

// The modes in which datadog-go aggregates before it sends.
var (
	plain      = statsd.WithoutClientSideAggregation()
	aggregated = statsd.WithClientSideAggregation()         // aggregates counts, gauges and sets; the default
	extended   = statsd.WithExtendedClientSideAggregation() // also packs values of timers, histograms and distributions
)

// goClient runs a Go client in this process. The other clients are scripts, which run in processes of
// their own.
func goClient(mode statsd.Option) func(*testing.T, order) report {
	return func(t *testing.T, o order) report {
		t.Helper()
		direct, tapped := dialStatsd(t, o.Network, o.Address, mode), dialStatsd(t, o.Network, o.Tap, mode)
		for _, op := range o.Operations {
			c := direct
			if op.Rate != 1 {
				c = tapped
			}
			if err := call(c, op); err != nil {
				t.Fatalf("%s %s: %v", op.Method, op.Name, err)
			}
		}
		for _, c := range []*statsd.Client{direct, tapped} {
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			if n := c.GetTelemetry().TotalPayloadsDropped; n != 0 {
				t.Fatalf("the client dropped %d packets, want none", n)
			}
		}
		return report{"datadog-go", o.Operations}
	}
}

func dialStatsd(t *testing.T, network, address string, mode statsd.Option) *statsd.Client {
	t.Helper()
	prefix := map[string]string{"udp": "", "unixgram": "unixgram://", "unix": "unixstream://"}[network]
	c, err := statsd.New(prefix+address, mode,
		statsd.WithWriteTimeout(10*time.Second), // so that nothing is lost before it is sent
		statsd.WithoutOriginDetection())         // so that series have only the labels of the operations
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func call(c *statsd.Client, op operation) error {
	switch op.Method {
	case "event":
		return c.Event(&statsd.Event{
			Title: op.Title, Text: op.Text, Tags: op.Tags, Hostname: op.Host, AggregationKey: op.Key,
			Priority: statsd.EventPriority(op.Priority), SourceTypeName: op.Source, AlertType: statsd.EventAlertType(op.Alert),
		})
	case "check":
		return c.ServiceCheck(&statsd.ServiceCheck{
			Name: op.Name, Status: statsd.ServiceCheckStatus(op.Status), Message: op.Message, Tags: op.Tags,
		})
	case "set":
		for _, m := range op.Members {
			if err := c.Set(op.Name, m, op.Tags, op.Rate); err != nil {
				return err
			}
		}
		return nil
	}
	method := map[string]func(string, float64, []string, float64) error{
		"count": func(name string, v float64, tags []string, rate float64) error {
			return c.Count(name, int64(v), tags, rate)
		},
		"updown": func(name string, v float64, tags []string, rate float64) error {
			return c.Count(name, int64(v), tags, rate)
		},
		"gauge": c.Gauge, "timing": c.TimeInMilliseconds, "histogram": c.Histogram, "distribution": c.Distribution,
	}[op.Method]
	for _, v := range op.Values {
		if err := method(op.Name, v, op.Tags, op.Rate); err != nil {
			return err
		}
	}
	return nil
}
