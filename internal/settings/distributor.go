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

// Distributor is the "distributor" section of the configuration file: the limits and rules for remote
// write and OTLP.
type Distributor struct {
	MaxBody   conf.Bytes `yaml:"max_body" help:"largest request after decompression; larger ones get 413"`
	MaxMemory conf.Bytes `yaml:"max_memory" help:"memory for requests under way, of which a tenant may use half; further requests get 503" reload:"restart"`

	Rate          int `yaml:"rate" help:"samples that a tenant may send per second, with bursts of up to 10 s of that rate; further requests get 503; 0: no limit"`
	MaxSeries     int `yaml:"max_series" help:"series that a tenant may have; each counts until 2 to 4 hours after its last sample; further series get 429; 0: no limit"`
	MaxLabels     int `yaml:"max_labels" help:"labels that a series may have; 0: no limit"`
	MaxLabelName  int `yaml:"max_label_name" help:"longest label name in bytes; 0: no limit"`
	MaxLabelValue int `yaml:"max_label_value" help:"longest label value in bytes; 0: no limit"`

	Relabel []mapping.Relabel `yaml:"relabel" help:"steps of Prometheus' relabel_config for every series from remote write and OTLP"`
	HA      HA                `yaml:"ha"`
	OTLP    OTLP              `yaml:"otlp"`

	Tenants map[string]Override `yaml:"tenants" help:"limits of single tenants, by name"`
}

// HA names the labels that distinguish the copies that an HA pair of Prometheus servers sends.
type HA struct {
	Replica string        `yaml:"replica" help:"label that tells apart servers that send the same data, such as __replica__: Freshet removes it, and stores the data of one server per cluster; empty: stores the data of all"`
	Cluster string        `yaml:"cluster" help:"label whose value the servers of one cluster share" reload:"restart"`
	Timeout time.Duration `yaml:"timeout" help:"silence after which another server of the cluster takes over"`
}

// OTLP configures how OpenTelemetry metrics are received and named.
type OTLP struct {
	GRPCListen       string   `yaml:"grpc_listen" help:"HOST:PORT of OTLP over gRPC, with the tenants, TLS and passwords of http.listen; empty turns it off" reload:"restart"`
	Translation      string   `yaml:"translation" help:"how OTLP names become Prometheus names, as in Prometheus: UnderscoreEscapingWithSuffixes, UnderscoreEscapingWithoutSuffixes, NoUTF8EscapingWithSuffixes or NoTranslation"`
	Promote          []string `yaml:"promote_resource_attributes" help:"resource attributes that become labels of each series; *: all; the others are only in target_info"`
	PromoteScope     bool     `yaml:"promote_scope_metadata" help:"add the instrumentation scope's name, version and attributes as labels"`
	NativeHistograms bool     `yaml:"native_histograms" help:"store histograms with explicit buckets as native histograms with custom buckets"`
}

const defaultGRPC = "127.0.0.1:4317"

// Validate implements conf.Validator.
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
		problems = append(problems, conf.Problem{
			Key:  "translation",
			Text: "must be one of " + strings.Join(strategies, ", "),
		})
	}
	for i, name := range c.Promote {
		if name == "" || name == otlp.All && len(c.Promote) > 1 {
			problems = append(problems, conf.Problem{
				Key:  fmt.Sprintf("promote_resource_attributes[%d]", i),
				Text: "must be the name of a resource attribute, or * alone",
			})
		}
	}
	return problems
}

// Override replaces the distributor's limits for one tenant.
type Override struct {
	Rate      conf.OptionalInt `yaml:"rate" help:"overrides distributor.rate"`
	MaxSeries conf.OptionalInt `yaml:"max_series" help:"overrides distributor.max_series"`
}

// DefaultDistributor accepts the requests of a Prometheus server with default settings.
func DefaultDistributor() Distributor {
	return Distributor{
		// Prometheus sends 2,000 samples at once, 0.5 MB; other senders send more.
		MaxBody: 32 << 20,
		// Room for eight of the largest requests, or 500 of the usual ones of 0.5 MB each.
		MaxMemory: 256 << 20,
		// A series takes 1.9 kB, as lab/peers-tsdb measures, so 1,000,000 take 1.9 GB.
		MaxSeries:     1_000_000,
		MaxLabels:     100,
		MaxLabelName:  1 << 10,
		MaxLabelValue: 4 << 10,
		HA:            HA{Cluster: "cluster", Timeout: 30 * time.Second},
		OTLP:          OTLP{GRPCListen: defaultGRPC, Translation: string(otlptranslator.UnderscoreEscapingWithSuffixes)},
	}
}

// Validate implements conf.Validator.
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
		problems = append(problems, conf.Problem{
			Key:  "max_memory",
			Text: fmt.Sprintf("leaves no room for one request; set it to distributor.max_body (%v) or more", c.MaxBody),
		})
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
