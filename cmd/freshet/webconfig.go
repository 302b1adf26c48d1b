package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v3"

	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/role/forwarder"
	"github.com/freshet-io/freshet/internal/settings"
)

// readWebConfig reads a web configuration file of the exporter-toolkit, and the
// certificates that it names.
func readWebConfig(path string) (*web.Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if err := web.Validate(path); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c := &web.Config{ // as the toolkit presets it
		TLSConfig:  web.TLSConfig{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS13, PreferServerCipherSuites: true},
		HTTPConfig: web.HTTPConfig{HTTP2: true},
	}
	if err := yaml.NewDecoder(bytes.NewReader(text)).Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c.TLSConfig.SetDirectory(filepath.Dir(path))
	return c, nil
}

// tlsConfig is the TLS of a web configuration file, nil without any: for listeners
// that do not speak HTTP. Like those that do, it reads file and certificates again
// for each connection.
func tlsConfig(path string) (*tls.Config, error) {
	if path == "" {
		return nil, nil
	}
	c, err := readWebConfig(path)
	if err != nil || !c.TLSConfig.IsEnabled() {
		return nil, err
	}
	outer, err := web.ConfigToTLSConfig(&c.TLSConfig)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c, err := readWebConfig(path)
		if err != nil {
			return nil, err
		}
		inner, err := web.ConfigToTLSConfig(&c.TLSConfig)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		inner.NextProtos = outer.NextProtos
		return inner, nil
	}
	return outer, nil
}

// checkFiles reads the files that the configuration names, so that a server does
// not start, or end for another, with one that is broken.
func checkFiles(c settings.Config) error {
	var errs []error
	for i, l := range c.HTTP.All() {
		if l.WebConfig == "" {
			continue
		}
		key := "http.web_config"
		if i > 0 {
			key = fmt.Sprintf("http.listeners[%d].web_config", i-1)
		}
		read, err := readWebConfig(l.WebConfig)
		if err != nil {
			errs = append(errs, conf.Mistake(fmt.Errorf("%s: %w; mend the file, or leave the key empty for plain HTTP", key, err)))
		} else if len(read.Users) > 0 && (c.HTTP.TenantsFile != "" || c.HTTP.OperatorsFile != "") {
			errs = append(errs, conf.Mistake(fmt.Errorf("%s: %s has basic_auth_users, and a request cannot carry their password and a token of http.tenants_file or http.operators_file in one header; keep one of the two",
				key, l.WebConfig)))
		}
	}
	if err := forwarder.CheckFiles(c.Forward); err != nil {
		errs = append(errs, conf.Mistake(err))
	}
	_, err := accessOf(c)
	_, operatorsErr := operatorsOf(c)
	return errors.Join(append(errs, err, operatorsErr)...)
}
