package forwarder

import (
	"errors"
	"fmt"
	"os"

	promconfig "github.com/prometheus/common/config"

	"github.com/freshet-io/freshet/internal/settings"
)

// CheckFiles reads the files named in the configuration.
func CheckFiles(c settings.Forward) error {
	var errs []error
	for i, b := range c.Backends {
		for key, path := range map[string]string{"password_file": b.PasswordFile, "bearer_token_file": b.BearerTokenFile} {
			if path == "" {
				continue
			}
			if _, err := os.ReadFile(path); err != nil {
				errs = append(errs, fmt.Errorf("forward.backends[%d].%s: %w", i, key, err))
			}
		}
		tls := clientConfig(b).TLSConfig
		if _, err := promconfig.NewTLSConfig(&tls); err != nil {
			errs = append(errs, fmt.Errorf("forward.backends[%d].tls: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

// clientConfig returns the configuration of an HTTP client in Prometheus' form. The client
// reads the files again when they change.
func clientConfig(b settings.Backend) promconfig.HTTPClientConfig {
	c := promconfig.HTTPClientConfig{
		// A redirect may turn a POST into a GET. The answer to that GET, 200, would acknowledge
		// a request that the backend never got.
		FollowRedirects: false,
		EnableHTTP2:     true,
		TLSConfig: promconfig.TLSConfig{
			CAFile: b.TLS.CAFile, CertFile: b.TLS.CertFile, KeyFile: b.TLS.KeyFile,
			ServerName: b.TLS.ServerName, InsecureSkipVerify: b.TLS.InsecureSkipVerify,
		},
	}
	if b.Username != "" {
		c.BasicAuth = &promconfig.BasicAuth{Username: b.Username, PasswordFile: b.PasswordFile}
	}
	if b.BearerTokenFile != "" {
		c.Authorization = &promconfig.Authorization{Type: "Bearer", CredentialsFile: b.BearerTokenFile}
	}
	return c
}
