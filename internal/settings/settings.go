// Package settings is the configuration: its sections, their defaults, their validation, and where a
// process reads them from. It lies below the roles, so that a command can read, check and print a
// configuration without importing a role. Some sections are declared elsewhere, beside the code that
// reads them: the type Config of an adapter, of core/limit and of core/mapping.
//
// These are the files, from the top down. Each uses only names that are declared in files below it:
//
//	shared.go       the sections that the nodes of a cluster share
//	settings.go     all sections, and where they are read from
//	role.go         the roles of a process
//	cluster.go      the section cluster
//	http.go         the section http
//	self.go         the section self
//	recorder.go     self.recorder
//	rules.go        the section rules
//	forward.go      the section forward
//	auth.go         how we prove to other servers who we are
//	distributor.go  the section distributor
//	ingester.go     the section ingester
//	dogstatsd.go    the section dogstatsd
//	kubelet.go      the section kubelet
//	aggregator.go   the section aggregator
package settings

import (
	"cmp"
	"fmt"
	"log/slog"
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
	"github.com/freshet-io/freshet/internal/core/cluster"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Config is the configuration file.
type Config struct {
	Role        string          `yaml:"role" help:"roles of this process: all; store, which is all without the DogStatsD sockets; or one or both of collector and gateway, as in collector,gateway. A collector only reads the DogStatsD sockets, and pushes its windows to the nodes of cluster.nodes, or discards them if there are none. A gateway passes writes and queries on to these nodes, and keeps nothing" reload:"restart"`
	Hostname    string          `yaml:"hostname" help:"name of this machine, as in the label host and in the status of a cluster; empty: the kernel's, which in a container is the container's" reload:"restart"`
	DataDir     string          `yaml:"data_dir" help:"directory of all data; one process at a time can use it" reload:"restart"`
	LogLevel    string          `yaml:"log_level" help:"debug, info, warn or error; logs go to standard error"`
	Drain       time.Duration   `yaml:"drain" help:"time that a stopping process has to hand on accepted data; at least 1s" reload:"restart"`
	HTTP        HTTP            `yaml:"http" reload:"restart"`
	DogStatsD   DogStatsD       `yaml:"dogstatsd"`
	Mapping     mapping.Config  `yaml:"mapping"`
	Kubelet     Kubelet         `yaml:"kubelet" reload:"restart"`
	Limits      limit.Config    `yaml:"limits"`
	Distributor Distributor     `yaml:"distributor"`
	Ingester    Ingester        `yaml:"ingester" reload:"restart"`
	Forward     Forward         `yaml:"forward" reload:"restart"`
	Aggregator  Aggregator      `yaml:"aggregator" reload:"restart"`
	Store       tsdb.Config     `yaml:"store"`
	Events      eventlog.Config `yaml:"events"`
	Rules       Rules           `yaml:"rules"`
	Cluster     Cluster         `yaml:"cluster" reload:"restart"`
	Query       promapi.Config  `yaml:"query" reload:"restart"`
	Self        Self            `yaml:"self"`

	flags   map[string]string // flags of the command line, by name, for status/flags
	origins conf.Origins      // the source of each key's value
}

// dataDir is the placeholder for the data directory in the path of a Unix socket.
const dataDir = "{data_dir}"

// Default works on a laptop: all addresses on loopback, all data below ./data.
func Default() Config {
	dogstatsd := DefaultDogStatsD()
	dogstatsd.Unixgram = dataDir + "/dogstatsd.sock"
	dogstatsd.Unix = dataDir + "/dogstatsd-stream.sock"
	return Config{
		Role:     RoleAll,
		DataDir:  "./data",
		LogLevel: "info",
		Drain:    30 * time.Second,
		// Without OperatorLoopback a new user's first requests would be refused.
		HTTP:        HTTP{Listen: DefaultHTTP, Tenant: tenant.Default, OperatorLoopback: true},
		DogStatsD:   dogstatsd,
		Kubelet:     DefaultKubelet(),
		Limits:      limit.DefaultConfig(),
		Distributor: DefaultDistributor(),
		Ingester:    DefaultIngester(),
		Aggregator:  DefaultAggregator(),
		Store:       tsdb.DefaultConfig(),
		Events:      eventlog.DefaultConfig(),
		Rules:       DefaultRules(),
		Cluster:     DefaultCluster(),
		Query:       promapi.DefaultConfig(),
		Self:        DefaultSelf(),
	}
}

// Source says where a configuration comes from: a file, the environment and the command line. A
// process can load it again while it runs.
type Source struct {
	schema *conf.Schema[Config]
	flags  *pflag.FlagSet
	file   string // empty if there is no file
	inUse  string // data directory of the process, empty until it has one
}

// NewSource adds --config and a flag for each key to a command's flags.
func NewSource(flags *pflag.FlagSet) *Source {
	s := &Source{schema: Schema(), flags: flags}
	flags.StringVar(&s.file, "config", os.Getenv(Variable), "configuration `file` (YAML) [$"+Variable+"]")
	s.schema.AddFlags(flags)
	flags.SetNormalizeFunc(shortFlags)
	return s
}

// Variable is the environment variable that names the file if no flag does.
const Variable = "FRESHET_CONFIG"

// KeepBelow makes `dir` the data directory of all later loads, even if data_dir changes in the file. A
// process keeps its data directory until it ends.
func (s *Source) KeepBelow(dir string) { s.inUse = dir }

// Settings returns all keys with their present values. Paths below the data directory stay as they are
// written in the file.
func (s *Source) Settings() ([]conf.Setting, error) {
	text, err := conf.ReadFile(s.file)
	if err != nil {
		return nil, err
	}
	c, origins, err := s.schema.LoadText(s.file, text, os.LookupEnv)
	if err != nil {
		return nil, err
	}
	return s.schema.Settings(c, origins), nil
}

// shortFlags accepts the flag names that similar programs use.
func shortFlags(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if name == "otlp-grpc-listen" {
		name = "distributor-otlp-grpc-listen"
	}
	return pflag.NormalizedName(name)
}

// Schema returns the schema with all keys.
func Schema() *conf.Schema[Config] {
	return conf.New("FRESHET", Default()).Renamed("ingest", "distributor")
}

// Load reads the file again.
func (s *Source) Load() (Config, error) {
	text, err := conf.ReadFile(s.file)
	if err != nil {
		return Config{}, err
	}
	return s.LoadText(s.file, text)
}

// LoadText loads `text` as if it were the content of `file`. Problems name `file`.
func (s *Source) LoadText(file string, text []byte) (Config, error) {
	c, from, err := s.schema.LoadText(file, text, os.LookupEnv)
	if err != nil {
		return c, err
	}
	c.origins, c.flags = from, map[string]string{}
	s.flags.VisitAll(func(f *pflag.Flag) { c.flags[f.Name] = f.Value.String() })
	return c.WithPaths(cmp.Or(s.inUse, c.DataDir)), nil
}

// Reloaded returns the configuration in force after a process that runs with `c` has read `next`: the
// values of `next`, except that keys that need a restart keep their values from `c`.
func (c Config) Reloaded(next Config) Config {
	now := conf.Reloaded(c, next)
	now.origins = conf.Origins{}
	for _, k := range Schema().Keys() {
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

// YAML returns c as a commented file, without its secrets.
func (c Config) YAML() string { return conf.Render(Schema().Shown(c, c.origins)) }

// Flags returns the values of the command line's flags, by name.
func (c Config) Flags() map[string]string { return c.flags }

// Level returns LogLevel, which must be valid.
func (c Config) Level() slog.Level {
	level, _ := parseLevel(c.LogLevel)
	return level
}

func parseLevel(text string) (level slog.Level, err error) {
	err = level.UnmarshalText([]byte(text))
	return level, err
}

// Roles returns the roles of a process with this configuration.
func (c Config) Roles() Roles {
	all := Roles{RoleAggregator, RoleDistributor, RoleIngester, RoleForwarder, RoleQuerier}
	switch c.Role {
	case RoleAll:
		all = append(Roles{RoleCollector}, all...)
	case RoleStore:
	default:
		return strings.Split(c.Role, ",")
	}
	if len(c.Cluster.Nodes) == 0 || c.Cluster.Node != "" {
		all = append(all, RoleRuler)
	}
	if c.Self.Metrics {
		all = append(all, RoleScraper)
	}
	if c.Self.Probe && c.Role == RoleAll {
		all = append(all, RoleProber)
	}
	return all
}

// Validate implements conf.Validator.
func (c Config) Validate() []conf.Problem {
	var problems []conf.Problem
	problems = append(problems, c.validateRole()...)
	if c.Rules.any() && !c.Roles().Has(RoleRuler) {
		problems = append(problems, conf.Problem{Key: "rules.files", Text: "is set, but only a server with the role all, " +
			"or a node of a cluster, evaluates rules; remove the files here"})
	}
	if c.DataDir == "" {
		problems = append(problems, conf.Problem{Key: "data_dir", Text: "must name a directory, such as ./data"})
	}
	if _, err := parseLevel(c.LogLevel); err != nil {
		problems = append(problems, conf.Problem{Key: "log_level", Text: "must be debug, info, warn or error"})
	}
	if c.Aggregator.TimedWindow > c.Store.OutOfOrder {
		problems = append(problems, conf.Problem{Key: "aggregator.timed_window",
			Text: fmt.Sprintf("exceeds store.out_of_order (%v), "+
				"so the store would refuse some samples that this key allows; set the key to that value or less",
				c.Store.OutOfOrder)})
	}
	for name, value := range c.DogStatsD.Labels {
		one := labels.FromStrings(name, value)
		if _, err := mapping.New(mapping.Config{UTF8Names: c.Mapping.UTF8Names}, one); err != nil {
			problems = append(problems, conf.Problem{Key: "dogstatsd.labels." + name, Text: err.Error()})
		}
	}
	n, of := len(c.DogStatsD.Tenants()), "the DogStatsD sockets have"
	roles := c.Roles()
	if (roles.Has(RoleScraper) || roles.Has(RoleProber)) && !slices.Contains(c.DogStatsD.Tenants(), tenant.Own) {
		n, of = n+1, "the DogStatsD sockets and Freshet itself (self.metrics, self.probe) have"
	}
	if n > c.Store.MaxTenants {
		problems = append(problems, conf.Problem{Key: "store.max_tenants",
			Text: fmt.Sprintf("leaves no stores for some of the %d tenants that %s; set it to %d or more", n, of, n)})
	}
	if c.Kubelet.URL == "" && (len(c.Mapping.PodLabels) > 0 || slices.ContainsFunc(c.Mapping.OriginLabels,
		func(name string) bool { return name == "pod_name" || name == "kube_namespace" })) {
		problems = append(problems, conf.Problem{Key: "kubelet.url", Text: "is empty, but mapping.pod_labels or " +
			"mapping.origin_labels needs it; set it to the URL of this machine's kubelet, such as https://10.0.0.1:10250"})
	}
	if c.Hostname != "" && cluster.CheckName(c.Hostname) != nil {
		problems = append(problems, conf.Problem{Key: "hostname", Text: fmt.Sprintf("is %.80q; set it to 1 to 63 letters, "+
			"digits, dashes, underscores and dots", c.Hostname)})
	}
	if c.Drain < time.Second {
		problems = append(problems, conf.Problem{Key: "drain", Text: "must be at least 1s, or a stop loses accepted data"})
	}
	return problems
}

// Host returns the name of this machine.
func (c Config) Host() (string, error) {
	if c.Hostname != "" {
		return c.Hostname, nil
	}
	return os.Hostname()
}

// ConstantLabels returns labels that are added to each series whose sender did not set them.
func (c Config) ConstantLabels() (labels.Labels, error) {
	all := map[string]string{}
	if c.DogStatsD.HostLabel {
		host, err := c.Host()
		if err != nil {
			return labels.EmptyLabels(), fmt.Errorf("label host: %w; set hostname", err)
		}
		all["host"] = host
	}
	for name, value := range c.DogStatsD.Labels {
		all[name] = value
	}
	return labels.FromMap(all), nil
}

// WithPaths replaces the placeholder in paths by the data directory `dir`.
func (c Config) WithPaths(dir string) Config {
	place := func(path string) string {
		if rest, below := strings.CutPrefix(path, dataDir); below {
			return filepath.Join(dir, rest)
		}
		return path
	}
	c.DogStatsD.Unixgram = place(c.DogStatsD.Unixgram)
	c.DogStatsD.Unix = place(c.DogStatsD.Unix)
	listeners := make([]Listener, len(c.DogStatsD.Listeners))
	for i, l := range c.DogStatsD.Listeners {
		l.Address = place(l.Address)
		listeners[i] = l
	}
	c.DogStatsD.Listeners = listeners
	return c
}

// validateRole returns what is wrong with the roles, and with their place in a cluster.
func (c Config) validateRole() (problems []conf.Problem) {
	inCluster, node := len(c.Cluster.Nodes) > 0, c.Cluster.Node != ""
	stores := c.Role == RoleAll || c.Role == RoleStore
	add := func(key, text string) { problems = append(problems, conf.Problem{Key: key, Text: text}) }
	roles := c.Roles()
	slices.Sort(roles)
	known := len(slices.Compact(slices.Clone(roles))) == len(roles) && !slices.ContainsFunc(roles,
		func(r string) bool { return r != RoleCollector && r != RoleGateway })
	switch {
	case !stores && !known:
		add("role", "must be all, store, collector, gateway, or collector,gateway")
	case (c.Role == RoleStore || roles.Has(RoleGateway)) && !inCluster:
		add("role", "is "+c.Role+", which is for clusters, but cluster.nodes is empty; name the nodes, or set the role all")
	case !stores && node:
		add("cluster.node", "is set, but a process with the role "+c.Role+" is no node, since it stores nothing; leave it "+
			"empty, or set the role all or store")
	case stores && inCluster && !node:
		add("cluster.node", "is empty; name the node of cluster.nodes that this process is")
	}
	return problems
}
