package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/spf13/pflag"

	"github.com/freshet-io/freshet/internal/adapter/eventlog"
	"github.com/freshet-io/freshet/internal/adapter/promapi"
	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/role/aggregator"
	"github.com/freshet-io/freshet/internal/role/collector"
	"github.com/freshet-io/freshet/internal/role/distributor"
	"github.com/freshet-io/freshet/internal/role/forwarder"
	"github.com/freshet-io/freshet/internal/role/ingester"
)

// config is the configuration file. Each section is declared next to the code
// that reads it.
type config struct {
	Role       string             `yaml:"role" help:"what this process does: all, or collector, which reads the sockets and, as no aggregator can be named yet, counts and discards" reload:"restart"`
	DataDir    string             `yaml:"data_dir" help:"directory of everything that outlives a restart; one process at a time" reload:"restart"`
	LogLevel   string             `yaml:"log_level" help:"debug, info, warn or error; logs go to standard error"`
	Drain      time.Duration      `yaml:"drain" help:"how long a stop may take to hand on what was accepted; at least 1s" reload:"restart"`
	HTTP       httpConfig         `yaml:"http" reload:"restart"`
	DogStatsD  collector.Config   `yaml:"dogstatsd"`
	Mapping    mapping.Config     `yaml:"mapping"`
	Limits     limit.Config       `yaml:"limits"`
	Ingest     distributor.Config `yaml:"ingest"`
	Ingester   ingester.Config    `yaml:"ingester" reload:"restart"`
	Forward    forwarder.Config   `yaml:"forward" reload:"restart"`
	Aggregator aggregator.Config  `yaml:"aggregator" reload:"restart"`
	Store      tsdb.Config        `yaml:"store"`
	Events     eventlog.Config    `yaml:"events"`
	Query      promapi.Config     `yaml:"query" reload:"restart"`
	Self       selfConfig         `yaml:"self"`

	flags   map[string]string // the command line's, by name, for status/flags
	origins conf.Origins      // what set each key
}

// dataDir in the path of a Unix socket stands for the data directory.
const dataDir = "{data_dir}"

// defaultConfig works on a laptop: everything on loopback, and below ./data.
func defaultConfig() config {
	dogstatsd := collector.DefaultConfig()
	dogstatsd.Unixgram = dataDir + "/dogstatsd.sock"
	dogstatsd.Unix = dataDir + "/dogstatsd-stream.sock"
	return config{
		Role:       roleAll,
		DataDir:    "./data",
		LogLevel:   "info",
		Drain:      30 * time.Second,
		HTTP:       httpConfig{Listen: defaultHTTP, Tenant: tenant.Default, OperatorLoopback: true}, // else a first try would end at a refusal
		DogStatsD:  dogstatsd,
		Limits:     limit.DefaultConfig(),
		Ingest:     distributor.DefaultConfig(),
		Ingester:   ingester.DefaultConfig(),
		Aggregator: aggregator.DefaultConfig(),
		Store:      tsdb.DefaultConfig(),
		Events:     eventlog.DefaultConfig(),
		Query:      promapi.DefaultConfig(),
		Self:       defaultSelf(),
	}
}

// source is where a configuration comes from: a file, the environment and the
// command line. It can be read again while the process runs.
type source struct {
	schema *conf.Schema[config]
	flags  *pflag.FlagSet
	file   string // empty for none
	inUse  string // data directory of the process, empty until it has one
}

// newSource adds --config and a flag for each key to a command's flags.
func newSource(flags *pflag.FlagSet) *source {
	s := &source{schema: newSchema(), flags: flags}
	flags.StringVar(&s.file, "config", os.Getenv(configVariable), "configuration `file` (YAML) [$"+configVariable+"]")
	s.schema.AddFlags(flags)
	flags.SetNormalizeFunc(shortFlags)
	return s
}

const configVariable = "FRESHET_CONFIG"

// shortFlags are other names of flags, as others of the field call them.
func shortFlags(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if name == "otlp-grpc-listen" {
		name = "ingest-otlp-grpc-listen"
	}
	return pflag.NormalizedName(name)
}

func newSchema() *conf.Schema[config] { return conf.New("FRESHET", defaultConfig()) }

// load reads the file again.
func (s *source) load() (config, error) {
	text, err := conf.ReadFile(s.file)
	if err != nil {
		return config{}, err
	}
	return s.loadText(s.file, text)
}

