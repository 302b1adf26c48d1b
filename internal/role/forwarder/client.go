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
		tls := b.HTTPClient().TLSConfig
		if _, err := promconfig.NewTLSConfig(&tls); err != nil {
			errs = append(errs, fmt.Errorf("forward.backends[%d].tls: %w", i, err))
		}
	}
	return errors.Join(errs...)
}
