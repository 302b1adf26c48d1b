package server

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/exporter-toolkit/web"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/lib/build"
	"github.com/freshet-io/freshet/internal/settings"
)

// greet prints the addresses, and commands that can be pasted and tried next.
func (s *server) greet(out io.Writer) error {
	var b strings.Builder
	queries := s.has(settings.RoleQuerier) || s.has(settings.RoleGateway)
	fmt.Fprintf(&b, "%s\n\n", build.This())
	for _, socket := range s.collector.Listening() {
		fmt.Fprintf(&b, "  DogStatsD  %-9s %s", socket.Network, socket.Address)
		if socket.Tenant != s.config.DogStatsD.Tenant {
			fmt.Fprintf(&b, "  (tenant %s)", socket.Tenant)
		}
		b.WriteByte('\n')
	}
	for i, h := range s.http {
		fmt.Fprintf(&b, "  HTTP       %s://%s", h.scheme, h.addr())
		switch {
		case i > 0:
			fmt.Fprintf(&b, "  (tenant %s)\n", h.tenant)
		case s.has(settings.RoleGateway):
			fmt.Fprintf(&b, "  (passes writes and queries on to the nodes)\n")
		case queries:
			fmt.Fprintf(&b, "  (the page; for Grafana a Prometheus data source)\n")
		default:
			fmt.Fprintf(&b, "  (its own metrics and books)\n")
		}
	}
	if s.otlp != nil {
		fmt.Fprintf(&b, "  OTLP       %-9s %s  (over HTTP at /v1/metrics)\n", "grpc", s.otlp.addr())
	}
	if s.operatorSocket != nil {
		fmt.Fprintf(&b, "  operators  %-9s %s\n", "unix", s.operatorSocket.address)
	}
	fmt.Fprintf(&b, "  data       %s\n", s.config.DataDir)
	if s.discards() {
		fmt.Fprintf(&b, "\nNothing is stored: %s.\n", settings.NothingStored)
	}
	s.suggest(&b, queries)
	_, err := io.WriteString(out, b.String())
	return err
}

// suggest prints commands to paste. One of them is a query, if the process answers queries. The
// commands contain everything that the server demands of a client, except secrets.
func (s *server) suggest(b *strings.Builder, queries bool) {
	c := s.client()
	fmt.Fprintf(b, "\nTry:\n")
	if s.config.HTTP.TenantsFile != "" {
		fmt.Fprintf(b, "  export %s=\"$(cat TOKEN_FILE)\"      # TOKEN_FILE has a token of a tenant in %s\n",
			apiclient.TokenVariable, s.config.HTTP.TenantsFile)
	}
	udp := first(s.collector.Listening(), "udp")
	host, port, ok := strings.Cut(udp.Address, ":")
	if ok && !strings.Contains(port, ":") && udp.Tenant == s.config.HTTP.Tenant {
		fmt.Fprintf(b, "  echo 'page_views:1|c|#page:home' > /dev/udp/%s/%s      # in bash\n", host, port)
	}
	if queries {
		c.tell(b, "query page_views")
		fmt.Fprintf(b, "  %s\n\n", c.curl("/api/v1/query?query=page_views"))
	} else {
		c.tell(b, "tail", "ledger")
		b.WriteByte('\n')
	}
}

// tell prints commands of this program. These commands must resolve the host name themselves, and cannot
// send a client certificate. If the name does not resolve, or the server requires a certificate, tell
// prints a comment that says what is missing.
func (c *client) tell(b *strings.Builder, commands ...string) {
	if c.certificate {
		fmt.Fprintf(b, "  # http.web_config asks each client for a certificate, which the commands of %s do not have\n",
			os.Args[0])
		return
	}
	for _, text := range commands {
		if line := c.command(text); c.at != "" {
			fmt.Fprintf(b, "  # once %s resolves to %s: %s\n", c.host, c.at, line)
		} else {
			fmt.Fprintf(b, "  %s\n", line)
		}
	}
}