// loadText is load with another text for the file, of which problems name it.
func (s *source) loadText(file string, text []byte) (config, error) {
	c, from, err := s.schema.LoadText(file, text, os.LookupEnv)
	if err != nil {
		return c, err
	}
	c.origins, c.flags = from, map[string]string{}
	s.flags.VisitAll(func(f *pflag.Flag) { c.flags[f.Name] = f.Value.String() })
	return c.withPaths(cmp.Or(s.inUse, c.DataDir)), nil
}

// reloaded is what is in force after next has been read while c was: next, but
// for what takes a restart.
func (c config) reloaded(next config) config {
	now := conf.Reloaded(c, next)
	now.origins = conf.Origins{}
	for _, k := range newSchema().Keys() {
		from := next.origins
		if k.Restart {
			from = c.origins
		}
		if origin, set := from[k.Path]; set {
			now.origins[k.Path] = origin
		}
	}
	return now
}

// yaml is c as a commented file, without its secrets.
func (c config) yaml() string { return conf.Render(newSchema().Shown(c, c.origins)) }

// Validate is part of conf.Validator.
func (c config) Validate() []conf.Problem {
	var problems []conf.Problem
	if c.Role != roleAll && c.Role != roleCollector {
		problems = append(problems, conf.Problem{Key: "role", Text: "must be all, or collector for a process that only reads the sockets"})
	}
	if c.DataDir == "" {
		problems = append(problems, conf.Problem{Key: "data_dir", Text: "must name a directory, such as ./data"})
	}
	if _, err := parseLevel(c.LogLevel); err != nil {
		problems = append(problems, conf.Problem{Key: "log_level", Text: "must be debug, info, warn or error"})
	}
	if c.Aggregator.TimedWindow > c.Store.OutOfOrder {
		problems = append(problems, conf.Problem{Key: "aggregator.timed_window",
			Text: fmt.Sprintf("exceeds store.out_of_order (%v), so the store would refuse what passed here; set it to that or less", c.Store.OutOfOrder)})
	}
	for name, value := range c.DogStatsD.Labels {
		if _, err := mapping.New(mapping.Config{UTF8Names: c.Mapping.UTF8Names}, labels.FromStrings(name, value)); err != nil {
			problems = append(problems, conf.Problem{Key: "dogstatsd.labels." + name, Text: err.Error()})
		}
	}
	n, of := len(c.DogStatsD.Tenants()), "the DogStatsD sockets have"
	if (c.Self.Metrics || c.Self.Probe) && c.Role == roleAll && !slices.Contains(c.DogStatsD.Tenants(), tenant.Own) {
		n, of = n+1, "the DogStatsD sockets and Freshet itself (self.metrics, self.probe) have"
	}
	if n > c.Store.MaxTenants {
		problems = append(problems, conf.Problem{Key: "store.max_tenants",
			Text: fmt.Sprintf("leaves no stores for some of the %d tenants that %s; set it to %d or more", n, of, n)})
	}
	if c.Drain < time.Second {
		problems = append(problems, conf.Problem{Key: "drain", Text: "must be at least 1s, or what was accepted is lost"})
	}
	return problems
}

// constantLabels are added to every series, unless its sender gave the label.
func (c config) constantLabels() (labels.Labels, error) {
	all := map[string]string{}
	if c.DogStatsD.HostLabel {
		host, err := os.Hostname()
		if err != nil {
			return labels.EmptyLabels(), fmt.Errorf("label host: %w; set dogstatsd.host_label to false, or dogstatsd.labels.host to a name", err)
		}
		all["host"] = host
	}
	for name, value := range c.DogStatsD.Labels {
		all[name] = value
	}
	return labels.FromMap(all), nil
}

// withPaths puts a data directory into the paths that stand below it.
func (c config) withPaths(dir string) config {
	place := func(path string) string {
		if rest, below := strings.CutPrefix(path, dataDir); below {
			return filepath.Join(dir, rest)
		}
		return path
	}
	c.DogStatsD.Unixgram = place(c.DogStatsD.Unixgram)
	c.DogStatsD.Unix = place(c.DogStatsD.Unix)
	listeners := make([]collector.Listener, len(c.DogStatsD.Listeners))
	for i, l := range c.DogStatsD.Listeners {
		l.Address = place(l.Address)
		listeners[i] = l
	}
	c.DogStatsD.Listeners = listeners
	return c
}
