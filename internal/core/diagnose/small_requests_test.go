package diagnose

import (
	"fmt"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/record"
)

// ofRequests returns a record of five seconds. The server's requests take `overhead` seconds of
// processor time, apart from their samples.
func ofRequests(overhead float64, sent ...record.Sent) *moment {
	return changed(func(m *moment) {
		serve := []string{"internal/poll.(*FD).Write", "net/http.(*conn).serve"}
		commit := []string{
			"syscall.write", ourModule + "internal/adapter/tsdb.(*store).commit",
			ourModule + "internal/role/ingester.(*Ingester).write",
		}
		decode := []string{
			ourModule + "internal/core/remotewrite.(*Request).DecodeV1",
			ourModule + "internal/adapter/receive.(*Receiver).remoteWrite", "net/http.serverHandler.ServeHTTP",
			"net/http.(*conn).serve",
		}
		page := []string{
			"compress/flate.(*Writer).Write", ourModule + "cmd/freshet.page", "net/http.serverHandler.ServeHTTP",
			"net/http.(*conn).serve",
		}
		m.cpu = append(m.cpu, cpu(.6*overhead, serve...), cpu(.4*overhead, commit...), cpu(2, decode...), cpu(2, page...))
		m.sent = sent
	})
}

func TestSmallRequests(t *testing.T) {
	tiny := record.Sent{Tenant: "shop", Input: "remote_write", From: "10.0.0.7 (shop/1)", Requests: 4000, Samples: 40_000}
	large := record.Sent{
		Tenant: "b", Input: "remote_write", From: "10.0.0.8 (Prometheus/3)", Requests: 30, Samples: 60_000,
	}
	otel := record.Sent{Tenant: "b", Input: "otlp", From: "10.0.0.9 (otel/1)", Requests: 2000, Samples: 10_000}
	small := tiny
	small.Requests, small.Samples = 10, 100
	fleet := func(size int) (all []record.Sent) {
		for i := range size {
			all = append(all,
				record.Sent{
					Tenant: "shop", Input: "remote_write", From: fmt.Sprintf("10.0.1.%d (till/1)", i), Agent: "till/1", Requests: 15,
					Samples: 150,
				})
		}
		all[size/2].Requests++
		return append(all,
			record.Sent{Tenant: "shop", Input: "otlp", From: "10.0.1.0 (till/1)", Agent: "till/1", Requests: 15, Samples: 150})
	}
	rest := record.Sent{From: "unknown", Requests: 4000, Samples: 40_000}
	for _, c := range []struct {
		name  string
		m     *moment
		want  int
		title string
		shows []string
	}{
		{"100 connections of ten samples a request, beside a Prometheus", ofRequests(5, large, tiny), clearly,
			"Requests are tiny: 4,000 a second of 10 samples each, of tenant shop, from 10.0.0.7 (shop/1); " +
				"remote_write.queue_config.max_samples_per_send: 2000 would make them 20 a second and save about 0.99 of a core",
			[]string{"the requests cost about 0.99 of a core plus their samples, 248.14µs each"}},
		{"for OTLP, the collector's batches", ofRequests(5, otel), clearly,
			"the collector's batch processor (send_batch_size: 8192) would make them 1.2 a second", nil},
		{"a fleet of small senders: a request a second is enough for each",
			ofRequests(5, append(fleet(150), large)...), clearly,
			"Requests are tiny: 2,251 a second of 10 samples each, of tenant shop, from 150 senders such as 10.0.1.75 " +
				"(till/1); remote_write.queue_config.max_samples_per_send: 2000 would make them 150 a second",
			[]string{"tenant shop, remote_write, from 150 senders such as 10.0.1.75 (till/1): " +
				"2,251 requests a second of 10 samples"}},
		{"a single small sender of the fleet", ofRequests(5, append(fleet(1), large)...), fine, "", nil},
		{"the row of all others is no sender", ofRequests(5, large, rest), fine, "", nil},
		{"other processes have nearly all of the machine, and tiny requests the rest", func() *moment {
			m := ofRequests(2.5, tiny)
			m.cpu = m.cpu[3:5] // nothing else
			m.Spreads["/sched/latencies:seconds"] = record.Spread{P99: .1}
			m.trace.runnable = 60
			return m
		}(), clearly, "of tenant shop", nil},
		{"small requests that cost little", ofRequests(.5, tiny), fine, "", nil},
		{"a few small requests", ofRequests(5, large, small), fine, "", nil},
		{"large requests that take the processors", ofRequests(5, large), fine, "", nil},
		{"an older record", ofRequests(5), fine, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := smallRequests(c.m)
			got := fine
			if f.Score >= Listed {
				got = listed
			}
			if f.Score >= Clear {
				got = clearly
			}
			if got != c.want || !strings.Contains(f.Title, c.title) {
				t.Errorf("score %.2f: %s\n%s\n%s", f.Score, f.Title, f.Because, f.fine)
			}
			shown := fmt.Sprintf("%+v", f.Evidence)
			for _, text := range c.shows {
				if !strings.Contains(shown, text) {
					t.Errorf("%q is not in %s", text, shown)
				}
			}
			if strings.Contains(shown, "Prometheus/3") || f.Because == "" || f.Next == "" || f.fine == "" {
				t.Errorf("%+v", f)
			}
		})
	}
}