// client describes what a client needs for requests to the first address.
type client struct {
	scheme, host, port string
	at                 string // IP address; empty if host resolves to it
	ca                 string // CA file for the server's certificate; empty if the system's CAs suffice
	user               string // name of a user with a password; empty if no password is needed
	token              bool   // the token is in apiclient.TokenVariable
	certificate        bool   // the client needs a certificate
}

func (s *server) client() client {
	c := client{scheme: s.http[0].scheme, token: s.config.HTTP.TenantsFile != ""}
	c.host, c.port, _ = net.SplitHostPort(s.http[0].addr())
	if path := s.config.HTTP.WebConfig; path != "" {
		if w, err := readWebConfig(path); err == nil { // no error: the server read it at the start
			c.know(w)
		}
	}
	return c
}

// know notes what the web configuration file demands of clients.
func (c *client) know(w *web.Config) {
	if users := slices.Sorted(maps.Keys(w.Users)); len(users) > 0 {
		c.user = users[0]
	}
	t := &w.TLSConfig
	c.certificate = t.ClientAuth == "RequireAnyClientCert" || t.ClientAuth == "RequireAndVerifyClientCert"
	text := []byte(t.TLSCert)
	if t.TLSCertPath != "" {
		text, _ = os.ReadFile(t.TLSCertPath)
	}
	var all []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if one, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, one)
		}
	}
	if len(all) > 0 {
		c.trust(all, cmp.Or(absolute(t.TLSCertPath), "CA_FILE"))
	}
}

// trust chooses the host and the CA file with which a client trusts the server. The server's certificate
// is the first of `chain`, and the host is a name in it. If the system does not know the CA, the CA file
// is `file`, which holds the chain, since the server does not know where the CA's own file is.
func (c *client) trust(chain []*x509.Certificate, file string) {
	intermediates := x509.NewCertPool()
	for _, one := range chain[1:] {
		intermediates.AddCert(one)
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{Intermediates: intermediates}); err != nil {
		c.ca = file
	}
	loopback := c.host
	if ip := net.ParseIP(c.host); ip != nil && ip.IsUnspecified() {
		loopback = "127.0.0.1"
	}
	for _, name := range []string{c.host, loopback, "localhost"} {
		if chain[0].VerifyHostname(name) == nil {
			c.host = name
			return
		}
	}
	if names := chain[0].DNSNames; len(names) > 0 {
		c.host, c.at = strings.Replace(names[0], "*", "freshet", 1), loopback
	}
}

func (c *client) address() string { return net.JoinHostPort(c.host, c.port) }

// command returns a command line of this program that sends its requests to the address.
func (c *client) command(text string) string {
	text = os.Args[0] + " " + text
	if c.scheme != "http" || c.address() != settings.DefaultHTTP || c.user != "" {
		user := ""
		if c.user != "" {
			user = c.user + ":PASSWORD@"
		}
		text += " --server " + quoted(c.scheme+"://"+user+c.address())
	}
	if c.ca != "" {
		text += " --ca-file " + quoted(c.ca)
	}
	return text
}

// curl returns a curl command line for a path at the address.
func (c *client) curl(path string) string {
	text := "curl"
	if c.ca != "" {
		text += " --cacert " + quoted(c.ca)
	}
	if c.at != "" {
		text += " --resolve " + quoted(c.address()+":"+c.at)
	}
	if c.certificate {
		text += " --cert CERT_FILE --key KEY_FILE"
	}
	if c.token {
		text += ` -H "Authorization: Bearer $` + apiclient.TokenVariable + `"`
	}
	if c.user != "" {
		text += " -u " + quoted(c.user) // curl asks for the password
	}
	return text + " '" + c.scheme + "://" + c.address() + path + "'"
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`)

// quoted returns text as one word of a shell.
func quoted(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
