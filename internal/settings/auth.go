package settings

import (
	"net/http"
	"regexp"
	"strings"

	promconfig "github.com/prometheus/common/config"

	"github.com/freshet-io/freshet/internal/lib/conf"
)

// TLS names the files for connections to another server by https.
type TLS struct {
	CAFile             string `yaml:"ca_file" help:"CA certificates that verify the server's certificate, PEM; empty: the system's"`
	CertFile           string `yaml:"cert_file" help:"client certificate, PEM"`
	KeyFile            string `yaml:"key_file" help:"key of the client certificate, PEM"`
	ServerName         string `yaml:"server_name" help:"name expected in the server's certificate; empty: the host to which we connect"`
	InsecureSkipVerify bool   `yaml:"insecure_skip_verify" help:"accept any certificate"`
}

// auth says how we prove to another server who we are.
type auth struct {
	headers                                 map[string]string
	username, passwordFile, bearerTokenFile string
	tls                                     TLS
}

var headerPattern = regexp.MustCompile(`^[A-Za-z0-9!#$%&'*+.^_|~` + "`" + `-]+$`)

// check returns the problems of the keys, which are relative to the element that has them.
func (a auth) check() (problems []conf.Problem) {
	add := func(key, text string) { problems = append(problems, conf.Problem{Key: key, Text: text}) }
	for name, value := range a.headers {
		if _, reserved := promconfig.ReservedHeaders[http.CanonicalHeaderKey(name)]; reserved {
			add("headers."+name, "is set by Freshet; remove it, and see username and bearer_token_file for authentication")
		} else if !headerPattern.MatchString(name) ||
			strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			add("headers."+name, "is not a header; names have letters, digits and dashes, and values are one line")
		}
	}
	if (a.username == "") != (a.passwordFile == "") {
		add("username", "set both username and password_file, or neither")
	}
	if a.username != "" && a.bearerTokenFile != "" {
		add("bearer_token_file", "cannot be combined with username; keep one of the two")
	}
	if (a.tls.CertFile == "") != (a.tls.KeyFile == "") {
		add("tls.cert_file", "set both cert_file and key_file, or neither")
	}
	return problems
}

// client returns the configuration of an HTTP client in Prometheus' form, without headers. The client
// reads the files again when they change.
func (a auth) client() promconfig.HTTPClientConfig {
	c := promconfig.HTTPClientConfig{
		// A redirect may turn a POST into a GET. The answer to that GET, 200, would acknowledge
		// a request that the other server never got.
		FollowRedirects: false,
		EnableHTTP2:     true,
		TLSConfig: promconfig.TLSConfig{
			CAFile: a.tls.CAFile, CertFile: a.tls.CertFile, KeyFile: a.tls.KeyFile,
			ServerName: a.tls.ServerName, InsecureSkipVerify: a.tls.InsecureSkipVerify,
		},
	}
	if a.username != "" {
		c.BasicAuth = &promconfig.BasicAuth{Username: a.username, PasswordFile: a.passwordFile}
	}
	if a.bearerTokenFile != "" {
		c.Authorization = &promconfig.Authorization{Type: "Bearer", CredentialsFile: a.bearerTokenFile}
	}
	return c
}
