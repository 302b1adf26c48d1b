package settings

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/otlptranslator"

	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/otlp"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Distributor is the "distributor" section of the configuration file: what remote write and OTLP may
// bring.
type Distributor struct {
	MaxBody   conf.Bytes `yaml:"max_body" help:"largest request, decompressed; larger ones are answered with 413"`
	MaxMemory conf.Bytes `yaml:"max_memory" help:"memory of all requests under way, as they came, decompressed and decoded; half of it for one tenant; further ones are answered with 503" reload:"restart"`

	Rate          int `yaml:"rate" help:"samples a second that a tenant may send, with 10 s of them at once; beyond, requests are answered with 503 and Retry-After; 0 for any number"`
	MaxSeries     int `yaml:"max_series" help:"series that a tenant may have in memory, where they stay for up to three hours; new ones are answered with 429; 0 for any number"`
	MaxLabels     int `yaml:"max_labels" help:"labels that a series may have; 0 for any number"`
	MaxLabelName  int `yaml:"max_label_name" help:"longest name of a label in bytes; 0 for any length"`
	MaxLabelValue int `yaml:"max_label_value" help:"longest value of a label in bytes; 0 for any length"`

	Relabel []mapping.Relabel `yaml:"relabel" help:"steps of Prometheus' relabel_config for all series that come in by remote write and OTLP"`
	HA      HA                `yaml:"ha"`
	OTLP    OTLP              `yaml:"otlp"`

	Tenants map[string]Override `yaml:"tenants" help:"other limits for some tenants, by name"`
}

// HA is how copies of a pair of Prometheus servers are told apart.
type HA struct {
	Replica string        `yaml:"replica" help:"label that tells apart servers which send the same, such as __replica__; of one cluster one server's samples are taken, and the label is removed; empty takes everything"`
	Cluster string        `yaml:"cluster" help:"label that such servers have in common" reload:"restart"`
	Timeout time.Duration `yaml:"timeout" help:"how long nothing comes from a server until another of its cluster takes over" reload:"restart"`
}

// OTLP is how OpenTelemetry's metrics come in, and what they are called.
type OTLP struct {
	GRPCListen       string   `yaml:"grpc_listen" help:"HOST:PORT of OTLP over gRPC; it has the tenants, the TLS and the passwords of http.listen; empty to turn it off; over HTTP it is always at /v1/metrics" reload:"restart"`
	Translation      string   `yaml:"translation" help:"how names become Prometheus': UnderscoreEscapingWithSuffixes, UnderscoreEscapingWithoutSuffixes, NoUTF8EscapingWithSuffixes or NoTranslation, as in Prometheus' own configuration"`
	Promote          []string `yaml:"promote_resource_attributes" help:"resource attributes that become labels of each series; * for all; others are in target_info only"`
	PromoteScope     bool     `yaml:"promote_scope_metadata" help:"make name, version and attributes of the instrumentation scope labels of each series"`
	NativeHistograms bool     `yaml:"native_histograms" help:"store histograms with explicit buckets as native histograms with custom buckets, one series each, in place of a series for each bucket"`
}

const defaultGRPC = "127.0.0.1:4317"

// Validate is part of conf.Validator.
func (c OTLP) Validate() (problems []conf.Problem) {
	if c.GRPCListen != "" {
		if why := conf.AddressProblem(c.GRPCListen, defaultGRPC); why != "" {
			problems = append(problems, conf.Problem{Key: "grpc_listen", Text: why})
		}
	}
	strategies := []string{
		string(otlptranslator.UnderscoreEscapingWithSuffixes), string(otlptranslator.UnderscoreEscapingWithoutSuffixes),
		string(otlptranslator.NoUTF8EscapingWithSuffixes), string(otlptranslator.NoTranslation),
	}
	if !slices.Contains(strategies, c.Translation) {
		problems = append(problems, conf.Problem{Key: "translation", Text: "must be one of " + strings.Join(strategies, ", ")})
	}
	for i, name := range c.Promote {
		if name == "" || name == otlp.All && len(c.Promote) > 1 {
			problems = append(problems, conf.Problem{Key: fmt.Sprintf("promote_resource_attributes[%d]", i), Text: "must be the name of a resource attribute, or * alone"})
		}
	}
	return problems
}

// Override is what one tenant has in place of the limits of all.
type Override struct {
	Rate      conf.OptionalInt `yaml:"rate" help:"in place of distributor.rate"`
	MaxSeries conf.OptionalInt `yaml:"max_series" help:"in place of distributor.max_series"`
}

// DefaultDistributor takes what a Prometheus sends by itself.
func DefaultDistributor() Distributor {
	return Distributor{
		// 2,000 samples, which Prometheus sends at once, are 0.5 MB; others send more.
		MaxBody: 32 << 20,
		// Some of the largest, or 500 of the usual ones, of 0.5 MB each.
		MaxMemory: 256 << 20,
		// 1,000,000 x 1.9 kB, as lab/peers-tsdb measures, are 1.9 GB.
		MaxSeries:     1_000_000,
		MaxLabels:     100,
		MaxLabelName:  1 << 10,
		MaxLabelValue: 4 << 10,
		HA:            HA{Cluster: "cluster", Timeout: 30 * time.Second},
		OTLP:          OTLP{GRPCListen: defaultGRPC, Translation: string(otlptranslator.UnderscoreEscapingWithSuffixes)},
	}
}

// Validate is part of conf.Validator.
func (c Distributor) Validate() []conf.Problem {
	var problems []conf.Problem
	for _, limit := range []struct {
		key   string
		value int
	}{
		{"rate", c.Rate}, {"max_series", c.MaxSeries}, {"max_labels", c.MaxLabels},
		{"max_label_name", c.MaxLabelName}, {"max_label_value", c.MaxLabelValue},
	} {
		if limit.value < 0 {
			problems = append(problems, conf.Problem{Key: limit.key, Text: "must be 0 or more; 0 is no limit"})
		}
	}
	if c.MaxBody < 1<<10 || c.MaxBody > 1<<30 {
		problems = append(problems, conf.Problem{Key: "max_body", Text: "must be between 1KiB and 1GiB"})
	}
	if c.MaxMemory < c.MaxBody {
		problems = append(problems, conf.Problem{Key: "max_memory", Text: fmt.Sprintf("leaves no room for one request; set it to distributor.max_body (%v) or more", c.MaxBody)})
	}
	if c.HA.Replica != "" && (c.HA.Cluster == "" || c.HA.Timeout < time.Second) {
		problems = append(problems, conf.Problem{Key: "ha", Text: "needs a cluster label and a timeout of 1s or more"})
	}
	_, wrong := mapping.CompileRelabel(c.Relabel)
	for _, p := range wrong {
		problems = append(problems, conf.Problem{Key: "relabel" + p.Key, Text: p.Text})
	}
	for name := range c.Tenants {
		if err := tenant.Check(name); err != nil {
			problems = append(problems, conf.Problem{Key: "tenants." + name, Text: err.Error()})
		}
	}
	return problems
}
