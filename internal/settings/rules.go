package settings

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	promconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"

	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/ruleset"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Rules is the "rules" section of the configuration file: which rules are evaluated, and which
// Alertmanagers are notified.
type Rules struct {
	Files          []string               `yaml:"files" help:"rule files in Prometheus' format: paths, or globs such as /etc/freshet/rules/*.yaml. A path without wildcards must exist, a glob may match no file, and relative ones begin at the working directory. They are read again with the configuration. Their rules see the data of http.tenant, and write there"`
	Interval       time.Duration          `yaml:"interval" help:"interval of groups that have none, at least 1s"`
	ExternalURL    string                 `yaml:"external_url" help:"URL at which people reach this server, for the links of alerts; empty: the host's name and the port of http.listen"`
	ExternalLabels map[string]string      `yaml:"external_labels" help:"labels that are added to each notification, and that templates see (name: value)"`
	AlertRelabel   []mapping.Relabel      `yaml:"alert_relabel" help:"steps of Prometheus' relabel_config for each notification, after external_labels"`
	SenderTimeout  time.Duration          `yaml:"sender_timeout" help:"silence after which rules no longer wait for a sender of remote write or OTLP"`
	StaleAlert     time.Duration          `yaml:"stale_alert" help:"how long rules may be stale before the alert FreshetRulesWaiting fires"`
	Alertmanagers  []Alertmanager         `yaml:"alertmanagers" help:"Alertmanagers that are notified; each gets all notifications"`
	Tenants        map[string]TenantRules `yaml:"tenants" help:"rules of single tenants, by name"`
	API            ruleset.Limits         `yaml:"api"`
}

// TenantRules are the rules of one tenant.
type TenantRules struct {
	Files          []string          `yaml:"files" help:"rule files, as rules.files; their rules see the data of this tenant, and write there"`
	ExternalLabels map[string]string `yaml:"external_labels" help:"labels that are added to rules.external_labels, or replace them"`
}

// Alertmanager is a group of Alertmanagers that are reached in the same way. As in every list of the
// configuration, a zero field takes its default.
type Alertmanager struct {
	Targets []string `yaml:"targets" help:"addresses, HOST:PORT; list all members of an Alertmanager cluster"`
	DNS     []string `yaml:"dns" help:"names to look up every 30 s; each answer is an Alertmanager"`
	DNSType string   `yaml:"dns_type" help:"SRV (default), A or AAAA"`
	DNSPort int      `yaml:"dns_port" help:"port, for A and AAAA"`

	Scheme     string            `yaml:"scheme" help:"http (default) or https"`
	PathPrefix string            `yaml:"path_prefix" help:"path before /api/v2/alerts, such as /alertmanager"`
	Timeout    time.Duration     `yaml:"timeout" help:"timeout of a request. Default 10s"`
	Headers    map[string]string `yaml:"headers" help:"headers of each request (name: value); {tenant} in a value becomes the tenant: X-Scope-OrgID: '{tenant}'" show:"secret"`

	Username        string `yaml:"username" help:"user of basic authentication; needs password_file"`
	PasswordFile    string `yaml:"password_file" help:"file with the password, read for each request"`
	BearerTokenFile string `yaml:"bearer_token_file" help:"file with the bearer token, read for each request; instead of username"`
	TLS             TLS    `yaml:"tls"`
}

// DefaultRules evaluates each minute, as Prometheus does, and waits for a sender as long as queries see its
// last samples.
func DefaultRules() Rules {
	return Rules{Interval: time.Minute, SenderTimeout: 5 * time.Minute, StaleAlert: 2 * time.Minute,
		API: ruleset.DefaultLimits()}
}

// Patterns returns the paths and globs of each tenant that has any. Files without a tenant belong to
// the tenant `own`.
func (c Rules) Patterns(own string) map[string][]string {
	all := map[string][]string{}
	if len(c.Files) > 0 {
		all[own] = c.Files
	}
	for name, t := range c.Tenants {
		if len(t.Files) > 0 {
			all[name] = slices.Concat(all[name], t.Files)
		}
	}
	return all
}

