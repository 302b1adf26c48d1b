package ruler

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	promconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/dns"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/settings"
)

// twice registers the metrics of a tenant's notifier also in a registry of their own, from which the ledger gets them.
type twice struct {
	prometheus.Registerer
	own *prometheus.Registry
}

// MustRegister implements prometheus.Registerer.
func (t twice) MustRegister(all ...prometheus.Collector) {
	t.own.MustRegister(all...)
	t.Registerer.MustRegister(all...)
}

// notificationsIn returns what became of notifications, by the metrics of a notifier.
func notificationsIn(metrics prometheus.Gatherer) (all []answer.Notifications) {
	families, err := metrics.Gather()
	if err != nil {
		panic("BUG: Prometheus' metrics of notifications: " + err.Error())
	}
	of := map[string]*answer.Notifications{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() != "alertmanager" {
					continue
				}
				n := of[l.GetValue()]
				if n == nil {
					n = &answer.Notifications{Alertmanager: l.GetValue()}
					of[l.GetValue()] = n
				}
				switch family.GetName() {
				case "prometheus_notifications_sent_total":
					n.Sent = uint64(m.GetCounter().GetValue())
				case "prometheus_notifications_dropped_total":
					n.Dropped = uint64(m.GetCounter().GetValue())
				case "prometheus_notifications_queue_length":
					n.Waiting = uint64(m.GetGauge().GetValue())
				}
			}
		}
	}
	for _, url := range slices.Sorted(maps.Keys(of)) {
		all = append(all, *of[url])
	}
	return all
}

// CheckFiles reads the files that the configuration names for the connections to Alertmanagers.
func CheckFiles(c settings.Rules) error {
	var errs []error
	for i, a := range c.Alertmanagers {
		for key, path := range map[string]string{"password_file": a.PasswordFile, "bearer_token_file": a.BearerTokenFile} {
			if path == "" {
				continue
			}
			if _, err := os.ReadFile(path); err != nil {
				errs = append(errs, fmt.Errorf("rules.alertmanagers[%d].%s: %w", i, key, err))
			}
		}
		tls := a.HTTPClient().TLSConfig
		if _, err := promconfig.NewTLSConfig(&tls); err != nil {
			errs = append(errs, fmt.Errorf("rules.alertmanagers[%d].tls: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

// notifierConfig translates the configuration for Prometheus' notifier, and for its discovery of
// Alertmanagers.
func notifierConfig(
	c settings.Rules, tenant string, external labels.Labels,
) (*config.Config, map[string]discovery.Configs) {
	sent := &config.Config{}
	sent.GlobalConfig.ExternalLabels = external
	sent.GlobalConfig.MetricNameValidationScheme = model.UTF8Validation
	sent.AlertingConfig.AlertRelabelConfigs, _ = mapping.CompileRelabel(c.AlertRelabel) // checked before
	for _, a := range c.Alertmanagers {
		sent.AlertingConfig.AlertmanagerConfigs = append(sent.AlertingConfig.AlertmanagerConfigs,
			alertmanagerConfig(a.WithDefaults(), tenant))
	}
	found := map[string]discovery.Configs{}
	for name, a := range sent.AlertingConfig.AlertmanagerConfigs.ToMap() {
		found[name] = a.ServiceDiscoveryConfigs
	}
	return sent, found
}

func alertmanagerConfig(a settings.Alertmanager, tenant string) *config.AlertmanagerConfig {
	to := config.DefaultAlertmanagerConfig
	to.HTTPClientConfig = a.HTTPClient()
	to.HTTPClientConfig.HTTPHeaders = headersFor(a.Headers, tenant)
	to.Scheme, to.PathPrefix, to.Timeout = a.Scheme, a.PathPrefix, model.Duration(a.Timeout)
	if len(a.Targets) > 0 {
		group := &targetgroup.Group{Source: "targets"}
		for _, target := range a.Targets {
			group.Targets = append(group.Targets, model.LabelSet{model.AddressLabel: model.LabelValue(target)})
		}
		to.ServiceDiscoveryConfigs = append(to.ServiceDiscoveryConfigs, discovery.StaticConfig{group})
	}
	if len(a.DNS) > 0 {
		names := dns.DefaultSDConfig
		names.Names, names.Type, names.Port = a.DNS, a.DNSType, a.DNSPort
		to.ServiceDiscoveryConfigs = append(to.ServiceDiscoveryConfigs, &names)
	}
	return &to
}

// headersFor returns the headers of a tenant's requests.
func headersFor(headers map[string]string, tenant string) *promconfig.Headers {
	all := &promconfig.Headers{Headers: map[string]promconfig.Header{}}
	for name, value := range headers {
		value = strings.ReplaceAll(value, "{tenant}", tenant)
		all.Headers[name] = promconfig.Header{Secrets: []promconfig.Secret{promconfig.Secret(value)}}
	}
	return all
}
