package settings

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"time"

	promconfig "github.com/prometheus/common/config"

	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Forward is the "forward" section of the configuration file.
type Forward struct {
	Backends []Backend `yaml:"backends" help:"remote-write backends that also receive the data, each through a queue of its own"`
}

// Backend is one backend. As in every list of the configuration, a zero field takes its default.
type Backend struct {
	Name     string            `yaml:"name" help:"1 to 64 letters, digits, dashes and underscores; names the queue's directory, and is the value of the label backend in metrics"`
	URL      string            `yaml:"url" help:"where requests are sent, such as https://mimir.example:8080/api/v1/push" show:"url"`
	Protocol string            `yaml:"protocol" help:"version of remote write to send: 2.0, 1.0 or auto (default). With 1.0, requests received in 2.0 are converted. auto sends 2.0 until the backend refuses it, and then 1.0 until a restart. Requests received in 1.0 are never converted"`
	Requests string            `yaml:"requests" help:"remote-write and OTLP requests that the backend gets: all (default; before distributor.relabel, and in a cluster after it) or none"`
	Tiles    string            `yaml:"tiles" help:"tiles of DogStatsD metrics that the backend gets: 10s (default), 1m or none"`
	Headers  map[string]string `yaml:"headers" help:"headers of each request (name: value); {tenant} in a value becomes the tenant: X-Scope-OrgID: '{tenant}'" show:"secret"`

	Username        string `yaml:"username" help:"user of basic authentication; needs password_file"`
	PasswordFile    string `yaml:"password_file" help:"file with the password, read for each request"`
	BearerTokenFile string `yaml:"bearer_token_file" help:"file with the bearer token, read for each request; instead of username"`
	TLS             TLS    `yaml:"tls"`

	Queue       conf.Bytes    `yaml:"queue" help:"bytes that may wait on disk, at least 1MiB per connection; a full queue drops its oldest requests. Default 1GiB"`
	Fsync       bool          `yaml:"fsync" help:"sync each request to disk before acknowledging it, against power loss"`
	Connections int           `yaml:"connections" help:"concurrent requests, 1 (default) to 64, for many tenants, which then share the queue's bytes evenly; each tenant's requests stay in order. Change it only while the queue is empty"`
	Timeout     time.Duration `yaml:"timeout" help:"timeout of a request. Default 30s"`
	RetryMin    time.Duration `yaml:"retry_min" help:"longest wait before the first retry; it doubles with each retry. The actual wait is random, from half of it to all of it. Default 30ms"`
	RetryMax    time.Duration `yaml:"retry_max" help:"longest wait before any retry, unless Retry-After asks for more. Default 5s"`
}

// Values of Backend.Protocol.
const (
	ProtocolAuto = "auto"
	ProtocolV2   = "2.0"
	ProtocolV1   = "1.0"
)

// Values of Backend.Requests and Backend.Tiles.
const (
	All  = "all"
	None = "none"
)

// TakesRequests reports whether b gets requests.
func (b Backend) TakesRequests() bool { return b.WithDefaults().Requests == All }

// TakesTiles reports whether b gets tiles of a width, such as 10s.
func (b Backend) TakesTiles(width string) bool { return b.WithDefaults().Tiles == width }

const (
	minQueue       = 1 << 20 // in bytes; a smaller queue would drop requests that have just arrived
	maxConnections = 64
)

// WithDefaults returns b with defaults in place of zero fields.
func (b Backend) WithDefaults() Backend {
	b.Protocol = cmp.Or(b.Protocol, ProtocolAuto)
	b.Requests = cmp.Or(b.Requests, All)
	b.Tiles = cmp.Or(b.Tiles, tile.Width10s.String())
	// 100,000 series in tiles of 10 s and 1 min are 11,700 samples a second. At 20 bytes a sample
	// that is 230 kB a second, so the queue lasts for more than an hour. With five labels a sample
	// takes 13 bytes in requests of 2,000 series, and 21 bytes in requests of 100.
	b.Queue = cmp.Or(b.Queue, 1<<30)
	b.Connections = cmp.Or(b.Connections, 1)
	// Prometheus has the same defaults.
	b.Timeout = cmp.Or(b.Timeout, 30*time.Second)
	b.RetryMin = cmp.Or(b.RetryMin, 30*time.Millisecond)
	b.RetryMax = cmp.Or(b.RetryMax, 5*time.Second)
	return b
}

// Validate returns a problem for each name that two backends share. Backend.Validate checks a single
// backend.
func (c Forward) Validate() []conf.Problem {
	var problems []conf.Problem
	first := map[string]int{}
	for i, b := range c.Backends {
		if other, taken := first[b.Name]; taken && b.Name != "" {
			problems = append(problems, conf.Problem{Key: fmt.Sprintf("backends[%d].name", i),
				Text: fmt.Sprintf("is also the name of backends[%d]; give each backend its own name", other)})
			continue
		}
		first[b.Name] = i
	}
	return problems
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// HTTPClient returns the configuration of an HTTP client in Prometheus' form, without headers.
func (b Backend) HTTPClient() promconfig.HTTPClientConfig { return b.auth().client() }

func (b Backend) auth() auth {
	return auth{b.Headers, b.Username, b.PasswordFile, b.BearerTokenFile, b.TLS}
}

// Validate returns the problems of b, with keys relative to b.
func (b Backend) Validate() []conf.Problem {
	var problems []conf.Problem
	add := func(key, text string, args ...any) {
		problems = append(problems, conf.Problem{Key: key, Text: fmt.Sprintf(text, args...)})
	}
	b = b.WithDefaults()
	if !namePattern.MatchString(b.Name) {
		add("name", "is not a name; use 1 to 64 letters, digits, dashes and underscores")
	}
	if u, err := url.Parse(b.URL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		add("url", "is not a URL; write it like https://mimir.example:8080/api/v1/push")
	} else if u.User != nil {
		add("url", "has a user in it, which would be logged; give username and password_file")
	}
	if b.Protocol != ProtocolAuto && b.Protocol != ProtocolV2 && b.Protocol != ProtocolV1 {
		add("protocol", "must be %s, %s or %s", ProtocolAuto, ProtocolV2, ProtocolV1)
	}
	if b.Requests != All && b.Requests != None {
		add("requests", "must be %s or %s", All, None)
	}
	if b.Tiles != None && b.Tiles != tile.Width10s.String() && b.Tiles != tile.Width1m.String() {
		add("tiles", "must be %v, %v or %s", tile.Width10s, tile.Width1m, None)
	}
	problems = append(problems, b.auth().check()...)
	if b.Connections < 1 || b.Connections > maxConnections {
		add("connections", "must be 1 to %d", maxConnections)
	} else if n := conf.Bytes(minQueue * b.Connections); b.Queue < n {
		add("queue", "must be at least %v, 1MiB for each connection", n)
	}
	for key, d := range map[string]time.Duration{"timeout": b.Timeout, "retry_min": b.RetryMin} {
		if d < time.Millisecond {
			add(key, "must be at least 1ms")
		}
	}
	if b.RetryMax < b.RetryMin {
		add("retry_max", "is less than retry_min (%v); set it to that or more", b.RetryMin)
	}
	return problems
}
