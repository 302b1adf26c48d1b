package server

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/settings"
)

// forOperators answers only operators. It guards endpoints that show memory or raw data, or that change
// something.
func (s *server) forOperators(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := s.notOperator(r); err != nil {
			s.refused.WithLabelValues(reasonOf(err)).Inc()
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		h(w, r)
	}
}

// operator reports whether r may see the whole process. On a server with a single tenant, every request
// may see it. On a server with several tenants, only a request of an operator may, and only if it names
// no tenant.
func (s *server) operator(r *http.Request) bool {
	if s.access.Load() == nil {
		return true
	}
	c := claimOf(r)
	if s.vouched(r, c) {
		return c.Headers == nil
	}
	return c.Token == "" && c.Headers == nil && s.notOperator(r) == nil
}

// vouched reports whether a request comes from an operator, whatever its address: it has an operator's
// token, or came by operator.sock. A request with a tenant's token is a request of the tenant, even if
// it came by operator.sock.
func (s *server) vouched(r *http.Request, c tenant.Claim) bool {
	if s.operators.Load().Has(c.Token) {
		return true
	}
	return byOperatorSocket(r) && (c.Token == "" || s.config.HTTP.TenantsFile == "")
}

// toOperators is the end of a refusal. It says how operators can make the request.
const toOperators = "ask by operator.sock in the data directory, as freshet does on the server's machine, or with " +
	"the token of an operator (http.operators_file)"

// notOperator returns why a request may not operate the process, or nil if it may. On
// operator.sock, the permission of the file decides. A loopback address alone proves little:
// requests of a proxy on this machine have one, and so do requests of a browser that shows pages of
// other origins.
func (s *server) notOperator(r *http.Request) error {
	if s.operators.Load().Has(bearer(r.Header.Get("Authorization"))) {
		return nil
	}
	if !byOperatorSocket(r) {
		if err := s.notOnLoopback(r); err != nil {
			return err
		}
	}
	// The owner of a web page can make the page's host name resolve to loopback, and a tunnel may
	// lead from loopback to the socket. For the browser, page and server then have one origin. Only the
	// Host header shows that the page is foreign.
	if host := hostOf(r.Host); !isLoopback(host) && !strings.EqualFold(host, "localhost") && !s.http.named(host) {
		return denial{reasonHost, fmt.Errorf("this endpoint is answered on loopback only: Host %q is neither "+
			"a loopback address nor localhost nor a host that http.listen names; %s", r.Host, toOperators)}
	}
	return foreignPage(r)
}

// notOnLoopback returns why a request's address does not prove that it comes from an operator.
func (s *server) notOnLoopback(r *http.Request) error {
	if name := forwarded(r.Header); name != "" {
		return denial{reasonOperator, fmt.Errorf("this endpoint is answered only on loopback and by operator.sock, not "+
			"through a proxy (%s); %s", name, toOperators)}
	}
	if !fromLoopback(r) {
		return denial{reasonOperator,
			errors.New("without an operator's token this endpoint is answered only on loopback; " + toOperators)}
	}
	if !s.config.HTTP.OperatorLoopback {
		return denial{reasonOperator, errors.New("http.operator_loopback is off; " + toOperators)}
	}
	if name := s.proxied.Load(); name != nil {
		return denial{reasonOperator, fmt.Errorf("http.operator_loopback is off until the server is stopped and "+
			"started, because a request came through a proxy (%s), whose clients have a loopback address too; %s",
			*name, toOperators)}
	}
	return nil
}

// openOperators loads the operators of this server.
func (s *server) openOperators() error {
	promauto.With(s.registry).NewGaugeFunc(prometheus.GaugeOpts{Name: "freshet_http_operator_loopback",
		Help: "Whether operator endpoints are answered on loopback without a token. Falling to 0: a request came " +
			"through a proxy, whose clients have a loopback address too; until the server is stopped and started, " +
			"operators must ask by operator.sock or with a token."},
		func() float64 {
			if s.config.HTTP.OperatorLoopback && s.proxied.Load() == nil {
				return 1
			}
			return 0
		})
	operators, err := operatorsOf(s.config)
	s.operators.Store(operators)
	return err
}

// operatorsOf returns the operators whose tokens are in http.operators_file, or nil if that key is
// empty.
func operatorsOf(c settings.Config) (*tenant.Operators, error) {
	if c.HTTP.OperatorsFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(c.HTTP.OperatorsFile)
	if err != nil {
		return nil, conf.Mistake(fmt.Errorf("http.operators_file: %w; name the file with the operators' tokens, or "+
			"leave the key empty", err))
	}
	operators, err := tenant.OperatorsByTokens(c.HTTP.OperatorsFile, text)
	if err != nil {
		return nil, conf.Mistake(err)
	}
	return operators, nil
}

// noteProxy turns http.operator_loopback off when the first request with a proxy's header comes, at
// any address. A restart in place keeps it off; stopping and starting the server turns it on again.
// A single header is enough: the next client of that proxy may be able to make the proxy leave its
// header out.
func (s *server) noteProxy(h http.Header) {
	if !s.config.HTTP.OperatorLoopback || s.proxied.Load() != nil {
		return
	}
	if name := forwarded(h); name != "" && s.proxied.CompareAndSwap(nil, &name) {
		s.logger.Warn("operator endpoints are no longer answered on loopback: a request came through a proxy, whose "+
			"clients have a loopback address too", "header", name, "way_out", toOperators)
	}
}
