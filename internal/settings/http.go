package settings

import (
	"fmt"
	"strings"
	"time"

	"github.com/grafana/regexp"

	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// HTTP is the "http" section of the configuration file.
type HTTP struct {
	Listen    string         `yaml:"listen" help:"HOST:PORT of the API and the page; without web_config or tenants_file it has no passwords"`
	Tenant    string         `yaml:"tenant" help:"tenant of requests to this address"`
	WebConfig string         `yaml:"web_config" help:"web configuration file of Prometheus: TLS, client certificates, passwords; empty: plain HTTP"`
	Listeners []HTTPListener `yaml:"listeners" help:"more addresses, each with its tenant"`

	MaxConnections int `yaml:"max_connections" help:"open connections, HTTP and gRPC together; 0: three eighths of the process' file limit, at most 8192" reload:"restart"`

	ShutdownDelay time.Duration `yaml:"shutdown_delay" help:"how long a process that is asked to stop still answers, while /-/ready already answers 503: long enough for load balancers to notice"`

	OperatorLoopback bool   `yaml:"operator_loopback" help:"answer operators on loopback without a token; set false behind a proxy on this machine"`
	OperatorsFile    string `yaml:"operators_file" help:"file with the tokens of operators; a reload reads it again"`

	TenantsFile         string `yaml:"tenants_file" help:"file with the tenants' tokens; each request then needs one of them; a reload reads the file again"`
	TrustTenantHeader   bool   `yaml:"trust_tenant_header" help:"take the tenant from the header X-Scope-OrgID; only behind a proxy that authenticates requests and sets the header"`
	AllowUnknownTenants bool   `yaml:"allow_unknown_tenants" help:"with trust_tenant_header, allow tenants that the configuration does not name"`

	TrustedProxies []string `yaml:"trusted_proxies" help:"addresses and networks of proxies and gateways whose X-Forwarded-For names the sender of a request, such as 10.0.0.9 or 10.0.0.0/24; unix: a proxy at operator.sock. It only names senders, and gives nobody a right"`

	Hosts      []string `yaml:"hosts" help:"more names that the Host header may have on loopback, such as a proxy's; *: any"`
	CORSOrigin string   `yaml:"cors_origin" help:"regular expression for the whole origin of web pages that may read answers, such as https://grafana\\.example; empty: none"`
}

// HTTPListener is an additional address.
type HTTPListener struct {
	Listen    string `yaml:"listen" help:"HOST:PORT"`
	Tenant    string `yaml:"tenant" help:"tenant of requests to this address"`
	WebConfig string `yaml:"web_config" help:"like http.web_config, for this address"`
}

// All returns the addresses, beginning with http.listen.
func (c HTTP) All() []HTTPListener {
	return append([]HTTPListener{{c.Listen, c.Tenant, c.WebConfig}}, c.Listeners...)
}

// DefaultHTTP is the default address of the API.
const DefaultHTTP = "127.0.0.1:7125"

// Validate implements conf.Validator.
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
	for i, text := range c.TrustedProxies {
		if err := new(sender.Proxies).Add(text); err != nil {
			problems = append(problems, conf.Problem{Key: fmt.Sprintf("trusted_proxies[%d]", i), Text: err.Error()})
		}
	}
	if c.MaxConnections < 0 || c.MaxConnections > 0 && c.MaxConnections < 8 {
		problems = append(problems, conf.Problem{Key: "max_connections", Text: "must be 0, or 8 or more"})
	}
	if c.ShutdownDelay < 0 {
		problems = append(problems, conf.Problem{Key: "shutdown_delay", Text: "must be 0s or more"})
	}
	if c.TrustTenantHeader && c.TenantsFile != "" {
		problems = append(problems, conf.Problem{
			Key:  "trust_tenant_header",
			Text: "cannot be combined with http.tenants_file, where the token names the tenant; keep one of the two",
		})
	}
	if c.AllowUnknownTenants && !c.TrustTenantHeader {
		problems = append(problems, conf.Problem{
			Key:  "allow_unknown_tenants",
			Text: "has no effect without http.trust_tenant_header; set that key, or remove this one",
		})
	}
	return problems
}

// Proxies returns the peers of http.trusted_proxies, which must be valid.
func (c HTTP) Proxies() *sender.Proxies {
	p := new(sender.Proxies)
	for _, text := range c.TrustedProxies {
		_ = p.Add(text)
	}
	return p
}

// checkHosts returns the problems of http.hosts.
func (c HTTP) checkHosts() (problems []conf.Problem) {
	for i, h := range c.Hosts {
		if h == "" || h != "*" && strings.ContainsAny(h, "*:/ ") {
			problems = append(problems, conf.Problem{
				Key:  fmt.Sprintf("hosts[%d]", i),
				Text: "must be a host name without a port, such as metrics.example, or * for any",
			})
		}
	}
	return problems
}

// Origins compiles http.cors_origin. As in Prometheus, it must match the whole origin.
func (c HTTP) Origins() (*regexp.Regexp, error) {
	return regexp.Compile("^(?:" + c.CORSOrigin + ")$")
}

// checkOrigin returns the problem of http.cors_origin, if any.
func (c HTTP) checkOrigin() []conf.Problem {
	if _, err := c.Origins(); err != nil {
		return []conf.Problem{{
			Key:  "cors_origin",
			Text: fmt.Sprintf("is not a regular expression: %v; write it like https://grafana\\.example", err),
		}}
	}
	return nil
}