// LabelsOf returns the external labels of a tenant.
func (c Rules) LabelsOf(tenant string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, c.ExternalLabels)
	maps.Copy(all, c.Tenants[tenant].ExternalLabels)
	return all
}

// any reports whether there are rule files.
func (c Rules) any() bool { return len(c.Patterns("")) > 0 }

// Validate implements conf.Validator.
func (c Rules) Validate() (problems []conf.Problem) {
	add := func(key, text string) { problems = append(problems, conf.Problem{Key: key, Text: text}) }
	if c.Interval < time.Second {
		add("interval", "must be at least 1s; set it to 1m")
	}
	if c.SenderTimeout < 10*time.Second || c.SenderTimeout > time.Hour {
		add("sender_timeout", "must be 10s to 1h; set it to 5m")
	}
	if c.StaleAlert < time.Second {
		add("stale_alert", "must be at least 1s; set it to 2m")
	}
	if u, err := url.Parse(c.ExternalURL); c.ExternalURL != "" &&
		(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		add("external_url", "is not a URL; write it like https://freshet.example, or leave it empty")
	}
	_, wrong := mapping.CompileRelabel(c.AlertRelabel)
	for _, p := range wrong {
		add("alert_relabel"+p.Key, p.Text)
	}
	checkExternal(c.ExternalLabels, "external_labels.", add)
	for name, t := range c.Tenants {
		if err := tenant.Check(name); err != nil {
			add("tenants."+name, err.Error())
		}
		checkExternal(t.ExternalLabels, "tenants."+name+".external_labels.", add)
	}
	return problems
}

func checkExternal(labels map[string]string, key string, add func(key, text string)) {
	for name := range labels {
		if !model.UTF8Validation.IsValidLabelName(name) || name == model.MetricNameLabel {
			add(key+name, "is not a name of a label; use letters, digits and underscores")
		}
	}
}

// WithDefaults returns a with defaults in place of zero fields.
func (a Alertmanager) WithDefaults() Alertmanager {
	a.DNSType = cmp.Or(a.DNSType, "SRV")
	a.Scheme = cmp.Or(a.Scheme, "http")
	a.Timeout = cmp.Or(a.Timeout, 10*time.Second) // as in Prometheus
	return a
}

// HTTPClient returns the configuration of an HTTP client in Prometheus' form, without headers.
func (a Alertmanager) HTTPClient() promconfig.HTTPClientConfig { return a.auth().client() }

func (a Alertmanager) auth() auth {
	return auth{a.Headers, a.Username, a.PasswordFile, a.BearerTokenFile, a.TLS}
}

// Validate returns the problems of a, with keys relative to a.
func (a Alertmanager) Validate() []conf.Problem {
	problems := a.auth().check()
	add := func(key, text string) { problems = append(problems, conf.Problem{Key: key, Text: text}) }
	a = a.WithDefaults()
	if len(a.Targets)+len(a.DNS) == 0 {
		add("targets", "is empty, and so is dns; name an address such as alertmanager:9093")
	}
	for i, target := range a.Targets {
		if host, port, err := net.SplitHostPort(target); err != nil || host == "" || port == "" {
			add(fmt.Sprintf("targets[%d]", i), "must be HOST:PORT, such as alertmanager:9093; scheme and path_prefix have "+
				"the other parts of a URL")
		}
	}
	switch {
	case !slices.Contains([]string{"SRV", "A", "AAAA"}, a.DNSType):
		add("dns_type", "must be SRV, A or AAAA")
	case len(a.DNS) > 0 && a.DNSType != "SRV" && (a.DNSPort < 1 || a.DNSPort > 65535):
		add("dns_port", "must be 1 to 65535, since records of type "+a.DNSType+" have no port; set it to 9093")
	}
	if a.Scheme != "http" && a.Scheme != "https" {
		add("scheme", "must be http or https")
	}
	if a.PathPrefix != "" && !strings.HasPrefix(a.PathPrefix, "/") {
		add("path_prefix", "must begin with a slash")
	}
	if a.Timeout < time.Millisecond {
		add("timeout", "must be at least 1ms")
	}
	return problems
}
