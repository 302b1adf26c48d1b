package settings

import (
	"fmt"
	"strings"

	"github.com/grafana/regexp"

	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// HTTP is the "http" section of the configuration file.
type HTTP struct {
	Listen    string         `yaml:"listen" help:"HOST:PORT of the API; without web_config and tenants_file it has no passwords, so keep it on loopback or behind a proxy"`
	Tenant    string         `yaml:"tenant" help:"tenant whose series are seen there"`
	WebConfig string         `yaml:"web_config" help:"web configuration file of Prometheus' exporter-toolkit, with TLS, client certificates and passwords; empty for plain HTTP"`
	Listeners []HTTPListener `yaml:"listeners" help:"further addresses, each with its tenant"`

	MaxConnections int `yaml:"max_connections" help:"open connections of HTTP and gRPC together; 0 for three eighths of the files that the process may open, at most 8192" reload:"restart"`

	OperatorLoopback bool   `yaml:"operator_loopback" help:"answer operator endpoints on loopback without a token; it turns itself off when the first request comes by way of a proxy, until the server is stopped and started; off where a proxy on this machine adds no header"`
	OperatorsFile    string `yaml:"operators_file" help:"file with the tokens of operators, who may see and change the whole process from elsewhere; a reload reads it again"`

	TenantsFile         string `yaml:"tenants_file" help:"file with the tenants' tokens, of which each request must then carry one; a reload reads it again"`
	TrustTenantHeader   bool   `yaml:"trust_tenant_header" help:"believe the header X-Scope-OrgID: only behind something that authenticates and sets it"`
	AllowUnknownTenants bool   `yaml:"allow_unknown_tenants" help:"let that header give names that the configuration does not have"`

	Hosts      []string `yaml:"hosts" help:"further names in Host by which this server is asked on loopback, as a proxy on this machine may pass them on; * for any"`
	CORSOrigin string   `yaml:"cors_origin" help:"regular expression for the whole origin of web pages of others that may read answers, such as https://grafana\\.example; empty for none"`
}

// HTTPListener is one further address.
type HTTPListener struct {
	Listen    string `yaml:"listen" help:"HOST:PORT"`
	Tenant    string `yaml:"tenant" help:"tenant whose series are seen there"`
	WebConfig string `yaml:"web_config" help:"as http.web_config, for this address"`
}

// All are the addresses, that of http.listen first.
func (c HTTP) All() []HTTPListener {
	return append([]HTTPListener{{c.Listen, c.Tenant, c.WebConfig}}, c.Listeners...)
}

// DefaultHTTP is where the API is, unless told otherwise.
const DefaultHTTP = "127.0.0.1:7125"

// Validate is part of conf.Validator.
func (c HTTP) Validate() []conf.Problem {
	var problems []conf.Problem
	check := func(prefix string, l HTTPListener) {
		if why := conf.AddressProblem(l.Listen, DefaultHTTP); why != "" {
			problems = append(problems, conf.Problem{Key: prefix + "listen", Text: why})
		}
		if err := tenant.Check(l.Tenant); err != nil {
			problems = append(problems, conf.Problem{Key: prefix + "tenant", Text: err.Error()})
		}
	}
	check("", HTTPListener{Listen: c.Listen, Tenant: c.Tenant})
	for i, l := range c.Listeners {
		check(fmt.Sprintf("listeners[%d].", i), l)
	}
	problems = append(append(problems, c.checkHosts()...), c.checkOrigin()...)
	if c.MaxConnections < 0 || c.MaxConnections > 0 && c.MaxConnections < 8 {
		problems = append(problems, conf.Problem{Key: "max_connections", Text: "must be 0, or 8 or more"})
	}
	if c.TrustTenantHeader && c.TenantsFile != "" {
		problems = append(problems, conf.Problem{Key: "trust_tenant_header", Text: "is not possible with http.tenants_file, by which the token names the tenant; keep one of the two"})
	}
	if c.AllowUnknownTenants && !c.TrustTenantHeader {
		problems = append(problems, conf.Problem{Key: "allow_unknown_tenants", Text: "says nothing without http.trust_tenant_header; set that, or take this out"})
	}
	return problems
}

// checkHosts says what is wrong with http.hosts.
func (c HTTP) checkHosts() (problems []conf.Problem) {
	for i, h := range c.Hosts {
		if h == "" || h != "*" && strings.ContainsAny(h, "*:/ ") {
			problems = append(problems, conf.Problem{Key: fmt.Sprintf("hosts[%d]", i), Text: "must be a name alone, such as metrics.example, or * for any"})
		}
	}
	return problems
}

// Origins compiles http.cors_origin. As in Prometheus, it has to match all of an origin.
func (c HTTP) Origins() (*regexp.Regexp, error) {
	return regexp.Compile("^(?:" + c.CORSOrigin + ")$")
}

// checkOrigin says what is wrong with http.cors_origin.
func (c HTTP) checkOrigin() []conf.Problem {
	if _, err := c.Origins(); err != nil {
		return []conf.Problem{{Key: "cors_origin", Text: fmt.Sprintf("is not a regular expression: %v; write it like https://grafana\\.example", err)}}
	}
	return nil
}
